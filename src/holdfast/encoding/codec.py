"""User values are encoded as JSON and decoded again; no name in stored data is ever imported."""

from __future__ import annotations

import dataclasses
import math
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Set
from typing import Any, Generic, Literal, NoReturn, TypeVar, cast, get_args, get_origin
from weakref import WeakKeyDictionary

import msgspec
from pydantic import BaseModel, Secret, TypeAdapter, ValidationError
from pydantic.errors import PydanticInvalidForJsonSchema
from pydantic_core import PydanticSerializationError
from pydantic_core.core_schema import ErrorType

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
from holdfast.domain.redaction import SECRET_MARK
from holdfast.encoding.comparison import Comparison
from holdfast.encoding.secret_values import (
    ASTERISKS,
    SECRETS,
    mark_secrets,
    mentions_secrets,
    replace_marks,
)
from holdfast.encoding.simple_types import Trust, has_floats, holds_any, trust_in, trust_in_structs

T = TypeVar("T")

DEPTH_LIMIT = 64
MESSAGE_LIMIT_CHARS = 2_000  # of an error of the type's own code
_INT_LIMIT = 2**63
_REPLACEMENT = "\ufffd".encode()  # what pydantic writes for a lone surrogate in a key
_PYDANTIC_ERRORS = frozenset(get_args(ErrorType)) - {"value_error", "assertion_error"}


# What was found of classes of Structs, which are often declared again: with each stage that
# returns one, with each app of a process.
_known_structs = WeakKeyDictionary[Any, tuple[Trust, bool]]()


def _comparison_of(declared: Any) -> tuple[Trust, bool]:
    """Return what of these Structs has to be compared, and whether leniently."""
    is_class = isinstance(declared, msgspec.StructMeta)
    if is_class and declared in _known_structs:
        return _known_structs[declared]
    msgspec.json.schema(declared)  # refuses what msgspec cannot read, deep inside too
    found = trust_in_structs(declared), not holds_any(declared)
    if is_class:
        _known_structs[declared] = found
    return found


class Codec(Generic[T]):
    """A codec for one declared type.

    The type is a pydantic model, a dataclass, a msgspec Struct, a plain JSON type, or a list,
    mapping or union of these; a union holds Structs or pydantic models, not both. A value that
    would not be read back as it is now is refused: see `comparison`.
    """

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
            self._recognise()
        except Exception as error:
            raise DeclarationError(f"{declared!r} cannot be read from JSON: {error}") from error

    def _recognise(self) -> None:
        """Set the reader of the type, and the comparison that its values need."""
        self._has_floats, self._has_secrets, lenient = True, False, False
        if _of_structs(self.declared):
            self._trust, lenient = _comparison_of(self.declared)
        else:
            self._adapter = TypeAdapter(self.declared)
            schema = self._adapter.core_schema
            self._trust, self._has_floats = trust_in(schema), has_floats(schema)
            self._has_secrets = mentions_secrets(schema)
        self._comparison = Comparison(lenient=lenient)

    def encode(self, value: T, *, what: str | None = None) -> bytes:
        """Return validated, bounded JSON; raise an InvalidPayload that names the field."""
        what = what or self.what
        if type(value) in self._as_they_are:
            _check_scalar(value, what)
            return _encode_bounded(value, what, self.limit_bytes)
        try:
            if self._adapter is None:
                return self._of_structs(value, what)
            return self._of_models(self._adapter, value, what)
        except Exception as error:
            self._refuse(error, what)

    def encode_marked(self, plain: Any) -> bytes:
        """Return the bytes of a JSON value whose secrets may be under the marks that are stored."""
        return self.encode(replace_marks(plain))

    def decode(self, body: bytes) -> T:
        try:
            value: T = self._read(body)
            return value
        except ValidationError as error:  # its own text has the values, and they may be secret
            at = _path(self.what, _first(error)["loc"])
            raise self._unreadable(f"{at}: {self._message(error)}") from None
        except SerialisationError:
            raise
        except Exception as error:  # the type's own code, too, may raise anything
            if self._has_secrets:
                raise self._unreadable(type(error).__name__) from None
            raise self._unreadable(text_of(error, MESSAGE_LIMIT_CHARS)) from error

    def _unreadable(self, reason: str) -> SerialisationError:
        declared, name = self.declared, repr(self.declared)
        if isinstance(declared, type):
            name = f"{declared.__module__}.{declared.__qualname__}".removeprefix("builtins.")
        return SerialisationError(f"the stored value is not of type {name}: {reason}")

    def check_copy(self, value: Any, body: bytes, *, what: str) -> None:
        """Refuse a value that this type would read out of the body as another."""
        try:
            valid = value if self._adapter is None else self._adapter.validate_python(value)
            self._compare(valid, body, what, trust=Trust.ALL)
        except Exception as error:
            self._refuse(error, what)

    def schema(self) -> dict[str, Any]:
        """Return the JSON schema of the type."""
        if self._adapter is None:
            return msgspec.json.schema(self.declared)
        try:
            return self._adapter.json_schema()
        except PydanticInvalidForJsonSchema:
            return {}

    def _refuse(self, error: Exception, what: str) -> NoReturn:
        """Raise as an InvalidPayload what pydantic, msgspec or the type's own code has raised."""
        if isinstance(error, HoldfastError):
            raise error
        if isinstance(error, ValidationError):  # its own text has the values
            raise InvalidPayload(_path(what, _first(error)["loc"]), self._message(error)) from None
        if isinstance(error, msgspec.ValidationError):
            raise InvalidPayload(what, str(error)) from error
        if isinstance(error, PydanticSerializationError | RecursionError | ValueError):
            if self._has_secrets:
                raise NotJson(what, "it cannot be written as JSON") from None
            raise NotJson(what, text_of(error, MESSAGE_LIMIT_CHARS)) from error
        if self._has_secrets:
            raise InvalidPayload(what, type(error).__name__) from None
        reason = f"{type(error).__name__}: {text_of(error, MESSAGE_LIMIT_CHARS)}"
        raise InvalidPayload(what, reason) from error

    def _message(self, error: ValidationError) -> str:
        """Return the message of a validator, without the values of a type that has secrets."""
        first = _first(error)
        if self._has_secrets and first["type"] not in _PYDANTIC_ERRORS:
            return f"refused by a validator of its own ({first['type']})"
        return cast(str, first["msg"])

    def _read(self, body: bytes) -> Any:
        if self._adapter is None:
            return msgspec.json.decode(body, type=self.declared)
        if not self._has_secrets:
            return self._adapter.validator.validate_json(body)
        plain = msgspec.json.decode(body)
        value = self._adapter.validator.validate_json(msgspec.json.encode(replace_marks(plain)))
        if ASTERISKS.encode() in body and _is_lost(value, plain):
            raise self._unreadable(
                "in the place of a secret it has only asterisks, as an older version stored them; "
                "submit it again"
            )
        return value

    def _of_models(self, adapter: TypeAdapter[Any], value: Any, what: str) -> bytes:
        valid = adapter.validate_python(value, strict=self._scalar or None)
        if self._untyped or self._scalar:  # nothing would say what to make of it again
            return encode_plain(valid, what, limit_bytes=self.limit_bytes)
        if self._has_floats:
            check_floats(valid, what)
        try:
            return self._round_trip(adapter, valid, what, by_alias=True)
        except (ValidationError, InvalidPayload) as error:
            if self._trust is not Trust.ALL:
                raise
            try:
                return self._round_trip(adapter, valid, what, by_alias=False)
            except (ValidationError, InvalidPayload):
                raise error from None

    def _round_trip(
        self, adapter: TypeAdapter[Any], valid: Any, what: str, *, by_alias: bool
    ) -> bytes:
        """Return JSON that was read again and compared.

        Pydantic takes an instance of a model as it is, however wrong its fields are, and may read
        by one name what it has written by another.
        """
        plain = _dump(adapter, valid, by_alias=by_alias)
        if self._has_secrets:
            kept = _dump(adapter, valid, by_alias=by_alias, mode="python")
            plain, count = mark_secrets(plain, kept, what)
            if count != sum(1 for _ in _secrets_in(valid)):
                raise InvalidPayload(
                    what, "a serializer of its own writes a secret; give it when_used='json'"
                )
        body = encode_plain(plain, what, limit_bytes=self.limit_bytes)
        self._compare(valid, body, what, trust=self._trust)
        return body

    def _compare(self, valid: Any, body: bytes, what: str, *, trust: Trust) -> None:
        copy = self._read(body)
        is_trusted = trust is Trust.NOTHING or (trust is Trust.FIELDS and type(valid) is dict)
        if is_trusted and _REPLACEMENT not in body:
            return
        if (found := self._comparison.difference(valid, copy)) is not None:
            kind = NotJson if found.not_json else InvalidPayload
            raise kind(_path(what, found.path), found.reason)

    def _of_structs(self, value: Any, what: str) -> bytes:
        try:
            plain = msgspec.to_builtins(value, str_keys=True)
            check_json(plain, what, tuples=True)
            body = _encode_bounded(plain, what, self.limit_bytes)
            self._compare(value, body, what, trust=self._trust)
        except TypeError as error:
            raise InvalidPayload(what, str(error)) from error
        except RecursionError as error:
            raise PayloadTooDeep(what, DEPTH_LIMIT) from error
        return body


class UntypedCodec(Codec[Any]):
    """Reads plain JSON where the declared type is not known; secrets stay hidden in it."""

    def __init__(self) -> None:
        super().__init__(Any)

    def decode(self, body: bytes) -> Any:
        plain = super().decode(body)
        return replace_marks(plain, Secret) if SECRET_MARK.encode() in body else plain


def _dump(
    adapter: TypeAdapter[Any],
    valid: Any,
    *,
    by_alias: bool,
    mode: Literal["json", "python"] = "json",
) -> Any:
    return adapter.dump_python(
        valid, mode=mode, by_alias=by_alias, round_trip=True, warnings="none"
    )


def _first(error: ValidationError) -> Any:
    return error.errors(include_url=False, include_input=False)[0]


def _is_lost(value: Any, plain: Any) -> bool:
    """Return whether a secret has only the asterisks that older versions stored."""
    return b'{"%s":"%s"}' % (SECRET_MARK.encode(), ASTERISKS.encode()) not in (
        msgspec.json.encode(plain)
    ) and any(ASTERISKS in str(secret.get_secret_value()) for secret in _secrets_in(value))


def _secrets_in(value: Any) -> Iterator[Any]:
    if isinstance(value, SECRETS):
        yield value
        return
    for _, item in _items(value):
        yield from _secrets_in(item)


def encode_plain(plain: Any, what: str, *, limit_bytes: int) -> bytes:
    check_json(plain, what)
    return _encode_bounded(plain, what, limit_bytes)


def _encode_bounded(plain: Any, what: str, limit_bytes: int) -> bytes:
    body = msgspec.json.encode(plain)
    if len(body) > limit_bytes:
        raise PayloadTooLarge(what, len(body), limit_bytes)
    return body


def check_json(value: Any, what: str, depth: int = 0, *, tuples: bool = False) -> None:
    """Refuse a value that is not plain JSON.

    Refused are NaN, lone surrogates, what is too large or too deep for a reader, and subclasses and
    tuples, which would be read back as something else (``tuples`` allows those).
    """
    if depth > DEPTH_LIMIT:
        raise PayloadTooDeep(what.partition(".")[0], DEPTH_LIMIT)
    kind = type(value)
    if kind is dict:
        for key, item in value.items():
            if type(key) is not str:
                named = f"key {key!r}" if isinstance(key, str | int | float) else "a key"
                raise NotJson(what, f"{named} is not a string")
            _check_text(key, what)
            check_json(item, f"{what}.{key}", depth + 1, tuples=tuples)
    elif kind is list or (tuples and kind is tuple):
        for index, item in enumerate(value):
            check_json(item, f"{what}.{index}", depth + 1, tuples=tuples)
    else:
        _check_scalar(value, what)


def _check_scalar(value: Any, what: str) -> None:
    kind = type(value)
    if kind is str:
        _check_text(value, what)
    elif kind is bool or value is None:
        return
    elif kind is int:
        if not -_INT_LIMIT <= value < _INT_LIMIT:
            raise NotJson(what, "an integer of more than 64 bits")
    elif kind is not float:
        raise NotJson(what, _why_not_json(value))
    elif not math.isfinite(value):
        raise NotJson(what, f"{value} is not JSON")


def _why_not_json(value: Any) -> str:
    for plain in (dict, list, tuple, str, int, float):
        if isinstance(value, plain):
            copy = "list" if plain is tuple else plain.__name__
            return f"a {type(value).__name__} would be read back as a {copy}: write {copy}(…)"
    return f"{type(value).__name__} is not JSON"


def check_floats(value: Any, what: str, depth: int = 0) -> None:
    """Refuse NaN and infinity, because pydantic writes them as null."""
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
    """Return the types whose values are valid and plain: validating them changes nothing."""
    plain = (str, int, float, bool, type(None))
    return frozenset(
        plain if declared in (Any, object) else (one for one in plain if one is declared)
    )


def _of_structs(declared: Any) -> bool:
    """Return whether a type is a Struct or holds one, generic or under a new name."""
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
