"""The schemas of what callers send, and the types of its fields, in camel case outside."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any

import msgspec
from fastapi import Path, Response
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    StringConstraints,
)
from pydantic.alias_generators import to_camel
from pydantic.json_schema import SkipJsonSchema

from holdfast.domain import names

PAGE_MAX = 200
PAGE = 50
REASON_MAX_CHARS = 2_000
AT_MOST = "The largest number of entries on the page"
OVER_NEWER = "True if it may run over newer work of its tenant"
FROM_BEFORE = "The cursor of the page before"


def _number(value: object) -> object:
    """Refuse text and truth values: a number in a body is a number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("Input should be a number")
    return value


Flag = StrictBool
NUMBER = BeforeValidator(_number)  # behind the bounds, or the document does not have them

# A pattern that every reader of the document understands cannot tell a letter of any script from a
# mark that is not seen: it names what of ASCII is good, and the validator does the rest.
NAME_FORMAT: dict[str, Any] = {"format": "name"}
_OTHERS = r"[^\x00-\xa0]"
GIVEN = rf"^([A-Za-z0-9]|{_OTHERS})([A-Za-z0-9._:@+=/-]|{_OTHERS}){{0,199}}$"
DECLARED = rf"^([A-Za-z]|{_OTHERS})([A-Za-z0-9._-]|{_OTHERS}){{0,199}}$"
GIVEN_NAME = rf"^([A-Za-z0-9]|{_OTHERS})([A-Za-z0-9._-]|{_OTHERS}){{0,99}}$"


def check_name(kind: str) -> AfterValidator:
    """Return a validator that refuses a bad name of that kind, or returns it in the form NFC."""
    return AfterValidator(partial(names.check, kind))


def name_of(example: str) -> Any:
    return Field(examples=[example], json_schema_extra=NAME_FORMAT)


Tenant = Annotated[str, StringConstraints(pattern=GIVEN), check_name("tenant"), name_of("t-001")]
Key = Annotated[str, StringConstraints(pattern=GIVEN), check_name("key"), name_of("upgrade-7")]
TypeName = Annotated[
    str, StringConstraints(pattern=DECLARED), check_name("task type"), name_of("tenant.upgrade")
]
QueueName = Annotated[
    str, StringConstraints(pattern=DECLARED), check_name("queue"), name_of("default")
]
PlanId = Annotated[
    str, StringConstraints(pattern=GIVEN_NAME), check_name("plan"), name_of("upgrade-7")
]
TriggerId = Annotated[
    str, StringConstraints(pattern=GIVEN_NAME), check_name("trigger"), name_of("nightly")
]
TraceId = Annotated[str, StringConstraints(pattern=r"^[\x21-\x7e]{1,200}$")]
Fingerprint = Annotated[
    str, StringConstraints(pattern="^[0-9a-f]{12}$"), Field(examples=["4f0c9a7d12ab"])
]
Reason = Annotated[str, StringConstraints(max_length=REASON_MAX_CHARS)]
Offset = Annotated[str, StringConstraints(pattern="^[0-9]{1,12}$")]
Cursor = Annotated[str, StringConstraints(pattern=rf"^([\x20-\x7e]|{_OTHERS}){{1,500}}$")]
IdCursor = Annotated[str, StringConstraints(pattern=r"^[\x21-\x7e]{1,200}$")]  # the last one's
TriggerCursor = Annotated[str, StringConstraints(pattern=rf"^([\x21-\x7e]|{_OTHERS}){{1,200}}$")]
TimeText = Annotated[
    str,
    StringConstraints(max_length=40),
    Field(examples=["2026-01-31T12:00:00Z"], json_schema_extra={"format": "date-time"}),
]
DurationText = Annotated[
    str,
    StringConstraints(
        pattern=r"^([0-9]{1,9}(\.[0-9]{1,6})?"
        r"|([0-9]{1,4}d)?([0-9]{1,5}h)?([0-9]{1,7}m)?([0-9]{1,9}(\.[0-9]{1,6})?s)?)$",
        min_length=1,
    ),
]
EventId = Annotated[str, StringConstraints(pattern=r"^[0-9]{1,15}(\.[0-9]{1,15})?$")]
Absent = SkipJsonSchema[None]  # of a query or header: it may be left out, and there is no null


class Sent(BaseModel):
    """A body or query that a caller sends; an unknown field is refused."""

    model_config = ConfigDict(
        extra="forbid", alias_generator=to_camel, validate_by_name=False, validate_by_alias=True
    )


class Reasoned(Sent):
    """A command with the reason for it, which the audit chain keeps."""

    reason: Reason = ""


def id_in_path(description: str) -> Any:
    """Return a path parameter with an id that the engine has made."""
    return Path(
        min_length=1, max_length=200, description=description, examples=["0199a0b2c3d47e5f"]
    )


def optional(description: str) -> Any:
    """Return a field that may be left out."""
    return Field(default=None, description=description)


def flag(description: str) -> Any:
    """Return a field that is false if it is left out."""
    return Field(default=False, description=description)


def any_of(values_max: int) -> Any:
    """Return the field of a query that lists the values to look for."""
    return Field(
        default=[],
        max_length=values_max,
        description="The values to look for; any value if none is given",
    )


def body_example(*, one_of: Sequence[dict[str, Any]] = (), **body: Any) -> ConfigDict:
    """Return an example of a body; ``one_of`` is what the schemas of its fields cannot express.

    The reason in it is also the example of the field, which bodies inherit from `Reasoned`.
    """

    def extend(schema: dict[str, Any]) -> None:
        schema["examples"] = [body]
        if one_of:
            schema["oneOf"] = list(one_of)
        if "reason" in body:
            schema["properties"]["reason"]["examples"] = [body["reason"]]

    return ConfigDict(json_schema_extra=extend)


class PageQuery(Sent):
    """A query for one page; by default the cursor is an id."""

    limit: Annotated[int, Field(ge=1, le=PAGE_MAX)] = Field(default=PAGE, description=AT_MOST)
    cursor: IdCursor | Absent = optional(FROM_BEFORE)


def answer_of(view: type, description: str, example: Any) -> dict[str, Any]:
    """Return an answer beside the usual one, for the OpenAPI document."""
    content = {"application/json": {"example": example}}
    return {"model": view, "description": description, "content": content}


def answer(status: int, body: Any) -> Response:
    """Return a response without a check by a model: the status decides which model it is, or the
    route is too busy for a second check."""
    return Response(msgspec.json.encode(body), status, media_type="application/json")
