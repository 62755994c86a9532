"""docs/internals/requirements.md: each requirement once, and whatever the page names is there."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from holdfast.cli.root import cli
from tests.support.source_tree import PACKAGE, ROOT, tree_of

PAGE = ROOT / "docs" / "internals" / "requirements.md"
NUMBER_OF = {"P": 16, "C": 6, "S": 12, "T": 8, "Q": 15}
IDS = [f"{part}{n}" for part, number in NUMBER_OF.items() for n in range(1, number + 1)]

# The documents, section by section, as their users number them.
SECTIONS = {
    "Persistence": "1 2 3.1 3.2 3.3 3.4 3.5 4 5 6.1 6.2 6.3 6.4 6.5 6.6 7.1 7.2 7.3 7.4 8 9 10 11",
    "Checkpoint mechanism": "1 2 3 4 5 6 7 8 9 10",
    "State machine": ("1.1 1.2 2.1 2.2 3.1 3.2 4.1 4.2 4.3 5.1 5.2 6.1 6.2 6.3 7.1 7.2 8 9 10 A B"),
    "Trigger store": "1 2.1 2.2 3.1 4.1 4.2 5.1 5.2 5.3 5.4 6.1 6.2 7 8.1 8.2 8.3 8.4 9.1 9.2 10",
    "Realtime queue": "1 2 3 4 5",
}
UNNUMBERED = {
    "Background": 1, "Architecture": 1, "TaskEnvelope": 1, "Modules": 1, "Success path": 3,
    "Failure": 7, "GIVEN / WHEN / THEN": 1, "What next": 1, "Note": 1,
}  # fmt: skip

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
HEAD = re.compile(r"(?:\d[\d.]*|[AB])(?:, \d[\d.]*)*(?= |$)")  # 1.1, 1.2 The problems

TEST = re.compile(r"`((?:tests|contract)/[\w/]+\.py(?:::\w+)+)`")
FILE = re.compile(r"`((?:[a-z_]+/)*[a-z_]+\.(?:py|lua))`")
FOLDER = re.compile(r"`((?:deploy|examples|server|stores)/[a-z]+)`")
LINK = re.compile(r"\]\(([^)]+)\)")
COMMAND = re.compile(r"`(?:\w+=\S+ )*holdfast ([^`]+)`")
ROUTE = re.compile(r"`((?:GET|POST) /[^`?]+)`")
ID = re.compile(r"\b[PCSTQ]\d{1,2}\b")


def text(part: str) -> str:
    """Return the text under this heading, up to the next heading of its level."""
    page = PAGE.read_text(encoding="utf-8")
    level = re.search(rf"^(#+) {re.escape(part)}$", page, re.MULTILINE)
    assert level is not None, part
    rest = page[level.end() :]
    return re.split(rf"^#{{1,{len(level[1])}}} ", rest, maxsplit=1, flags=re.MULTILINE)[0]


def rows(part: str) -> list[list[str]]:
    lines = [line for line in text(part).splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in lines]
    return [row for row in cells if row[0] not in {"id", "section"}]


BY_ID = {row[0]: row for row in rows("By id")}


@cache
def names_in(path: Path) -> frozenset[str]:
    """Functions and classes, the methods of a class with its name before them."""
    found = set[str]()
    for node in tree_of(path).body:
        if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            inner = (one for one in node.body if isinstance(one, FUNCTIONS))
            found |= {f"{node.name}::{one.name}" for one in inner}
    return frozenset(found)


def place_of(path: str) -> Path:
    return (PACKAGE / "testing" if path.startswith("contract/") else ROOT) / path


def assert_is_a_test(one: str) -> None:
    path, _, name = one.partition("::")
    assert place_of(path).is_file(), one
    assert name in names_in(place_of(path)), one
    assert name.rpartition("::")[2].startswith(("test_", "Test")), one


def test_each_requirement_has_one_row_in_order() -> None:
    assert [row[0] for row in rows("By id")] == IDS


@pytest.mark.parametrize("requirement", IDS)
def test_each_requirement_names_tests_that_exist(requirement: str) -> None:
    _, says, where, shown = BY_ID[requirement]
    assert says
    assert where
    named = TEST.findall(shown)
    assert named
    for one in named:
        assert_is_a_test(one)
    assert TEST.sub("", shown).strip(", ") == "", "nothing else stands there"


def test_every_test_that_is_named_instead_of_a_command_exists() -> None:
    named = TEST.findall(text("By document"))
    assert named
    for one in named:
        assert_is_a_test(one)


def test_every_file_and_folder_it_names_exists() -> None:
    page = PAGE.read_text(encoding="utf-8")
    files, folders = set(FILE.findall(page)), set(FOLDER.findall(page))
    assert len(files) > 30
    for name in files | folders:
        places = (PACKAGE / name, ROOT / name, PACKAGE / "testing" / name)
        assert any(place.exists() for place in places), name


def test_every_page_and_heading_it_links_to_exists() -> None:
    for link in LINK.findall(PAGE.read_text(encoding="utf-8")):
        path, _, anchor = link.partition("#")
        target = PAGE.parent / path if path else PAGE
        assert target.exists(), link
        if anchor:
            headings = re.findall(r"^#+ (.+)$", target.read_text(encoding="utf-8"), re.MULTILINE)
            slugs = {re.sub(r"[^\w -]", "", head).lower().replace(" ", "-") for head in headings}
            assert anchor in slugs, link


@pytest.mark.parametrize("line", sorted(set(COMMAND.findall(PAGE.read_text(encoding="utf-8")))))
def test_every_command_it_names_exists_with_its_options(line: str) -> None:
    command: object = get_command(cli)
    words = line.split()
    for word in words:
        if not isinstance(command, TyperGroup) or word.startswith("-"):
            break
        assert word in command.commands, line
        command = command.commands[word]
    assert isinstance(command, TyperGroup | TyperCommand)
    known = {name for parameter in command.params for name in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= known, line


def test_every_route_it_names_is_in_the_api() -> None:
    api = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    named = set(ROUTE.findall(PAGE.read_text(encoding="utf-8")))
    assert len(named) > 10
    for route in named:
        assert f"`{route}`" in api, route


def test_each_section_of_the_documents_has_its_row() -> None:
    for document, numbers in SECTIONS.items():
        firsts = [row[0] for row in rows(document)]
        heads = [head[0] for first in firsts if (head := HEAD.match(first))]
        found = [number for head in heads for number in head.split(", ")]
        assert list(dict.fromkeys(found)) == numbers.split(), document
    queue = [row[0] for row in rows("Realtime queue")]
    for word, number in UNNUMBERED.items():
        assert sum(one.startswith(word) for one in queue) == number, word


def test_each_row_of_a_document_leads_to_a_requirement_and_each_is_led_to() -> None:
    led = set[str]()
    for document in SECTIONS:
        for row in rows(document):
            ids = ID.findall(row[-1])
            assert ids, row
            assert set(ids) <= set(IDS), row
            led |= set(ids)
    assert set(IDS) == led


@pytest.mark.parametrize("mark", ["**Not met:**", "**Otherwise:**"])
def test_what_is_not_met_or_met_otherwise_is_said_in_both_parts(mark: str) -> None:
    marked = {name for name, row in BY_ID.items() if mark in "".join(row)}
    told = set[str]()
    for document in SECTIONS:
        for row in rows(document):
            if mark in "".join(row):
                told |= set(ID.findall(row[-1]))
    assert marked
    assert marked <= told
    assert "PLACEHOLDER" not in PAGE.read_text(encoding="utf-8")
