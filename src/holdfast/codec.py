"""The user's values to JSON and back. JSON only; no name found in stored data is ever imported."""

from __future__ import annotations

import dataclasses
import math
from collections import deque
from collections.abc import Iterable, Mapping, Set
from typing import Any, Generic, TypeVar, cast, get_args, get_origin

import msgspec
import pydantic_core
from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic.errors import PydanticInvalidForJsonSchema
from pydantic_core import PydanticSerializationError

from holdfast.domain.error_text import text_of
from holdfast.domain.errors import (
    DeclarationError,
    HoldfastError,
    InvalidPayload,
    NotJson,
    PayloadTooDeep,
    PayloadTooLarge,
    SerialisationError,
)

T = TypeVar("T")

DEPTH_LIMIT = 64
MESSAGE_LIMIT_CHARS = 2_000  # of an error of the type's own code
_INT_LIMIT = 2**63


class Codec(Generic[T]):
    """For one declared type: pydantic model, dataclass, msgspec Struct, plain JSON types, or
    lists, mappings and unions of these; only of Structs and pydantic models not both."""

    def __init__(
        self, declared: type[T] | Any, *, limit_bytes: int = 1024 * 1024, what: str = "payload"
    ) -> None:
        self.declared = declared
        self.limit_bytes = limit_bytes
        self.what = what
        self._untyped = _is_untyped(declared)
        self._scalar = declared in (str, int, float, bool)
        self._as_they_are = _as_they_are(declared)
        self._adapter: TypeAdapter[Any] | None = None  # None: msgspec reads it
        try:
            if _of_structs(declared):
                msgspec.json.schema(declared)  # refuses what msgspec cannot read, deep inside too
            else:
                self._adapter = TypeAdapter(declared)
        except Exception as error:
            raise DeclarationError(f"{declared!r} cannot be read from JSON: {error}") from error

    def encode(self, value: T, *, what: str | None = None) -> bytes:
        """Validated, bounded JSON, or an InvalidPayload that names the field."""
        what = what or self.what
        if type(value) in self._as_they_are:
            _check_scalar(value, what)
            return _bounded(value, what, self.limit_bytes)
        return encode_plain(self._plain(value, what), what, limit_bytes=self.limit_bytes)

    def decode(self, body: bytes) -> T:
        try:
            if self._adapter is None:
                return cast(T, msgspec.json.decode(body, type=self.declared))
            return cast(T, self._adapter.validator.validate_json(body))
        except ValidationError as error:  # its own text has the values, and they may be secret
            first = error.errors(include_url=False, include_input=False)[0]
            said = f"{_path(self.what, first['loc'])}: {first['msg']}"
            raise SerialisationError(f"stored value is no {self.declared!r}: {said}") from error
        except Exception as error:  # the type's own code, too, may raise anything
            said = text_of(error, MESSAGE_LIMIT_CHARS)
            raise SerialisationError(f"stored value is no {self.declared!r}: {said}") from error

    def schema(self) -> dict[str, Any]:
        """Its JSON schema."""
        if self._adapter is None:
            return msgspec.json.schema(self.declared)
        try:
            return self._adapter.json_schema()
        except PydanticInvalidForJsonSchema:
            return {}

    def _plain(self, value: Any, what: str) -> Any:
        if self._untyped:  # nothing would say what to make of it again
            check_json(value, what)
        try:
            if self._adapter is None:
                return self._plain_of_structs(value, what)
            return self._plain_typed(self._adapter, value, what)
        except HoldfastError:
            raise
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            raise InvalidPayload(_path(what, first["loc"]), first["msg"]) from error
        except (PydanticSerializationError, RecursionError, ValueError) as error:
            raise NotJson(what, text_of(error, MESSAGE_LIMIT_CHARS)) from error
        except Exception as error:  # of the type's own code
            said = f"{type(error).__name__}: {text_of(error, MESSAGE_LIMIT_CHARS)}"
            raise InvalidPayload(what, said) from error

    def _plain_typed(self, adapter: TypeAdapter[Any], value: Any, what: str) -> Any:
        valid = adapter.validate_python(value, strict=self._scalar or None)
        check_floats(valid, what)
        return valid if self._scalar else self._round_trip(adapter, valid)

    def _round_trip(self, adapter: TypeAdapter[Any], valid: Any) -> Any:
        """As JSON that can be read again: pydantic takes an instance of a model as it is, however
        wrong its fields are, and reads by alias what it has written by name."""
        plain = _dump(adapter, valid, by_alias=True)
        if self.declared is Any:
            return plain
        try:
            adapter.validate_json(pydantic_core.to_json(plain))
        except ValidationError:
            plain = _dump(adapter, valid, by_alias=False)
            adapter.validate_json(pydantic_core.to_json(plain))
        return plain

    def _plain_of_structs(self, value: Any, what: str) -> Any:
        try:
            plain = msgspec.to_builtins(value, str_keys=True)
            check_json(plain, what)
            msgspec.convert(plain, self.declared, str_keys=True)
        except (msgspec.ValidationError, TypeError) as error:
            raise InvalidPayload(what, str(error)) from error
        except RecursionError as error:
            raise PayloadTooDeep(what, DEPTH_LIMIT) from error
        return plain


def _dump(adapter: TypeAdapter[Any], valid: Any, *, by_alias: bool) -> Any:
    return adapter.dump_python(
        valid, mode="json", by_alias=by_alias, round_trip=True, warnings="none"
    )


def encode_plain(plain: Any, what: str, *, limit_bytes: int) -> bytes:
    check_json(plain, what)
    return _bounded(plain, what, limit_bytes)


def _bounded(plain: Any, what: str, limit_bytes: int) -> bytes:
    try:
        body = msgspec.json.encode(plain)
    except TypeError as error:  # a subclass of str or float
        raise NotJson(what, str(error)) from error
    if len(body) > limit_bytes:
        raise PayloadTooLarge(what, len(body), limit_bytes)
    return body


def check_json(value: Any, what: str, depth: int = 0) -> None:
    """Plain JSON only: no NaN, no lone surrogates, nothing too large or too deep for a reader."""
    if depth > DEPTH_LIMIT:
        raise PayloadTooDeep(what.partition(".")[0], DEPTH_LIMIT)
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise NotJson(what, f"key {key!r} is not a string")
            _check_text(key, what)
            check_json(item, f"{what}.{key}", depth + 1)
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            check_json(item, f"{what}.{index}", depth + 1)
    else:
        _check_scalar(value, what)


def _check_scalar(value: Any, what: str) -> None:
    if isinstance(value, str):
        _check_text(value, what)
    elif isinstance(value, bool) or value is None:
        return
    elif isinstance(value, int):
        if not -_INT_LIMIT <= value < _INT_LIMIT:
            raise NotJson(what, "an integer of more than 64 bits")
    elif not isinstance(value, float):
        raise NotJson(what, f"{type(value).__name__} is not JSON")
    elif not math.isfinite(value):
        raise NotJson(what, f"{value} is not JSON")


def check_floats(value: Any, what: str, depth: int = 0) -> None:
    """pydantic turns NaN into null when it writes JSON, so look before it does."""
    if depth > DEPTH_LIMIT:
        raise PayloadTooDeep(what.partition(".")[0], DEPTH_LIMIT)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise NotJson(what, f"{value} is not JSON")
        return
    for name, item in _items(value):
        check_floats(item, f"{what}.{name}", depth + 1)


def _items(value: Any) -> Iterable[tuple[Any, Any]]:
    if isinstance(value, Mapping):
        return value.items()
    if isinstance(value, list | tuple | Set | deque):
        return enumerate(value)
    if isinstance(value, BaseModel):
        return dict(value).items()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return ((f.name, getattr(value, f.name)) for f in dataclasses.fields(value))
    return ()


def _check_text(value: str, what: str) -> None:
    if value.isascii():
        return
    try:
        value.encode()
    except UnicodeEncodeError:
        raise NotJson(what, "text with a lone surrogate") from None


def _as_they_are(declared: Any) -> frozenset[type]:
    """The types whose values are valid and plain already: validating them changes nothing."""
    plain = (str, int, float, bool, type(None))
    return frozenset(
        plain if declared in (Any, object) else (one for one in plain if one is declared)
    )


def _of_structs(declared: Any) -> bool:
    """Also of generic ones, and under another name."""
    declared = getattr(declared, "__supertype__", declared)
    if _is_struct(declared) or _is_struct(get_origin(declared)):
        return True
    return any(map(_of_structs, get_args(declared)))


def _is_struct(declared: Any) -> bool:
    return isinstance(declared, type) and issubclass(declared, msgspec.Struct)


def _is_untyped(declared: Any) -> bool:
    if declared in (Any, object, dict, list):
        return True
    match get_origin(declared), get_args(declared):
        case (origin, (item,)) if origin is list:
            return _is_untyped(item)
        case (origin, (key, item)) if origin is dict:
            return key is str and _is_untyped(item)
    return False


def _path(what: str, loc: tuple[int | str, ...]) -> str:
    return ".".join((what, *map(str, loc)))
