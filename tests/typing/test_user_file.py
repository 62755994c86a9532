"""mypy in strict mode sees payload and result types in a user's code, and wrong ones are errors."""

import re
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.integrations.test_fastapi import example
from tests.support.programs import said_by_mypy
from tests.support.source_tree import ROOT

USER_FILE = Path(__file__).with_name("user_file.py")
EXAMPLES = ("examples/llm/app.py", "examples/rollout/app.py")
SHOP = "shop.py"  # that of docs/service.md

SAID = re.compile(r"user_file\.py:(?P<line>\d+): (?P<kind>error|note): (?P<text>.*)")
REVEALED = re.compile(r'Revealed type is "(?P<type>.*)"')


@cache
def all_said() -> str:
    """One run for all programs: most of its time is ours."""
    with TemporaryDirectory() as beside:
        shop = Path(beside, SHOP)
        shop.write_text(example())
        programs = (USER_FILE, *(ROOT / name for name in EXAMPLES), shop)
        return said_by_mypy(*programs, beside=Path(beside))


def said() -> tuple[tuple[int, str, str], ...]:
    text = all_said()
    found = [SAID.search(line) for line in text.splitlines()]
    lines = tuple((int(m["line"]), m["kind"], m["text"]) for m in found if m is not None)
    assert lines, text
    return lines


def marked(pattern: str) -> dict[int, str]:
    lines = enumerate(USER_FILE.read_text().splitlines(), start=1)
    found = ((number, re.search(pattern, text)) for number, text in lines)
    return {number: match.group(1) for number, match in found if match is not None}


def short(name: str) -> str:
    """Without the modules: `builtins.str` is `str`."""
    return re.sub(r"\b(?:\w+\.)+(\w+)", r"\1", name)


def test_types_are_revealed_as_the_user_wrote_them() -> None:
    revealed = {
        line: short(match["type"]) for line, _, text in said() if (match := REVEALED.search(text))
    }
    assert revealed == marked(r"# → (.*)$")
    assert len(revealed) > 15


def test_wrong_types_are_errors_and_right_ones_are_not() -> None:
    errors = {line for line, kind, _ in said() if kind == "error"}
    assert errors == set(marked(r"(# ✗)$"))
    assert len(errors) > 8


@pytest.mark.parametrize("name", [*EXAMPLES, SHOP])
def test_an_example_is_fully_typed(name: str) -> None:
    assert [line for line in all_said().splitlines() if name in line] == []
