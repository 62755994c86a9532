"""The body of a request is bounded in bytes, in values and in unknown names, and is plain JSON.

A byte costs its sender next to nothing. What it costs here is bounded before it is made: an empty
list of two bytes becomes an object of fifty, and an unknown field becomes an error of hundreds.
"""

from __future__ import annotations

import asyncio
import re
from contextlib import ExitStack
from typing import Any, get_args

import msgspec
from fastapi import Request
from pydantic import BaseModel

from holdfast.domain.errors import NotJson, PayloadTooDeep
from holdfast.encoding.codec import DEPTH_LIMIT
from holdfast.server.auth.access import TooManyRequests
from holdfast.server.http.limits import Quota
from holdfast.server.http.problems import (
    RETRY_SECONDS,
    BodyTooLarge,
    BodyTooWide,
    Overloaded,
    UnsupportedBody,
)

SMALL_BYTES = 64 * 1024  # of a body that is no work to do; the settings bound those that are
SMALL_VALUES = 5_000  # names count as values
LARGE_VALUES = 200_000
UNKNOWN_MAX = 20  # names; so many are refused one by one
LARGE_BYTES = 256 * 1024  # a body above it counts as large while it is in memory
LARGE_ARRIVALS = 96  # at 8 MiB each, 768 MiB
LARGE_ARRIVALS_OF_TOKEN = 32
ASIDE_BYTES = 256 * 1024  # a longer body is read in a thread, and others are answered meanwhile

_TEXT = re.compile(rb'(?s)"[^"\\]*+(?:\\.[^"\\]*+)*+"?')  # the end may be missing: never go back
_MARKS = (b",", b":", b"[", b"{")
_OTHER_JSON = re.compile(r"application/[^/]+\+json")
_ESCAPES = re.compile(  # one after the other: a pair, half of one, or any other
    rb"(?s)\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    rb"|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)"
)


class Arrivals:
    """The places for bodies that are here at once: of each sender, and in all.

    A body that comes slowly holds its connection. A large one holds its memory until the request is
    carried out, which takes long while the store is away.
    """

    def __init__(self, *, connections: int, of_token: int) -> None:
        """Limit bodies to the ``connections`` of the process, and ``of_token`` of one sender."""
        self.of_any = _bodies(connections, of_token, "bodies", "arriving")
        self.of_large = _bodies(
            LARGE_ARRIVALS, LARGE_ARRIVALS_OF_TOKEN, "large bodies", "being worked on"
        )


def _bodies(total: int, of_token: int, what: str, doing: str) -> Quota:
    return Quota(
        total=total,
        of_token=of_token,
        full=lambda limit: Overloaded(f"{limit} {what} are {doing} here already"),
        token_full=lambda limit: TooManyRequests(
            RETRY_SECONDS, f"{limit} {what} of this token are {doing} already"
        ),
    )


class StrictRequest(Request):
    """A request whose body is bounded, plain JSON; nothing is unpacked."""

    limit_bytes = SMALL_BYTES
    large: type[BaseModel] | None = None  # the model of a body that may be large
    arrivals: Arrivals | None = None  # None: as many bodies as there are connections
    sender = ""  # whose body it is: the id of a token, or an address
    places: ExitStack  # that the body takes for as long as it is in memory

    async def body(self) -> bytes:
        if not hasattr(self, "_body"):
            self._body = await self._read_bounded()
        return self._body

    async def _read_bounded(self) -> bytes:
        if self.headers.get("content-encoding", "identity").lower() != "identity":
            raise UnsupportedBody("a compressed body is not unpacked; send it as it is")
        if int(_digits(self.headers.get("content-length"))) > self.limit_bytes:
            raise BodyTooLarge(self.limit_bytes)
        body = await self._read_parts()
        if body and not self._says_json():
            raise UnsupportedBody("send Content-Type: application/json")
        return body

    async def _read_parts(self) -> bytes:
        parts, size = list[bytes](), 0
        with ExitStack() as arriving:
            if self.arrivals is not None:
                arriving.enter_context(self.arrivals.of_any.place(self.sender))
            async for part in self.stream():
                if size <= LARGE_BYTES < size + len(part) and self.arrivals is not None:
                    self.places.enter_context(self.arrivals.of_large.place(self.sender))
                size += len(part)
                if size > self.limit_bytes:
                    raise BodyTooLarge(self.limit_bytes)
                parts.append(part)
        return b"".join(parts)

    def _says_json(self) -> bool:
        """Tell whether the body is sent as JSON: FastAPI would hand on anything else as bytes."""
        kind = self.headers.get("content-type", "").partition(";")[0].strip().lower()
        return kind == "application/json" or _OTHER_JSON.fullmatch(kind) is not None

    async def json(self) -> Any:
        if not hasattr(self, "_read"):
            self._read = await self._value()
        return self._read

    async def _value(self) -> Any:
        body = await self.body()
        if self.large is None:
            return value_of(body, SMALL_VALUES)
        if len(body) <= ASIDE_BYTES:
            value = value_of(body, LARGE_VALUES)
        else:
            value = await asyncio.to_thread(value_of, body, LARGE_VALUES)
        check_names(self.large, value)
        return value


def _digits(text: str | None) -> str:
    return (
        text if text is not None and text.isascii() and text.isdigit() and len(text) < 20 else "0"
    )


def value_of(body: bytes, values_max: int) -> Any:
    if _marks(body) > values_max and _marks(_TEXT.sub(b"", body)) > values_max:
        raise BodyTooWide(f"the body has more than {values_max} values")
    try:
        value = msgspec.json.decode(body)
    except RecursionError:
        raise PayloadTooDeep("body", DEPTH_LIMIT) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise NotJson("body", _describe_error(error, body)) from None
    if b"\\u0000" in body and _has_nul(value):
        raise NotJson("body", "text with a NUL")
    fields = _fields(value)
    if body.count(b":") != fields and _TEXT.sub(b"", body).count(b":") != fields:
        raise NotJson("body", "an object names one of its fields twice")
    return value


def _describe_error(error: Exception, body: bytes) -> str:
    """Return what is wrong with a body. The decoder takes half a character at its end for a body
    that is cut off."""
    message = str(error)
    unsure = "truncated" in message or "surrogate" in message
    if unsure and any(escape[1] for escape in _ESCAPES.finditer(body)):
        return "a lone surrogate: \\ud800 to \\udfff stand in pairs, for one character"
    return message


def _marks(body: bytes) -> int:
    """Return an upper bound of the number of values in a body."""
    return sum(map(body.count, _MARKS))


def _fields(value: Any) -> int:
    """Count the fields of all objects in a value; a field that came twice counts once."""
    count, left = 0, [value]
    while left:
        one = left.pop()
        if type(one) is dict:
            count += len(one)
            left += one.values()
        elif type(one) is list:
            left += one
    return count


def _has_nul(value: Any) -> bool:
    left = [value]
    while left:
        one = left.pop()
        if isinstance(one, str):
            if "\0" in one:
                return True
        elif isinstance(one, dict):
            left += [*one, *one.values()]
        elif isinstance(one, list):
            left += one
    return False


# -- names


def check_names(model: type[BaseModel], value: Any) -> None:
    """Refuse a body with many unknown names; a few are left to the model, which names each."""
    if (count := _unknown(model, value)) > UNKNOWN_MAX:
        raise BodyTooWide(f"the body has {count} fields that are not known")


def _unknown(model: type[BaseModel], value: Any) -> int:
    """Count the unknown names in this object and in those of its lists; free fields are skipped."""
    if type(value) is not dict:
        return 0
    known = {field.alias or name: field.annotation for name, field in model.model_fields.items()}
    count = len(value.keys() - known.keys())
    for name, annotation in known.items():
        given, args = value.get(name), get_args(annotation)
        if type(given) is list and args and _is_model(args[0]):
            count += sum(_unknown(args[0], one) for one in given)
    return count


def _is_model(found: Any) -> bool:
    return isinstance(found, type) and issubclass(found, BaseModel)
