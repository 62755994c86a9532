"""A value that was made from a view: what the view hid is put back where it was, and only there."""

from typing import Any

import pytest

from holdfast.domain.errors import InvalidInput
from holdfast.domain.hidden_values import keep_hidden
from holdfast.domain.redaction import SECRET_MARK, USUAL

A, B = {"user": "A", "password": "pa"}, {"user": "B", "password": "pb"}
A_SHOWN, B_SHOWN = A | {"password": "***"}, B | {"password": "***"}


def kept(given: Any, stored: Any) -> Any:
    return keep_hidden(given, stored, USUAL)


def test_another_value_in_the_place_of_a_marked_secret_is_marked() -> None:
    stored = {"card": {SECRET_MARK: "old"}, "pin": {SECRET_MARK: "0"}, "n": {SECRET_MARK: "x"}}
    given = {"card": "new", "pin": "***", "n": None}
    assert kept(given, stored) == {
        "card": {SECRET_MARK: "new"},
        "pin": {SECRET_MARK: "0"},
        "n": None,
    }
    assert kept({"card": {SECRET_MARK: "new"}}, stored) == {"card": {SECRET_MARK: "new"}}
    assert kept(["a", "***"], [{SECRET_MARK: "x"}, {SECRET_MARK: "y"}]) == [
        {SECRET_MARK: "a"},
        {SECRET_MARK: "y"},
    ]


STORED = {
    "users": [A, B],
    "url": "postgres://u:pw@h1/db",
    "run": "login --password hunter2 --host old",
    "args": ["--password", "x", "--token", "y"],
    "title": "*** sale ***",
    "lots": [{"title": "*** sale ***", "n": 1}],
}


def test_a_view_sent_back_is_what_is_stored() -> None:
    shown = USUAL.value(STORED)
    assert "hunter2" not in str(shown)
    assert kept(shown, STORED) == STORED


@pytest.mark.parametrize(
    "change",
    [
        {"users": [B_SHOWN, A_SHOWN]},
        {"users": [A_SHOWN | {"user": "B"}, B_SHOWN]},
        {"users": [A_SHOWN]},
        {"users": [A_SHOWN, B_SHOWN, A_SHOWN]},
        {"users": [{"in": [A_SHOWN]}, B_SHOWN]},
        {"url": "postgres://u:***@h2/db"},
        {"run": "login --password *** --host new"},
        {"args": ["--token", "***", "--password", "***"]},
        {"new": "***"},
        {"new": "a *** b"},
        {"***": 1},
    ],
)
def test_what_says_hidden_in_another_place_or_text_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match="stands for a secret in a view"):
        kept(USUAL.value(STORED) | change, STORED)


@pytest.mark.parametrize(
    "change",
    [
        {"users": [B | {"password": "other"}, A]},
        {"users": []},
        {"url": "postgres://u:new@h2/db"},
        {"lots": [{"title": "*** sale ***", "n": 2}]},
        {"args": ["--password", "z", "--token", "w"]},
    ],
)
def test_what_says_its_secrets_is_stored_as_given(change: dict[str, Any]) -> None:
    assert kept(USUAL.value(STORED) | change, STORED) == STORED | change


def test_of_a_list_the_items_that_are_as_shown_keep_their_secrets() -> None:
    new = {"user": "C", "password": "pc"}
    assert kept([A_SHOWN, new], [A, B]) == [A, new]
