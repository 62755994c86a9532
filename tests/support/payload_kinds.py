"""Types that people declare, with values that come out of JSON as they went in, and others."""

import enum
import uuid
from collections import deque
from dataclasses import InitVar, dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from threading import Lock
from typing import Annotated, Any, Generic, Literal, NamedTuple, NewType, TypeVar
from zoneinfo import ZoneInfo

import msgspec
from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    PlainSerializer,
    PrivateAttr,
    RootModel,
    Tag,
    computed_field,
    field_serializer,
    model_serializer,
)
from typing_extensions import TypedDict

T = TypeVar("T")


class Charge(BaseModel):
    amount: int
    note: str = ""


class Refund(BaseModel):
    amount: int
    note: str = ""


class TaggedCharge(BaseModel):
    kind: Literal["charge"] = "charge"
    amount: int


class TaggedRefund(BaseModel):
    kind: Literal["refund"] = "refund"
    amount: int


Tagged = Annotated[TaggedCharge | TaggedRefund, Field(discriminator="kind")]
Called = Annotated[
    Annotated[Charge, Tag("c")] | Annotated[TaggedRefund, Tag("r")],
    Discriminator(lambda one: "r" if "kind" in dict(one) else "c"),
]


class Order(BaseModel):
    by: Charge
    more: list[Charge] = []
    named: dict[str, Charge | None] = {}


class Gift(Charge):
    ribbon: str = "red"


class Plain(Charge):
    """A subclass without fields of its own."""


@dataclass
class Box:
    size: int


@dataclass
class Crate(Box):
    wood: str = "oak"


@dataclass
class Shelf:
    boxes: list[Box]


@dataclass(eq=False)
class Blind:
    """Two of these are never equal."""

    size: int


@dataclass
class Derived:
    size: int
    double: int = field(init=False)
    factor: InitVar[int] = 2

    def __post_init__(self, factor: int) -> None:
        self.double = self.size * factor


class Item(msgspec.Struct):
    sku: str
    price: float = 0.0


class SpecialItem(Item):
    extra: int = 0


class Basket(msgspec.Struct):
    items: list[Item]


class StrictBasket(msgspec.Struct, forbid_unknown_fields=True):
    item: Item


class StrictItem(msgspec.Struct, forbid_unknown_fields=True):
    sku: str


class StrictSpecial(StrictItem):
    extra: int = 0


class Get(msgspec.Struct, tag=True):
    key: str


class Put(msgspec.Struct, tag=True):
    key: str
    at: datetime | None = None


class Batch(msgspec.Struct, rename="camel", omit_defaults=True):
    all_of_them: list[Get | Put]
    by_number: dict[int, str] = {}
    raw: bytes = b"\xff"
    pair: tuple[int, str] = (1, "a")


class Free(msgspec.Struct):
    anything: Any


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    LOW = 1


class Rights(enum.Flag):
    READ = 1
    WRITE = 2


class Point(NamedTuple):
    x: int
    y: int = 0


class Movie(TypedDict, total=False):
    title: str
    year: int


class Page(BaseModel, Generic[T]):
    items: list[T]


class Tags(BaseModel):
    names: dict[str, str]


@dataclass
class Labels:
    names: dict[str, str]


class Names(RootModel[list[str]]):
    pass


class Free2(BaseModel):
    anything: Any = None


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    a: int


class Closed(BaseModel):
    model_config = ConfigDict(extra="forbid")
    a: int

    @computed_field  # type: ignore[prop-decorator]
    @property
    def double(self) -> int:
        return self.a * 2


class Private(BaseModel):
    a: int
    _seen: int = PrivateAttr(default=0)
    _lock: Any = PrivateAttr(default_factory=Lock)


class Aliased(BaseModel):
    user_id: int = Field(alias="userId")


class WrittenOtherwise(BaseModel):
    name: str = Field(default="", serialization_alias="displayName")


class Both(Aliased, WrittenOtherwise):
    """Neither all by alias nor all by name can be read back."""


class Choosy(BaseModel):
    user: int = Field(validation_alias=AliasChoices("user", "u"))


class Hidden(BaseModel):
    shown: int
    hidden: int = Field(default=0, exclude=True)


class Rounded(BaseModel):
    price: float

    @field_serializer("price")
    def _write(self, price: float) -> str:
        return f"{price:.1f}"


class Wrapped(BaseModel):
    a: int

    @model_serializer
    def _write(self) -> dict[str, int]:
        return {"a": self.a + 1}


class Money:
    """A class without an equality, with a way to JSON and back."""

    def __init__(self, cents: int, currency: str = "EUR") -> None:
        self.cents, self.currency = cents, currency


MoneyField = Annotated[
    Money,
    BeforeValidator(lambda given: given if isinstance(given, Money) else Money(given)),
    PlainSerializer(lambda money: money.cents),
]


class Paid(BaseModel):
    model_config = ConfigDict(arbitrary_types_allowed=True)
    money: MoneyField


Incremented = Annotated[int, AfterValidator(lambda number: number + 1)]
Stripped = Annotated[str, AfterValidator(str.strip)]
UserId = NewType("UserId", int)
DAYS = timedelta(days=3, microseconds=7)


class Node(BaseModel):
    name: str
    children: list["Node"] = []


NAIVE = datetime(2026, 1, 2, 3, 4, 5, 678901)  # noqa: DTZ001
BERLIN = ZoneInfo("Europe/Berlin")
SAME: list[tuple[Any, Any]] = [
    (datetime, NAIVE),
    (datetime, datetime(2026, 7, 2, tzinfo=timezone(timedelta(hours=5, minutes=30)))),
    (datetime, datetime(2026, 7, 2, tzinfo=BERLIN)),
    (date, date(2026, 1, 2)),
    (time, time(1, 2, 3, 4)),
    (timedelta, DAYS),
    (timedelta, -DAYS),
    (Decimal, Decimal("1.10")),
    (Decimal, Decimal("1E+3")),
    (uuid.UUID, uuid.UUID(int=7)),
    (Colour, Colour.RED),
    (Level, Level.LOW),
    (Rights, Rights.READ | Rights.WRITE),
    (bytes, b"plain"),
    (set[int], {1, 2}),
    (frozenset[str], frozenset("ab")),
    (set[tuple[int, str]], {(1, "a")}),
    (tuple[int, str], (1, "a")),
    (tuple[int, ...], (1, 2, 3)),
    (Point, Point(1, 2)),
    (list[Point], [Point(1)]),
    (Movie, {"title": "M"}),
    (Path, Path("/tmp/a b")),
    (Page[int], Page[int](items=[1])),
    (Page[Charge], Page[Charge](items=[Charge(amount=1)])),
    (Aliased, Aliased(userId=7)),
    (WrittenOtherwise, WrittenOtherwise(name="ann")),
    (Choosy, Choosy(user=7)),
    (Closed, Closed(a=1)),
    (Open, Open(a=1, b=[1, {"c": None}])),  # type: ignore[call-arg]
    (Names, Names(["a"])),
    (Private, Private(a=1)),
    (float, -0.0),
    (dict[str, float], {"a": -0.0, "b": 1e300, "c": 5e-324}),
    (int | None, None),
    (int | str, "7"),
    (int | float, 1.0),
    (bool | int, 1),
    (Literal["a", 1, True], 1),
    (UserId, 7),
    (Stripped, "a"),
    (Charge | None, Charge(amount=1)),
    (Charge | TaggedRefund, TaggedRefund(amount=1)),
    (Tagged, TaggedRefund(amount=1)),
    (Tagged, TaggedCharge(amount=1)),
    (list[Tagged], [TaggedCharge(amount=1), TaggedRefund(amount=2)]),
    (Called, Charge(amount=1)),
    (Order, Order(by=Charge(amount=1), more=[Charge(amount=2)], named={"a": None})),
    (Hidden, Hidden(shown=1)),
    (Rounded, Rounded(price=1.5)),
    (Paid, Paid(money=Money(100))),
    (Node, Node(name="a", children=[Node(name="b")])),
    (Crate, Crate(1, "ash")),
    (Shelf, Shelf([Box(1)])),
    (Blind, Blind(3)),
    (Derived, Derived(2)),
    (dict[int, str], {1: "a"}),
    (dict[date, int], {date(2026, 1, 1): 1}),
    (SpecialItem, SpecialItem("a", 1.0, 2)),
    (Basket, Basket([Item("a"), Item("b", 2.0)])),
    (Get | Put, Put("a", datetime(2026, 1, 1, tzinfo=UTC))),
    (list[Get | Put], [Get("a"), Put("b")]),
    (Batch, Batch([Put("a"), Get("b")], {1: "x"}, b"\x00\xff", (2, "b"))),
    (StrictBasket, StrictBasket(Item("a"))),
    (Free, Free({"a": [1, 2.5, None, "x"]})),
    (Free2, Free2(anything={"a": [1, 2.5, None, "x", -0.0]})),
    (list[Any], [1, {"a": None}]),
    (dict[str, str], {"\ufffd": "\ufffd"}),
    (Tags, Tags(names={"\ufffd": "a"})),
    (deque[int], deque([1, 2])),
]

CHANGED: list[tuple[Any, Any, str]] = [
    (Charge | Refund, Refund(amount=1), "payload"),
    (list[Charge | Refund], [Charge(amount=1), Refund(amount=1)], "payload.1"),
    (dict[str, Charge | Refund], {"a": Refund(amount=1)}, "payload.a"),
    (Charge, Gift(amount=1), "payload"),
    (Charge, Plain(amount=1), "payload"),
    (Order, Order(by=Gift(amount=1)), "payload.by"),
    (Order, Order(by=Charge(amount=1), more=[Gift(amount=1)]), "payload.more.0"),
    (Order, Order(by=Charge(amount=1), named={"x": Gift(amount=1)}), "payload.named.x"),
    (Page[Charge], Page[Charge](items=[Gift(amount=1)]), "payload.items.0"),
    (Box, Crate(1), "payload"),
    (Shelf, Shelf([Box(1), Crate(1)]), "payload.boxes.1"),
    (Derived, Derived(2, 3), "payload.double"),
    (Item, SpecialItem("a"), "payload"),
    (Basket, Basket([Item("a"), SpecialItem("b")]), "payload.items.1"),
    (Basket, {"items": [SpecialItem("b")]}, "payload.items.0"),
    (Free, Free(datetime(2026, 1, 1, tzinfo=UTC)), "payload.anything"),
    (Free, Free((1, 2)), "payload.anything"),
    (Free, Free(Item("a")), "payload.anything"),
    (Free2, Free2(anything=(1, 2)), "payload.anything"),
    (Free2, Free2(anything={"at": [datetime(2026, 1, 1, tzinfo=UTC)]}), "payload.anything.at.0"),
    (Free2, Free2(anything=Charge(amount=1)), "payload.anything"),
    (Free2, Free2(anything={1: "a"}), "payload.anything"),
    (Free2, Free2(anything=Level.LOW), "payload.anything"),
    (Free2, Free2(anything=b"a"), "payload.anything"),
    (Open, Open(a=1, at=date(2026, 1, 1)), "payload.at"),  # type: ignore[call-arg]
    (Hidden, Hidden(shown=1, hidden=7), "payload.hidden"),
    (Rounded, Rounded(price=1.55), "payload.price"),
    (Wrapped, Wrapped(a=1), "payload.a"),
    (Paid, Paid(money=Money(100, "USD")), "payload.money.currency"),
    (Incremented, 1, "payload"),
    (list[Incremented], [1], "payload.0"),
    (Both, Both(userId=7, name="ann"), "payload.name"),
    (datetime | str, "2026-01-01T00:00:00Z", "payload"),
    (bytes | str, "a", "payload"),
    (datetime, NAIVE.replace(fold=1), "payload"),
    (set[Charge | int] | tuple[int, ...], (1, 2), "payload"),
    (dict[str, str], {"\ud800": "a"}, "payload"),
    (list[dict[str, int]], [{"a": 1, "\udfff": 2}], "payload.0"),
    (dict[str, dict[str, str]], {"a": {"\ud83d": "b"}}, "payload.a"),
    (Tags, Tags(names={"\ud800": "a"}), "payload.names"),
    (Labels, Labels({"\ud800": "a"}), "payload.names"),
    (deque[int], deque([1, 2], maxlen=2), "payload"),
]
