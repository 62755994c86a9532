"""Payloads are checked at the door: validated, bounded, JSON and nothing else."""

import enum
import re
import uuid
from collections import deque
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Generic, NewType, TypeVar

import msgspec
import pytest
from pydantic import BaseModel, Field, field_validator

from holdfast import Context, Holdfast
from holdfast.domain.errors import SerialisationError
from holdfast.encoding.codec import DEPTH_LIMIT, Codec
from holdfast.engine.declare import AsyncTask
from holdfast.errors import (
    DeclarationError,
    InvalidInput,
    InvalidPayload,
    NotJson,
    PayloadTooDeep,
    PayloadTooLarge,
)
from holdfast.testing.plugin import MakeEngine

T = TypeVar("T")


class Model(BaseModel):
    version: int = Field(ge=1)
    tags: list[str] = []


@dataclass
class Data:
    version: int
    when: datetime | None = None
    tags: list[str] = field(default_factory=list)


class Struct(msgspec.Struct):
    version: int
    tags: list[str] = []


class Page(msgspec.Struct, Generic[T]):
    items: list[T]


new_type: Any = NewType  # mypy falls over the real one of a Struct
Renamed = new_type("Renamed", Struct)


class Colour(enum.Enum):
    RED = "red"


def task_taking(app: Holdfast, declared: Any) -> AsyncTask[Any, Any]:
    async def take(ctx: Context, payload: Any) -> Any:
        taken.append(payload)
        return payload

    taken: list[Any] = []
    take.__annotations__["payload"] = declared
    take.__annotations__["return"] = declared
    made: AsyncTask[Any, Any] = app.task("take")(take)
    made.taken = taken  # type: ignore[attr-defined]
    return made


@pytest.mark.parametrize(
    ("declared", "value"),
    [
        (Model, Model(version=1, tags=["a"])),
        (Data, Data(version=1, when=datetime(2026, 1, 2, 3, tzinfo=UTC))),
        (Struct, Struct(version=1, tags=["a"])),
        (str, "text ü 漢 😀"),
        (int, 7),
        (int, 2**63 - 1),
        (int, -(2**63)),
        (float, 1.5),
        (bool, True),
        (None, None),
        (list[int], [1, 2]),
        (dict[str, list[int]], {"a": [1]}),
        (tuple[int, str], (1, "a")),
        (int | None, None),
        (list[Model], [Model(version=2)]),
        (list[Struct], [Struct(version=2, tags=["a"])]),
        (dict[str, Struct | None], {"a": Struct(version=2), "b": None}),
        (tuple[Struct, int], (Struct(version=2), 7)),
        (Page[Struct], Page(items=[Struct(version=2)])),
        (Renamed, Struct(version=2)),
        (datetime, datetime(2026, 1, 2, 3, tzinfo=UTC)),
        (uuid.UUID, uuid.UUID(int=7)),
        (Decimal, Decimal("1.10")),
        (Colour, Colour.RED),
        (Any, {"any": ["thing", 1, 2.5, None, True]}),
    ],
    ids=repr,
)
async def test_every_kind_of_payload_reaches_the_function_as_it_was(
    app: Holdfast, holdfast_engine: MakeEngine, declared: Any, value: Any
) -> None:
    take = task_taking(app, declared)
    engine = holdfast_engine(app)
    handle = await take.submit(value)
    await engine.drain()
    assert take.taken == [value]  # type: ignore[attr-defined]
    assert await handle.result() == value
    assert type(await handle.result()) is type(value)


@pytest.mark.parametrize("declared", [list[Struct | Model], tuple[Struct, Model]], ids=repr)
def test_structs_and_models_do_not_mix(app: Holdfast, declared: Any) -> None:
    with pytest.raises(DeclarationError, match="cannot be read from JSON"):
        task_taking(app, declared)


@pytest.mark.parametrize(
    ("declared", "value", "names"),
    [
        (Model, {"version": 0}, "payload.version"),
        (Model, {}, "payload.version"),
        (Model, {"version": 1, "tags": [1]}, "payload.tags.0"),
        (Model, None, "payload"),
        (Data, {"version": "x"}, "payload.version"),
        (Struct, {"version": "x"}, "version"),
        (Struct, Struct(version="x"), "version"),  # type: ignore[arg-type]
        (Struct, 7, "payload"),
        (list[Struct], [{"version": 1}, {"version": "x"}], "[1].version"),
        (str, 7, "payload"),
        (int, "7", "payload"),
        (int, True, "payload"),
        (bool, 1, "payload"),
        (None, "something", "payload"),
        (dict[str, int], {"a": "x"}, "payload.a"),
        (list[int], "123", "payload"),
    ],
    ids=repr,
)
async def test_a_wrong_payload_is_refused_and_the_field_is_named(
    app: Holdfast, holdfast_engine: MakeEngine, declared: Any, value: Any, names: str
) -> None:
    take = task_taking(app, declared)
    holdfast_engine(app)
    with pytest.raises(InvalidPayload, match=re.escape(names)):
        await take.submit(value)
    assert not (await app.store.views.stats()).by_status, "nothing was written"


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (float("nan"), NotJson),
        (float("inf"), NotJson),
        ({"a": [1.0, float("-inf")]}, NotJson),
        ("\ud800", NotJson),
        ({"\udfff": 1}, NotJson),
        (["ok", "\ud800"], NotJson),
        (2**63, NotJson),
        (2**70, NotJson),
        (-(2**63) - 1, NotJson),
        ({1: "a"}, NotJson),
        (object(), NotJson),
        (lambda: None, NotJson),
        ({1}, NotJson),
        ({"a": frozenset((float("nan"),))}, NotJson),
        (deque([1]), NotJson),
        ((n for n in range(3)), NotJson),
        (datetime(2026, 1, 2, tzinfo=UTC), NotJson),
        ([Decimal("NaN")], NotJson),
        (b"bytes", NotJson),
        (deep(DEPTH_LIMIT + 1), PayloadTooDeep),
        (deep(5_000), PayloadTooDeep),
        ("x" * (1024 * 1024), PayloadTooLarge),
        (["x" * 1000] * 1100, PayloadTooLarge),
    ],
)
async def test_what_is_no_json_or_too_much_of_it_is_refused(
    app: Holdfast, holdfast_engine: MakeEngine, value: Any, error: type[InvalidPayload]
) -> None:
    take = task_taking(app, Any)
    holdfast_engine(app)
    with pytest.raises(error):
        await take.submit(value)


@pytest.mark.parametrize("declared", [dict, list, dict[str, Any], list[Any], list[dict[str, Any]]])
def test_inside_an_untyped_container_nothing_is_altered_either(declared: Any) -> None:
    for value in ({"a": {1}}, [{"a": {1}}]):
        with pytest.raises(InvalidPayload):
            Codec(declared).encode(value)


@pytest.mark.parametrize("declared", [set[float], frozenset[float], deque[float], list[float]])
def test_no_nan_hides_in_a_typed_container(declared: Any) -> None:
    for values in ([float("nan")], {float("inf")}, (n for n in [float("nan")])):
        with pytest.raises(NotJson):
            Codec(declared).encode(values)
    assert Codec(declared).decode(Codec(declared).encode([1.5])) is not None


class Picky(BaseModel):
    name: str

    @field_validator("name")
    @classmethod
    def _known(cls, name: str) -> str:
        return {"ann": name}[name]


@dataclass
class PickyData:
    name: str

    def __post_init__(self) -> None:
        {"ann": 1}[self.name]


class PickyStruct(msgspec.Struct):
    name: str

    def __post_init__(self) -> None:
        {"ann": 1}[self.name]


@pytest.mark.parametrize("kind", [Picky, PickyData, PickyStruct])
def test_whatever_the_users_type_raises_is_told_as_ours_with_its_cause(kind: Any) -> None:
    codec = Codec[Any](kind)
    assert codec.decode(codec.encode(kind(name="ann"))) == kind(name="ann")
    with pytest.raises(InvalidPayload, match="KeyError") as refused:
        codec.encode({"name": "bob"})
    with pytest.raises(SerialisationError) as unread:
        codec.decode(b'{"name": "bob"}')
    assert isinstance(refused.value.__cause__, KeyError)
    assert isinstance(unread.value.__cause__, KeyError)


class Text(str):
    __slots__ = ()


class Number(float):
    __slots__ = ()


@pytest.mark.parametrize("value", [float("nan"), "\ud800", 2**70])
@pytest.mark.parametrize("kind", [Data, Struct])
async def test_what_is_no_json_is_found_inside_models_too(
    app: Holdfast, holdfast_engine: MakeEngine, kind: Any, value: Any
) -> None:
    take = task_taking(app, kind)
    holdfast_engine(app)
    with pytest.raises(InvalidPayload):
        await take.submit(kind(version=1, tags=[value]))
    with pytest.raises(InvalidPayload):
        await take.submit(kind(version=value))


async def test_a_value_that_holds_itself_is_refused(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    take = task_taking(app, Any)
    holdfast_engine(app)
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(InvalidPayload):
        await take.submit(loop)


async def test_just_small_and_shallow_enough_is_accepted(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    take = task_taking(app, Any)
    holdfast_engine(app)
    await take.submit(deep(DEPTH_LIMIT))
    await take.submit("x" * (1024 * 1024 - 2))


@pytest.mark.parametrize(
    "user", [object(), float("nan"), {"a": {1, 2}}, "\ud800", {"a": Text("a")}, [Number(1)]]
)
async def test_the_user_is_plain_json_too(
    app: Holdfast, holdfast_engine: MakeEngine, user: Any
) -> None:
    take = task_taking(app, Any)
    holdfast_engine(app)
    with pytest.raises(NotJson):
        await take.submit(1, user=user)
    assert not (await app.store.views.stats()).by_status, "nothing was written"


async def test_the_user_is_bounded_and_written_as_it_was_at_the_submit(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    take = task_taking(app, Any)
    holdfast_engine(app)
    with pytest.raises(PayloadTooLarge, match="user"):
        await take.submit(1, user="x" * 16 * 1024)
    assert not (await app.store.views.stats()).by_status, "nothing was written"
    user = {"name": "ann"}
    handle = await take.submit(1, user=user)
    user["name"] = "bob"
    assert (await handle.envelope()).context.user == {"name": "ann"}


@pytest.mark.parametrize("trace_id", [5, b"x", "\ud800", "x" * 201, "x" * 10_000_000])
async def test_a_trace_id_that_would_spoil_the_record_is_refused(
    app: Holdfast, holdfast_engine: MakeEngine, trace_id: Any
) -> None:
    take = task_taking(app, Any)
    holdfast_engine(app)
    with pytest.raises(InvalidInput, match="trace_id"):
        await take.submit(1, trace_id=trace_id)
    assert not (await app.store.views.stats()).by_status, "nothing was written"
    await take.submit(1, trace_id="x" * 200)


def test_a_stored_value_of_another_type_is_a_serialisation_error() -> None:
    for declared in (Model, Data, Struct, int):
        for body in (b"{", b'{"version": "x"}', b"\xff", b""):
            with pytest.raises(SerialisationError):
                Codec(declared).decode(body)


def test_errors_carry_their_facts() -> None:
    with pytest.raises(PayloadTooLarge) as large:
        Codec[str](str, limit_bytes=10).encode("x" * 20)
    assert (large.value.size_bytes, large.value.limit_bytes) == (22, 10)
    with pytest.raises(PayloadTooDeep) as too_deep:
        Codec[Any](Any).encode(deep(100))
    assert too_deep.value.limit == DEPTH_LIMIT


class Aliased(BaseModel):
    user_id: int = Field(alias="userId")


class WrittenOtherwise(BaseModel):
    user_id: int = Field(serialization_alias="uid")


class Keyed(msgspec.Struct):
    by_number: dict[int, str]


@pytest.mark.parametrize(
    "value",
    [Aliased(userId=7), WrittenOtherwise(user_id=7), Keyed(by_number={1: "a"})],
    ids=lambda value: type(value).__name__,
)
async def test_what_is_written_can_be_read_again(
    app: Holdfast, holdfast_engine: MakeEngine, value: Any
) -> None:
    take = task_taking(app, type(value))
    engine = holdfast_engine(app)
    handle = await take.submit(value)
    await engine.drain()
    assert await handle.result() == value


async def test_an_instance_of_a_model_with_wrong_fields_is_refused(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    take = task_taking(app, Model)
    holdfast_engine(app)
    with pytest.raises(InvalidPayload, match=r"payload\.version"):
        await take.submit(Model.model_construct(version="x"))
    changed = Model(version=1)
    changed.version = 0
    with pytest.raises(InvalidPayload, match=r"payload\.version"):
        await take.submit(changed)
