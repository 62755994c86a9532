"""mypy in strict mode sees payload and result types in a user's code, and wrong ones are errors."""

import re
from functools import cache
from pathlib import Path

from tests.programs import said_by_mypy

USER_FILE = Path(__file__).with_name("user_file.py")

SAID = re.compile(r"user_file\.py:(?P<line>\d+): (?P<kind>error|note): (?P<text>.*)")
REVEALED = re.compile(r'Revealed type is "(?P<type>.*)"')


@cache
def said() -> tuple[tuple[int, str, str], ...]:
    text = said_by_mypy(USER_FILE, "--explicit-package-bases", cache="user")
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
