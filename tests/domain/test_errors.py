"""The tree of errors that the docstring draws is the tree that there is."""

import re
from pathlib import Path

import pytest

from holdfast.domain import errors
from holdfast.domain.error_text import qualified_name
from holdfast.domain.errors import HoldfastError

BRANCH = re.compile(r"^((?:[│ ] {3})*)(?:[├└]── )(\w+)")


def drawn() -> dict[str, str]:
    """Each class and its parent, as drawn."""
    lines = (errors.__doc__ or "").splitlines()
    path = [next(line for line in lines if line == "HoldfastError")]
    parents: dict[str, str] = {}
    for line in lines:
        if found := BRANCH.match(line):
            depth = len(found[1]) // 4 + 1
            path[depth:] = [found[2]]
            parents[found[2]] = path[depth - 1]
    return parents


def real() -> dict[str, str]:
    found: dict[str, str] = {}
    todo: list[type[HoldfastError]] = [HoldfastError]
    while todo:
        parent = todo.pop()
        for child in parent.__subclasses__():
            if child.__module__ == errors.__name__:
                found[child.__name__] = parent.__name__
                todo.append(child)
    return found


def test_the_drawn_tree_is_the_real_one() -> None:
    assert drawn() == real()


def test_the_drawing_lists_children_in_the_order_of_the_file() -> None:
    source = Path(errors.__file__).read_text(encoding="utf-8")
    written = re.findall(r"^class (\w+)\(", source, re.MULTILINE)
    assert list(drawn()) == written[1:]


@pytest.mark.parametrize("name", ["HoldfastError", *drawn()])
def test_every_error_has_a_code_of_its_own(name: str) -> None:
    found = getattr(errors, name)
    assert "code" in vars(found)
    assert re.fullmatch(r"[a-z]+(-[a-z]+)*", found.code)


def test_no_two_errors_share_a_code() -> None:
    codes = [getattr(errors, name).code for name in real()]
    assert len(codes) == len(set(codes))


def test_timeouts_and_lookups_are_what_python_calls_them() -> None:
    assert issubclass(errors.ResultTimeout, TimeoutError)
    assert issubclass(errors.StageTimeout, TimeoutError)
    assert issubclass(errors.NoResult, LookupError)


@pytest.mark.parametrize("name", ["HoldfastError", *drawn()])
def test_every_error_says_by_which_name_it_is_stored(name: str) -> None:
    found = getattr(errors, name)
    assert qualified_name(found) == f"holdfast.{vars(found)['stored_name']}"


def test_no_two_errors_share_a_stored_name() -> None:
    names = [getattr(errors, name).stored_name for name in real()]
    assert len(names) == len(set(names))


def test_an_error_of_ours_keeps_its_stored_name_when_its_class_is_renamed() -> None:
    class Renamed(errors.Refused, stored_name="NoPlace"):
        __module__ = "holdfast.elsewhere"

    assert qualified_name(Renamed) == "holdfast.NoPlace"


def test_a_users_error_is_stored_under_its_own_name() -> None:
    class CardDeclined(errors.Permanent):
        __module__ = "shop.billing"
        __qualname__ = "CardDeclined"

    assert qualified_name(CardDeclined) == "shop.billing.CardDeclined"
