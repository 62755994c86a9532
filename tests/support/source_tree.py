"""The project's files, their text and their syntax trees, for tests about the source itself."""

import ast
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "holdfast"

# Only for a tree without git, where nothing else says what belongs to the project.
NOT_OURS = {".git", "__pycache__", "node_modules", "build", "dist"}


@dataclass(frozen=True, slots=True, order=True)
class Breach:
    """One broken rule, at one place."""

    path: Path
    line: int
    rule: str

    def __str__(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line}: {self.rule}"


def assert_none(breaches: Iterable[Breach]) -> None:
    found = sorted(breaches)
    assert not found, "\n" + "\n".join(map(str, found))


@cache
def project_files() -> tuple[Path, ...]:
    """Every file of the project: tracked, or new and not ignored."""
    listed = _listed_by_git()
    files = _walked() if listed is None else listed
    return tuple(sorted(path for path in files if path.is_file()))


@cache
def text_of(path: Path) -> str:
    """The file's text; empty for a binary file."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return ""


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(text_of(path), filename=str(path))


def files_under(folder: Path, *suffixes: str) -> Iterator[Path]:
    for path in project_files():
        if path.is_relative_to(folder) and (not suffixes or path.suffix in suffixes):
            yield path


def nodes_of(path: Path) -> Iterator[ast.AST]:
    return ast.walk(tree_of(path))


def calls_of(path: Path) -> Iterator[tuple[ast.Call, str]]:
    """Each call and its full dotted name: after `from time import sleep` too, `time.sleep`."""
    aliases = _aliases_of(path)
    for node in nodes_of(path):
        if isinstance(node, ast.Call):
            yield node, _resolved(_dotted(node.func), aliases)


def _aliases_of(path: Path) -> dict[str, str]:
    aliases: dict[str, str] = {}
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            aliases |= {item.asname: item.name for item in node.names if item.asname}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            aliases |= {i.asname or i.name: f"{node.module}.{i.name}" for i in node.names}
    return aliases


def _dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    return ""


def _resolved(name: str, aliases: dict[str, str]) -> str:
    head, dot, rest = name.partition(".")
    return aliases.get(head, head) + dot + rest


def _listed_by_git() -> list[Path] | None:
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return [ROOT / name for name in done.stdout.split("\0") if name]


def _walked() -> list[Path]:
    return [path for path in ROOT.rglob("*") if not _is_ignored(path.relative_to(ROOT))]


def _is_ignored(path: Path) -> bool:
    caches = any(part.startswith(".") and part != ".ci" for part in path.parts[:-1])
    return caches or not NOT_OURS.isdisjoint(path.parts)
