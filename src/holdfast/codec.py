"""The user's values to JSON and back. JSON only; no name found in stored data is ever imported."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from typing import Any, Generic, TypeVar, cast

import msgspec
import pydantic_core
from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError

from holdfast.domain.errors import (
    DeclarationError,
    InvalidPayload,
    NotJson,
    PayloadTooDeep,
    PayloadTooLarge,
    SerialisationError,
)

T = TypeVar("T")

DEPTH_LIMIT = 64
_INT_LIMIT = 2**63


class Codec(Generic[T]):
    """For one declared type: pydantic model, dataclass, msgspec Struct or plain JSON types."""

    def __init__(self, declared: type[T] | Any, *, limit_bytes: int = 1024 * 1024) -> None:
        self.declared = declared
        self.limit_bytes = limit_bytes
        self._struct = isinstance(declared, type) and issubclass(declared, msgspec.Struct)
        self._adapter: TypeAdapter[Any] | None = None
        if not self._struct:
            try:
                self._adapter = TypeAdapter(declared)
            except Exception as error:
                raise DeclarationError(f"{declared!r} cannot be read from JSON: {error}") from error

    def encode(self, value: T, *, what: str = "payload") -> bytes:
        """Validated, bounded JSON, or an InvalidPayload that names the field."""
        plain = self._plain(value, what)
        check_json(plain, what)
        body = msgspec.json.encode(plain)
        if len(body) > self.limit_bytes:
            raise PayloadTooLarge(what, len(body), self.limit_bytes)
        return body

    def decode(self, body: bytes) -> T:
        try:
            if self._adapter is None:
                return cast(T, msgspec.json.decode(body, type=self.declared))
            return cast(T, self._adapter.validate_json(body))
        except (msgspec.DecodeError, ValidationError, UnicodeDecodeError) as error:
            raise SerialisationError(f"stored value is no {self.declared!r}: {error}") from error

    def _plain(self, value: Any, what: str) -> Any:
        if self._adapter is None:
            return self._plain_struct(value, what)
        check_floats(value, what)
        if self.declared is Any:
            check_keys(value, what)
        scalar = _is_scalar(self.declared)
        try:
            valid = self._adapter.validate_python(value, strict=scalar or None)
            return valid if scalar else self._round_trip(self._adapter, valid)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            raise InvalidPayload(_path(what, first["loc"]), first["msg"]) from error
        except (PydanticSerializationError, RecursionError, ValueError) as error:
            raise NotJson(what, str(error)) from error

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

    def _plain_struct(self, value: Any, what: str) -> Any:
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
    elif isinstance(value, list | tuple):
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


def check_keys(value: Any, what: str) -> None:
    """Where no type says what to make of them again, other keys than text would become text."""
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                raise NotJson(what, f"key {key!r} is not a string")
    if isinstance(value, dict | list | tuple):
        for name, item in _items(value):
            check_keys(item, f"{what}.{name}")


def _items(value: Any) -> Iterable[tuple[Any, Any]]:
    if isinstance(value, dict):
        return value.items()
    if isinstance(value, list | tuple):
        return enumerate(value)
    if isinstance(value, BaseModel):
        return dict(value).items()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return ((f.name, getattr(value, f.name)) for f in dataclasses.fields(value))
    return ()


def _check_text(value: str, what: str) -> None:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise NotJson(what, "text with a lone surrogate") from None


def _is_scalar(declared: Any) -> bool:
    return declared in (str, int, float, bool)


def _path(what: str, loc: tuple[int | str, ...]) -> str:
    return ".".join((what, *map(str, loc)))
