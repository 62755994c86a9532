"""Restores the secrets that a view hid, in a value that a person has made from the view."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.domain.errors import InvalidInput
from holdfast.domain.redaction import SECRET_MARK, Redactor
from holdfast.domain.secret_patterns import HIDDEN

_MARK = f"{HIDDEN!r} stands for a secret in a view"


def keep_hidden(given: Any, stored: Any, hide: Redactor) -> Any:
    """Return a JSON value that was made from a view of ``stored``, with its secrets restored.

    A new value in the place of a marked secret is marked, too. Raise InvalidInput where a text has
    the mark of a secret and is not the text shown in that place, or is in another item of a list.
    """
    return _restore(given, hide.value(stored), stored, in_list=False)


def _restore(given: Any, shown: Any, stored: Any, *, in_list: bool) -> Any:
    if isinstance(stored, Mapping) and SECRET_MARK in stored:
        return _restore_marked(given, shown, stored)
    if isinstance(given, dict):
        return _restore_fields(given, shown, stored, in_list=in_list)
    if isinstance(given, list):
        return _restore_items(given, shown, stored, in_list=in_list)
    if type(given) is type(shown) and given == shown:
        return stored
    _check_text(given)
    return given


def _restore_marked(given: Any, shown: Any, stored: Mapping[str, Any]) -> Any:
    if given is None:
        return None  # no secret is there any more
    if isinstance(given, str) and given == shown:
        return stored
    if _has_mark(given):
        raise InvalidInput(f"{_MARK}: write the value to be stored")
    return given if isinstance(given, Mapping) and SECRET_MARK in given else {SECRET_MARK: given}


def _restore_fields(given: dict[str, Any], shown: Any, stored: Any, *, in_list: bool) -> Any:
    known, kept = _by_shown_name(shown, stored), dict[str, Any]()
    for name, item in given.items():
        if name not in known:
            _check_text(name)
        own, *pair = known.get(name, (name, None, None))
        kept[own] = _restore(item, *pair, in_list=in_list)
    return kept


def _restore_items(given: list[Any], shown: Any, stored: Any, *, in_list: bool) -> list[Any]:
    """Restore the items of a list; ``in_list``: the list is inside an item that was compared."""
    if not isinstance(shown, list) or len(shown) != len(given):
        return [_restore(item, None, None, in_list=True) for item in given]
    for index, item in enumerate(given):
        hides = shown[index] != stored[index] and _has_mark(item)
        moved = item != shown[index] or _is_of_other_option(index, given, shown)
        if not in_list and hides and moved:
            raise InvalidInput(
                f"{_MARK}: item {index} of a list is not the one that was shown there, so its "
                "secret is not known: leave the item as it was shown, or write its secrets"
            )
    beside = zip(given, shown, stored, strict=True)
    return [_restore(*triple, in_list=True) for triple in beside]


def _is_of_other_option(index: int, given: list[Any], shown: list[Any]) -> bool:
    """Return whether a hidden item followed an option, and now follows another item."""
    before = shown[index - 1] if index else None
    is_value = isinstance(before, str) and before.startswith("--") and given[index] == HIDDEN
    return is_value and given[index - 1] != before


def _by_shown_name(shown: Any, stored: Any) -> dict[str, tuple[str, Any, Any]]:
    """Return the fields of an object by the names that a view shows for them."""
    if not isinstance(shown, dict) or not isinstance(stored, dict) or len(shown) != len(stored):
        return {}
    pairs = zip(shown.items(), stored.items(), strict=True)
    return {name: (own, item, kept) for (name, item), (own, kept) in pairs}


def _check_text(given: Any) -> None:
    if isinstance(given, str) and HIDDEN in given:
        raise InvalidInput(f"{_MARK}: write the whole text to be stored")


def _has_mark(given: Any) -> bool:
    if isinstance(given, str):
        return HIDDEN in given
    if isinstance(given, dict):
        return any(HIDDEN in name or _has_mark(item) for name, item in given.items())
    return isinstance(given, list) and any(map(_has_mark, given))
