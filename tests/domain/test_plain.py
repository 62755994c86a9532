import json

import pytest

from holdfast.domain.plain import plain, plain_json, plain_line


@pytest.mark.parametrize(
    ("stored", "shown"),
    [
        ("a plain word", "a plain word"),
        ("Grüße, 世界", "Grüße, 世界"),
        ("two\nlines", "two\nlines"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("\x9b31m", "\\x9b31m"),
        ("over\rwritten", "over\\rwritten"),
        ("\u202eevil", "\\u202eevil"),
        ("half \ud800", "half \\ud800"),
    ],
)
def test_what_could_steer_a_terminal_is_shown_and_not_obeyed(stored: str, shown: str) -> None:
    assert plain(stored) == shown


def test_a_line_stays_one_line() -> None:
    assert plain_line("one\r\ntwo") == "one\\ntwo"


def test_json_keeps_its_meaning_when_control_marks_are_escaped() -> None:
    written = plain_json('{"a": "\x9b\u202e"}')
    assert written.isascii()
    assert json.loads(written) == {"a": "\x9b\u202e"}
