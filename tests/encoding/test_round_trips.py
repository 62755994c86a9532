"""What goes in comes out as it was, or is refused with the field's name: never something else."""

from collections import Counter, OrderedDict, defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from pydantic import BaseModel, SecretStr

from holdfast import Context, Holdfast
from holdfast.domain.task.task import FailureKind
from holdfast.encoding.codec import Codec
from holdfast.encoding.simple_types import Trust
from holdfast.errors import InvalidPayload, NotJson, TaskFailed
from holdfast.testing.plugin import MakeEngine
from tests.support.payload_kinds import (
    CHANGED,
    SAME,
    Aliased,
    Basket,
    Batch,
    Box,
    Charge,
    Derived,
    Free,
    Get,
    Hidden,
    Incremented,
    Item,
    Level,
    Names,
    Node,
    Open,
    Order,
    Paid,
    Point,
    Private,
    Refund,
    Rounded,
    StrictItem,
    StrictSpecial,
    Stripped,
    Tagged,
    TaggedRefund,
    Wrapped,
)
from tests.support.runtime.helpers import suspend, take_payload


@pytest.mark.parametrize(("declared", "value"), SAME)
async def test_a_payload_and_a_result_arrive_as_they_were(
    app: Holdfast, holdfast_engine: MakeEngine, declared: Any, value: Any
) -> None:
    handle, taken = await take_payload(app, holdfast_engine, declared, value)
    for arrived in (*taken, await handle.result()):
        assert type(arrived) is type(value)
        assert seen(arrived) == seen(value)


def seen(value: Any) -> Any:
    """All that a person would see of it, with the sign of a zero and the types."""
    if isinstance(value, Paid):
        return vars(value.money)
    if isinstance(value, Private):
        return value.a, value._seen
    if isinstance(value, datetime):
        return value.isoformat()
    return {repr(item) for item in value} if isinstance(value, set | frozenset) else repr(value)


@pytest.mark.parametrize(("declared", "value", "named"), CHANGED)
def test_a_value_that_would_come_out_as_another_is_refused(
    declared: Any, value: Any, named: str
) -> None:
    with pytest.raises(InvalidPayload) as refused:
        Codec[Any](declared).encode(value)
    assert refused.value.field == named


@pytest.mark.parametrize(("declared", "value", "named"), CHANGED[:16])
async def test_nothing_is_written_of_a_refused_payload_and_a_refused_result_suspends(
    app: Holdfast, holdfast_engine: MakeEngine, declared: Any, value: Any, named: str
) -> None:
    async def take(ctx: Context, payload: Any) -> None: ...

    async def give(ctx: Context) -> Any:
        return value

    take.__annotations__["payload"] = declared
    give.__annotations__["return"] = declared
    taking, giving = app.task("take")(take), app.task("give")(give)
    engine = holdfast_engine(app)
    with pytest.raises(InvalidPayload, match="read back"):
        await taking.submit(value)
    assert not (await app.store.views.stats()).by_status
    handle = await giving.submit()
    await engine.drain()
    with pytest.raises(TaskFailed):
        await handle.result()
    failure = (await handle.info()).failure
    assert failure is not None
    assert failure.kind is FailureKind.SERIALISATION
    assert named.replace("payload", "result of give") in failure.message


def test_private_attributes_that_were_set_are_not_lost_in_silence() -> None:
    value = Private(a=1)
    value._seen = 5
    with pytest.raises(InvalidPayload) as refused:
        Codec[Any](Private).encode(value)
    assert refused.value.field == "payload._seen"


@pytest.mark.parametrize(
    ("declared", "given", "arrives"),
    [
        (Charge, {"amount": "7"}, Charge(amount=7)),
        (Charge, {"amount": 7, "unknown": 1}, Charge(amount=7)),
        (list[int], (1, "2"), [1, 2]),
        (tuple[int, ...], [1], (1,)),
        (datetime, "2026-01-02T03:04:05Z", datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)),
        (Stripped, "  a ", "a"),
        (Item, {"sku": "a", "price": 1}, Item("a", 1.0)),
        (Item, Item("a", 1), Item("a", 1.0)),
        (Batch, {"allOfThem": [{"type": "Get", "key": "a"}]}, Batch([Get("a")])),
        (Batch, Batch((Get("a"),)), Batch([Get("a")])),  # type: ignore[arg-type]
        (Basket, {"items": [{"sku": "a"}, Item("b")]}, Basket([Item("a"), Item("b")])),
        (Tagged, {"kind": "refund", "amount": 1}, TaggedRefund(amount=1)),
        (Level, 1, Level.LOW),
    ],
)
def test_what_the_annotation_asks_for_is_no_difference(
    declared: Any, given: Any, arrives: Any
) -> None:
    codec = Codec[Any](declared)
    assert codec.decode(codec.encode(given)) == arrives


def test_an_unknown_field_of_a_subclass_is_refused_where_they_are_forbidden() -> None:
    with pytest.raises(InvalidPayload, match="extra"):
        Codec[Any](StrictItem).encode(StrictSpecial("a"))


@pytest.mark.parametrize(
    "value",
    [
        (1, 2),
        {"a": (1, 2)},
        [Level.LOW],
        OrderedDict(a=1),
        {"a": defaultdict(int)},
        Counter("aa"),
        {Level.LOW: 1},
        Point(1, 2),
        [True, {"a": [{1}]}],
    ],
)
async def test_untyped_values_are_exactly_json_or_refused(
    app: Holdfast, holdfast_engine: MakeEngine, value: Any
) -> None:
    with pytest.raises(NotJson):
        Codec[Any](Any).encode(value)

    @app.task("keep")
    async def keep(ctx: Context) -> None:
        ctx.data["kept"] = value

    failure = await suspend(holdfast_engine(app), keep)
    assert failure.kind is FailureKind.SERIALISATION
    assert "ctx.data.kept" in failure.message


async def test_the_result_of_a_workflow_is_read_as_its_last_stage_returned_it(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    either: Any = Charge | Refund
    lossy = app.workflow("lossy", payload=int, result=either)
    exact = app.workflow("exact", payload=int, result=Refund)

    @lossy.stage
    async def first(ctx: Context, amount: int) -> Refund:
        return Refund(amount=amount)

    @lossy.stage
    async def last(ctx: Context, amount: int) -> Refund:
        return Refund(amount=amount)

    @exact.stage
    async def only(ctx: Context, amount: int) -> dict[str, int]:
        return {"amount": amount}

    engine = holdfast_engine(app)
    bad, good = await lossy.submit(1), await exact.submit(2)
    await engine.drain()
    failure = (await bad.info()).failure
    assert failure is not None
    assert (failure.stage, failure.kind) == ("last", FailureKind.SERIALISATION)
    assert "a Refund is read back as a Charge" in failure.message
    assert await good.result() == Refund(amount=2)


class Simple(BaseModel):
    number: int
    text: str | None = None
    tags: list[str] = []
    counts: dict[str, int] = {}


@dataclass
class SimpleData:
    number: int
    price: float = 0.0


@pytest.mark.parametrize(
    ("declared", "trust"),
    [
        (int, Trust.NOTHING),
        (int | None, Trust.NOTHING),
        (dict[str, list[int]], Trust.NOTHING),
        (Simple, Trust.FIELDS),
        (SimpleData, Trust.FIELDS),
        (Box, Trust.FIELDS),
        (Item, Trust.FIELDS),
        (Charge | Refund, Trust.ALL),
        (Order, Trust.ALL),
        (Hidden, Trust.ALL),
        (Rounded, Trust.ALL),
        (Wrapped, Trust.ALL),
        (Aliased, Trust.ALL),
        (Private, Trust.ALL),
        (Open, Trust.ALL),
        (Derived, Trust.ALL),
        (Node, Trust.ALL),
        (Names, Trust.ALL),
        (Free, Trust.ALL),
        (Basket, Trust.ALL),
        (Incremented, Trust.ALL),
        (dict[int, str], Trust.ALL),
    ],
)
def test_types_that_cannot_differ_are_recognised_when_they_are_declared(
    declared: Any, trust: Trust
) -> None:
    assert Codec[Any](declared)._trust is trust


@pytest.mark.parametrize(("declared", "value"), SAME)
def test_a_type_that_is_not_compared_would_have_been_the_same(declared: Any, value: Any) -> None:
    codec = Codec[Any](declared)
    body = codec.encode(value)
    codec.check_copy(value, body, what="payload")


@dataclass
class Plain:
    text: str = ""
    names: list[str] = field(default_factory=list)


class PlainModel(BaseModel):
    text: str = ""


class PlainStruct(msgspec.Struct):
    text: str = ""


def changed(model: PlainModel, text: Any) -> PlainModel:
    model.text = text
    return model


@pytest.mark.parametrize(
    "value",
    [
        Plain(text=SecretStr("hunter2")),  # type: ignore[arg-type]
        Plain(names=("a",)),  # type: ignore[arg-type]
        Plain(text=datetime(2026, 1, 31, tzinfo=UTC)),  # type: ignore[arg-type]
        changed(PlainModel(), SecretStr("hunter2")),
        PlainStruct(text=b"abc"),  # type: ignore[arg-type]
    ],
    ids=["secret", "tuple", "date", "model", "struct"],
)
def test_an_instance_with_other_values_than_its_fields_declare_is_refused(value: Any) -> None:
    with pytest.raises(InvalidPayload):
        Codec(type(value)).encode(value)
