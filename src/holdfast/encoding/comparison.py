"""The first difference between a value and its copy that was read back from JSON.

Classes are compared field by field, also those without an equality of their own.
"""

from __future__ import annotations

import dataclasses
import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from datetime import datetime, time
from decimal import Decimal
from typing import Any, NamedTuple

import msgspec
from pydantic import BaseModel

from holdfast.encoding.secret_values import SECRETS

DEPTH_LIMIT = 100
UNMATCHED_LIMIT = 100  # elements of a set that are searched one by one

_MISSING = object()
_EXACT = frozenset((int, str, bool, bytes, type(None)))
_JSON = frozenset((dict, list, str, int, float, bool, type(None)))
_ORDERED = (list, tuple, deque)
_SEQUENCES = (list, tuple, set, frozenset)


class Difference(NamedTuple):
    path: tuple[str, ...]
    reason: str
    not_json: bool = False

    def below(self, name: object) -> Difference:
        return Difference((str(name), *self.path), self.reason, self.not_json)


class Comparison:
    """A comparison of values with their copies.

    With ``lenient`` the values were not validated before, so a coercion by the annotation is no
    difference: a JSON object where the copy is a class, a tuple where it is a list.
    """

    def __init__(self, *, lenient: bool = False) -> None:
        self._lenient = lenient
        self._by_kind: tuple[tuple[Any, Callable[[Any, Any, int], Difference | None]], ...] = (
            (Mapping, self._of_mappings),
            (_ORDERED, self._of_sequences),
            (AbstractSet, self._of_sets),
            (BaseModel, self._of_models),
            (msgspec.Struct, self._of_structs),
            (SECRETS, self._of_secrets),
        )

    def difference(self, value: Any, copy: Any, depth: int = 0) -> Difference | None:
        kind = type(value)
        if kind is not type(copy):
            return self._compare_types(value, copy, depth)
        if kind in _EXACT or value is copy:
            return None if value is copy or value == copy else _CHANGED
        if kind is float:
            return _of_floats(value, copy)
        if depth > DEPTH_LIMIT:
            return Difference((), "nested too deep to be compared")
        for kinds, compare in self._by_kind:
            if isinstance(value, kinds):
                return compare(value, copy, depth)
        return self._of_objects(value, copy, depth)

    def _of_mappings(
        self, value: Mapping[Any, Any], copy: Mapping[Any, Any], depth: int
    ) -> Difference | None:
        """Compare the items in pairs: JSON keeps their order."""
        for (key, item), (key_again, again) in zip(value.items(), copy.items(), strict=False):
            if self.difference(key, key_again, depth + 1) is not None:
                return Difference((), f"the key {type(key).__name__} is not read back as it was")
            if (found := self.difference(item, again, depth + 1)) is not None:
                return found.below(key)
        return _of_lengths(value, copy)

    def _of_sequences(self, value: Any, copy: Any, depth: int) -> Difference | None:
        for index, (item, again) in enumerate(zip(value, copy, strict=False)):
            if (found := self.difference(item, again, depth + 1)) is not None:
                return found.below(index)
        if isinstance(value, deque) and value.maxlen != copy.maxlen:
            return Difference((), "the maxlen of a deque is not stored")
        return _of_lengths(value, copy)

    def _of_sets(self, value: Any, copy: Any, depth: int) -> Difference | None:
        """Compare sets by equality; members without it, one by one by their fields."""
        there = {item: item for item in copy}
        alone = []
        for item in value:
            again = there.pop(item, _MISSING)
            if again is _MISSING:
                alone.append(item)
            elif (found := self.difference(item, again, depth + 1)) is not None:
                return found
        left = list(there.values())
        if len(alone) != len(left) or len(left) > UNMATCHED_LIMIT:
            return _CHANGED
        for item in alone:
            like = (
                n for n, one in enumerate(left) if self.difference(item, one, depth + 1) is None
            )
            if (number := next(like, None)) is None:
                return _CHANGED
            left.pop(number)
        return None

    def _of_objects(self, value: Any, copy: Any, depth: int) -> Difference | None:
        if dataclasses.is_dataclass(value):
            names = [field.name for field in dataclasses.fields(value)]
            return self._of_fields(names, value, copy, depth)
        if _has_equality(type(value)):
            return None if _are_equal(value, copy) else _CHANGED
        names = list(_attributes(value))
        if not names and not hasattr(value, "__dict__"):
            return Difference(
                (), f"{_describe(value)} has neither fields nor an equality to compare"
            )
        return self._of_fields(dict.fromkeys((*names, *_attributes(copy))), value, copy, depth)

    def _of_structs(
        self, value: msgspec.Struct, copy: msgspec.Struct, depth: int
    ) -> Difference | None:
        return self._of_fields(value.__struct_fields__, value, copy, depth)

    def _of_secrets(self, value: Any, copy: Any, depth: int) -> Difference | None:
        return self.difference(value.get_secret_value(), copy.get_secret_value(), depth + 1)

    def _of_models(self, value: BaseModel, copy: BaseModel, depth: int) -> Difference | None:
        """Compare fields, extra fields and private attributes; not which fields were set."""
        fields = type(value).model_fields
        found = self._of_fields(fields, value, copy, depth)
        if found is None and (value.__pydantic_extra__ or copy.__pydantic_extra__):
            extra, again = value.__pydantic_extra__ or {}, copy.__pydantic_extra__ or {}
            found = self._of_mappings(extra, again, depth)
        if found is not None:
            return found
        private, again = value.__pydantic_private__ or {}, copy.__pydantic_private__ or {}
        for name in dict.fromkeys((*private, *again)):
            item, other = private.get(name, _MISSING), again.get(name, _MISSING)
            if _is_a_thing(item, other):
                continue
            if (found := self.difference(item, other, depth + 1)) is not None:
                return found.below(name)
        return None

    def _of_fields(
        self, names: Iterable[str], value: Any, copy: Any, depth: int
    ) -> Difference | None:
        for name in names:
            item, again = getattr(value, name, _MISSING), getattr(copy, name, _MISSING)
            if (found := self.difference(item, again, depth + 1)) is not None:
                return found.below(name)
        return None

    def _compare_types(self, value: Any, copy: Any, depth: int) -> Difference | None:
        """Return the difference of two types, unless the annotation has asked for it."""
        if self._lenient and _is_coercion(value, copy):
            return self._of_parts(value, copy, depth)
        if isinstance(value, float) and not math.isfinite(value):
            return Difference((), f"{value} is not JSON", not_json=True)
        if value is _MISSING or copy is _MISSING:
            return Difference((), "is missing" if value is _MISSING else "is not stored")
        return Difference((), f"{_describe(value)} is read back as {_describe(copy)}")

    def _of_parts(self, value: Any, copy: Any, depth: int) -> Difference | None:
        if isinstance(value, _ORDERED) and isinstance(copy, _ORDERED):
            return self._of_sequences(value, copy, depth)
        if type(value) is dict and isinstance(copy, msgspec.Struct):
            names = zip(copy.__struct_encode_fields__, copy.__struct_fields__, strict=True)
            return self._of_named(names, value, copy, depth)
        if type(value) is dict and dataclasses.is_dataclass(copy):
            fields = ((field.name, field.name) for field in dataclasses.fields(copy))
            return self._of_named(fields, value, copy, depth)
        return None

    def _of_named(
        self, names: Iterable[tuple[str, str]], value: dict[str, Any], copy: Any, depth: int
    ) -> Difference | None:
        for given, name in names:
            if given in value:
                found = self.difference(value[given], getattr(copy, name), depth + 1)
                if found is not None:
                    return found.below(name)
        return None


_CHANGED = Difference((), "is read back with another value")


def _is_coercion(value: Any, copy: Any) -> bool:
    """Return whether two values differ by coercion only: JSON for a class, one sequence for
    another, or a subclass of a scalar for that scalar."""
    if isinstance(value, _SEQUENCES) and isinstance(copy, _SEQUENCES):
        return True
    return type(value) in _JSON or (type(copy) in _EXACT and isinstance(value, type(copy)))


def _are_equal(value: Any, copy: Any) -> bool:
    """Return whether two values are equal by their type's own equality and by what that ignores."""
    if isinstance(value, datetime | time):
        return _same_moment(value, copy)
    if isinstance(value, Decimal):
        return bool(value.as_tuple() == copy.as_tuple())
    return bool(value == copy)


def _of_floats(value: float, copy: float) -> Difference | None:
    if not math.isfinite(value):
        return Difference((), f"{value} is not JSON", not_json=True)
    same = value == copy and (value != 0 or math.copysign(1, value) == math.copysign(1, copy))
    return None if same else _CHANGED


def _of_lengths(value: Any, copy: Any) -> Difference | None:
    if len(value) == len(copy):
        return None
    return Difference((), f"{len(value)} items are read back as {len(copy)}")


def _same_moment(value: Any, copy: Any) -> bool:
    """Return whether two times are the same; the offset counts, the zone's name is not in JSON."""
    if value.utcoffset() is None and value.fold != copy.fold:
        return False
    return bool(value == copy) and value.utcoffset() == copy.utcoffset()


def _is_a_thing(item: Any, other: Any) -> bool:
    """Return whether a private attribute is a lock, a client or the like, which nothing could
    store."""
    kind = type(item)
    return kind is type(other) and not _has_equality(kind) and not any(_attributes(item))


def _has_equality(kind: Any) -> bool:
    """Return whether a type has more equality than identity."""
    return kind.__eq__ is not object.__eq__


def _attributes(value: Any) -> Iterable[str]:
    """Return the names of an object's attributes, in its dict and its slots."""
    yield from getattr(value, "__dict__", ())
    for base in type(value).__mro__:
        slots = base.__dict__.get("__slots__", ())
        yield from (slots,) if isinstance(slots, str) else slots


def _describe(value: Any) -> str:
    return f"a {type(value).__qualname__}" if value is not None else "null"
