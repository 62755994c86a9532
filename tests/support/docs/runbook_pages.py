"""The pages of the runbook, taken apart: entries, their parts, commands, requests, links."""

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from typer.core import TyperGroup
from typer.main import get_command

from holdfast.cli.exit_codes import store_first
from holdfast.cli.root import cli
from tests.support.source_tree import ROOT, text_of

DOCS = ROOT / "docs"
START = DOCS / "runbook.md"
FOLDER = DOCS / "runbook"

FENCED = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"`((?:(?!\n\n)[^`])+)`")
HEADING = re.compile(r"^#{1,6} +(.+)$", re.MULTILINE)
PART = re.compile(r"^- \*\*(\w+):\*\*", re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s]+)\)")
ADDRESS = re.compile(r"(?:\$\{?URL\}?|https?://[^/\s\"']+)(/[^\s\"'?#]*)")
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
DATA = ("-d", "--data", "--json")
OPERATORS = frozenset("|&;<>")
ENOUGH = {"--help", "--version"}  # what asks for no more words
OURS = ("holdfast ", "api ", "curl ")
SHELLS = ("", "sh", "bash", "console")


@dataclass(frozen=True, slots=True)
class Entry:
    page: Path
    name: str  # its heading
    body: str

    @property
    def parts(self) -> list[tuple[str, str]]:
        """Return the parts that begin with `- **Name:**`, each up to the next one."""
        found = list(PART.finditer(self.body))
        ends = [*(one.start() for one in found[1:]), len(self.body)]
        return [
            (one[1], self.body[one.end() : end].strip())
            for one, end in zip(found, ends, strict=True)
        ]


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    path: str
    body: str | None = None


@cache
def pages() -> tuple[Path, ...]:
    return START, *sorted(FOLDER.glob("*.md"))


def entries(*names: str) -> list[Entry]:
    """Return each heading of the third level on these pages, with the text below it."""
    found = []
    for name in names:
        page = FOLDER / f"{name}.md"
        for part in re.split(r"^### ", text_of(page), flags=re.MULTILINE)[1:]:
            heading, _, body = part.partition("\n")
            found.append(Entry(page, heading, re.split(r"^##? ", body, flags=re.MULTILINE)[0]))
    return found


def shell_lines(page: Path) -> Iterator[str]:
    """The lines of its blocks for a shell, without prompts; a command that goes on is one."""
    for _, language, body in FENCED.findall(text_of(page)):
        lines = body.replace("\\\n", " ").splitlines() if language in SHELLS else []
        while lines:
            line = lines.pop(0).strip().removeprefix("$ ")
            while line.startswith(OURS) and lines and not _is_closed(line):
                line = f"{line} {lines.pop(0).strip()}"
            yield line


def _is_closed(line: str) -> bool:
    """All its quotes are."""
    try:
        words_of(line)
    except ValueError:
        return False
    return True


def spans(page: Path) -> list[str]:
    """Return the spans between backticks in the text itself, each on one line."""
    return [" ".join(span.split()) for span in SPAN.findall(FENCED.sub("", text_of(page)))]


def words_of(line: str) -> list[str]:
    """Split a line as a shell would, up to a pipe or the like."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words = list(lexer)
    ends = [at for at, word in enumerate(words) if OPERATORS.issuperset(word)]
    return words[: ends[0]] if ends else words


def commands(page: Path) -> Iterator[tuple[list[str], bool]]:
    """The words behind `holdfast`; True: of a block, and to be typed as they are."""
    lines = [(line, True) for line in shell_lines(page)] + [(span, False) for span in spans(page)]
    for line, is_whole in lines:
        if line.split(" ")[0] == "holdfast":
            yield words_of(line)[1:], is_whole


@cache
def root() -> Any:
    return get_command(cli)


def parse(args: Sequence[str], *, is_whole: bool = True) -> None:
    """Raise what the command line would say against it; nothing is run. In a text a command may
    be only named, without a word more."""
    command, name, parent = root(), "holdfast", None
    left = [word for word in store_first(list(args)) if word not in ENOUGH]
    is_whole = is_whole and ENOUGH.isdisjoint(args)
    while isinstance(command, TyperGroup) and (left or is_whole):
        parent = command.make_context(name, left, parent=parent)
        left = [*parent._protected_args, *parent.args]
        if not left and (command.invoke_without_command or not is_whole):
            return
        if not left:
            parent.fail("Missing command.")
        named, found, left = command.resolve_command(parent, left)
        assert named is not None
        assert found is not None
        name, command = named, found
    if left or is_whole:
        command.make_context(name, left, parent=parent)


def requests(page: Path) -> Iterator[Request]:
    """Each `curl`, and each `GET /…` in the text."""
    for line in (*shell_lines(page), *spans(page)):
        words = line.split(" ")
        if words[0] in METHODS and len(words) == 2 and words[1].startswith("/"):
            yield Request(words[0], words[1].partition("?")[0])
        elif words[0] in ("api", "curl"):
            for path in ADDRESS.findall(line):
                yield Request(_method_of(words), path, _body_of(words_of(line)))


def _body_of(words: Sequence[str]) -> str | None:
    """Return the body that a command sends, or None if it has none or only a part is shown."""
    given = [words[words.index(word) + 1] for word in DATA if word in words]
    return given[0] if given and "…" not in given[0] else None


def _method_of(words: Sequence[str]) -> str:
    if "-X" in words:
        return words[words.index("-X") + 1]
    return "GET" if set(DATA).isdisjoint(words) else "POST"


def slug(heading: str) -> str:
    """The name that a heading has in a link."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def links(page: Path) -> Iterator[tuple[Path, str]]:
    """Yield each link to a file of ours: the file, and the heading's name or nothing."""
    for link in LINK.findall(FENCED.sub("", text_of(page))):
        if "://" not in link:
            path, _, heading = link.partition("#")
            yield (page.parent / path).resolve() if path else page, heading


def anchors(page: Path) -> set[str]:
    return {slug(heading) for heading in HEADING.findall(FENCED.sub("", text_of(page)))}
