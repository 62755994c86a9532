"""The architecture page names files that exist, and can be read in five minutes."""

import ast
import re
from pathlib import Path

import pytest

from tests.support.docs.prose import sentences, words
from tests.support.source_tree import PACKAGE, ROOT, nodes_of, text_of

PAGE = text_of(ROOT / "docs" / "architecture.md")
MAP = text_of(ROOT / "docs" / "internals" / "components.md")
PATHS = re.compile(r"`((?:[\w.-]+/)+(?:[\w-]+\.(?:py|lua|sql|md|rs))?)`")
FILE = re.compile(r"`([\w./-]+\.(?:py|lua|sql)|(?:[\w-]+/)+)`")
NAMED = re.compile(r"`(\w+)` in `([\w./-]+\.(?:py|lua|sql))`")
DEFINED_IN_TEXT = re.compile(r"^(?:local function|-- name:) (\w+)", re.MULTILINE)
TABLES_OF_PLACES = ("Where to find things", "What else runs in each worker")
WORDS_MAX = 1_200  # five minutes, tables included


@pytest.mark.parametrize("path", sorted({*PATHS.findall(PAGE), *PATHS.findall(MAP)}))
def test_every_path_on_the_page_exists(path: str) -> None:
    assert (PACKAGE / path).exists() or (ROOT / path).exists()


def test_the_page_names_the_files_that_a_newcomer_asks_for() -> None:
    for path in (
        "runtime/worker/heartbeat.py",
        "notify/signature.py",
        "stores/redis/tasks/shared/write_checkpoint.lua",
        "stores/sqlite/tasks/store.py",
        "server/auth/access.py",
        "insight/why/task.py",
        "testing/contract/",
    ):
        assert path in PATHS.findall(PAGE)


def rows_of(heading: str) -> list[str]:
    section = PAGE.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    return [line for line in section.splitlines() if line.startswith("|")][2:]


def names_defined_in(path: Path) -> set[str]:
    if path.suffix != ".py":
        return set(DEFINED_IN_TEXT.findall(text_of(path)))
    names: set[str] = set()
    for node in nodes_of(path):
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
                names.add(name)
            case ast.AsyncFunctionDef(name=name) | ast.AnnAssign(target=ast.Name(id=name)):
                names.add(name)
            case ast.Assign(targets=[ast.Name(id=name)]):
                names.add(name)
    return names


@pytest.mark.parametrize(("name", "path"), sorted(set(NAMED.findall(PAGE))))
def test_every_name_on_the_page_is_defined_in_the_file_beside_it(name: str, path: str) -> None:
    assert name in names_defined_in(PACKAGE / path)


@pytest.mark.parametrize("heading", TABLES_OF_PLACES)
def test_every_row_names_a_definition_and_its_file_or_a_folder(heading: str) -> None:
    assert rows_of(heading)
    for row in rows_of(heading):
        place = row.split("|")[2]
        assert NAMED.search(place) or all(path.endswith("/") for path in FILE.findall(place)), row
        assert FILE.search(place), row


def test_every_layer_is_in_the_picture() -> None:
    picture = PAGE.split("```")[1]
    for layer in ("domain", "ports", "stores", "runtime", "sinks", "observe", "engine", "encoding"):
        assert f"{layer}/" in picture
    for layer in ("insight", "notify", "server", "cli", "integrations", "testing"):
        assert f"{layer}/" in picture
    for module in ("registry.py", "settings.py", "clock.py"):
        assert module in picture


def test_the_page_takes_five_minutes() -> None:
    assert sum(map(words, sentences(PAGE))) <= WORDS_MAX
