"""Secrets of pydantic reach the stage with their true value, and nobody who looks at the task."""

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pydantic import BaseModel, Field, Secret, SecretBytes, SecretStr, field_serializer
from pydantic.functional_validators import field_validator
from pydantic_core import PydanticCustomError

from holdfast import Context, Filter, Holdfast
from holdfast.domain import notification
from holdfast.domain.errors import SerialisationError
from holdfast.domain.redaction import SECRET_MARK, Redactor
from holdfast.domain.secret_patterns import HIDDEN
from holdfast.domain.task.task import FailureKind
from holdfast.encoding.codec import Codec
from holdfast.errors import InvalidPayload, NotJson
from holdfast.insight.views.tasks import detail_view
from holdfast.testing.plugin import MakeEngine
from tests.support.notified_app import telling_app
from tests.support.runtime.helpers import take_payload

HUNTER = "hunter2"
EVENTS = ["TaskCompleted", "TaskFailed", "StageCompleted"]


class Card(BaseModel):
    owner: str
    pin: SecretStr
    raw: SecretBytes = SecretBytes(b"")
    number: Secret[int] = Secret(0)


class Wallet(BaseModel):
    cards: list[Card]
    by_name: dict[str, SecretStr] = {}
    maybe: SecretStr | None = None


@dataclass
class Login:
    user: str
    word: SecretStr


def card(pin: str = HUNTER) -> Card:
    return Card(owner="ann", pin=SecretStr(pin), raw=SecretBytes(b"hunter2"), number=Secret(4711))


VALUES: list[tuple[Any, Any]] = [
    (SecretStr, SecretStr(HUNTER)),
    (SecretStr, SecretStr("")),
    (list[SecretStr], [SecretStr(HUNTER), SecretStr("b")]),
    (set[SecretStr], {SecretStr(HUNTER), SecretStr("b")}),
    (Card, card()),
    (Wallet, Wallet(cards=[card(), card("b")], by_name={"x": SecretStr(HUNTER)})),
    (Login, Login("ann", SecretStr(HUNTER))),
    (list[Login | int], [1, Login("ann", SecretStr(HUNTER))]),
]


@pytest.mark.parametrize(("declared", "value"), VALUES)
async def test_a_secret_reaches_the_stage_and_the_result_with_its_true_value(
    app: Holdfast, holdfast_engine: MakeEngine, declared: Any, value: Any
) -> None:
    handle, taken = await take_payload(app, holdfast_engine, declared, value)
    assert taken == [value]
    assert await handle.result() == value
    detail = await app.store.views.detail(handle.id)
    assert detail is not None
    assert HUNTER not in str(detail_view(detail, app.redactor, now=0.0))
    assert HUNTER not in str(await app.handle(handle.id).result()), "nor who knows no type"
    assert HUNTER.encode() not in msgspec.json.encode(await handle.envelope())


@pytest.mark.parametrize("redactor", [Redactor(), Redactor(usual=False)])
def test_the_mark_is_stored_with_the_value_and_known_to_every_redactor(redactor: Redactor) -> None:
    body = Codec[Any](Wallet).encode(Wallet(cards=[card()], by_name={"x": SecretStr("y")}))
    stored = msgspec.json.decode(body)
    assert stored["cards"][0]["pin"] == {SECRET_MARK: HUNTER}
    assert redactor.body(body) == {
        "cards": [{"owner": "ann", "pin": HIDDEN, "raw": HIDDEN, "number": HIDDEN}],
        "by_name": {"x": HIDDEN},
        "maybe": None,
    }
    assert HUNTER not in str(redactor.strings(stored))
    assert HUNTER not in Redactor().text(f"it was {body.decode()}")


def test_plain_json_becomes_a_secret_too() -> None:
    codec = Codec[Any](Card)
    body = codec.encode({"owner": "ann", "pin": HUNTER})
    assert codec.decode(body).pin.get_secret_value() == HUNTER
    assert SECRET_MARK in body.decode()


class Documented(BaseModel):
    """As pydantic's pages advise those who want the value in JSON."""

    pin: SecretStr

    @field_serializer("pin", when_used="json")
    def _write(self, pin: SecretStr) -> str:
        return pin.get_secret_value()


class Careless(BaseModel):
    pin: SecretStr

    @field_serializer("pin")
    def _write(self, pin: SecretStr) -> str:
        return pin.get_secret_value()


def test_a_serializer_of_its_own_does_not_take_the_mark_away() -> None:
    value = Documented(pin=SecretStr(HUNTER))
    body = Codec[Any](Documented).encode(value)
    assert msgspec.json.decode(body) == {"pin": {SECRET_MARK: HUNTER}}
    assert Codec[Any](Documented).decode(body) == value
    with pytest.raises(InvalidPayload, match="when_used='json'"):
        Codec[Any](Careless).encode(Careless(pin=SecretStr(HUNTER)))


class Loose(BaseModel):
    anything: Any


def test_a_secret_without_a_declared_type_is_refused() -> None:
    with pytest.raises(InvalidPayload, match=r"payload\.anything"):
        Codec[Any](Loose).encode(Loose(anything=SecretStr(HUNTER)))
    with pytest.raises(NotJson, match="SecretStr is not JSON"):
        Codec[Any](Any).encode(SecretStr(HUNTER))
    with pytest.raises(NotJson, match="a secret of type bytes"):
        Codec[Any](SecretBytes).encode(SecretBytes(b"\xff"))


class Picky(BaseModel):
    pin: SecretStr = Field(min_length=4)
    count: int

    @field_validator("pin", mode="before")
    @classmethod
    def _check(cls, pin: Any) -> Any:
        if pin == "wrong-" + HUNTER:
            raise LookupError(f"{pin} is not in the list")
        if pin == "short-" + HUNTER:
            raise ValueError(f"{pin} is too short")
        if pin == "old-" + HUNTER:
            raise PydanticCustomError("old", "{pin} is too old", {"pin": pin})
        assert pin != "odd-" + HUNTER, f"{pin} is odd"
        return pin


@pytest.mark.parametrize(
    "payload",
    [
        {"pin": HUNTER, "count": "x"},
        *({"pin": f"{kind}-{HUNTER}", "count": 1} for kind in ("wrong", "short", "old", "odd")),
    ],
)
def test_no_error_says_the_secret(payload: dict[str, Any]) -> None:
    codec = Codec[Any](Picky)
    with pytest.raises(InvalidPayload) as refused:
        codec.encode(payload)
    with pytest.raises(SerialisationError) as unread:
        codec.decode(msgspec.json.encode(payload))
    for error in (refused.value, unread.value):
        assert HUNTER not in str(error)
        assert error.__cause__ is None
        assert error.__suppress_context__, "its text would be in the traceback"


def test_asterisks_of_an_older_version_are_not_taken_for_the_secret() -> None:
    with pytest.raises(SerialisationError, match="asterisks"):
        Codec[Any](Card).decode(b'{"owner":"ann","pin":"**********"}')
    stars = Login("**********", SecretStr(HUNTER))
    assert Codec[Any](Login).decode(Codec[Any](Login).encode(stars)) == stars


async def test_a_failing_task_says_its_secret_nowhere(
    holdfast_engine: MakeEngine, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    app = telling_app(
        tmp_path, hooks={"all": {"url": "http://127.0.0.1:9/", "events": EVENTS, "results": True}}
    )
    flow = app.workflow("pay", payload=Card, result=Card)

    @flow.stage
    async def check(ctx: Context, payload: Card) -> Card:
        return payload

    @flow.stage
    async def charge(ctx: Context, payload: Card) -> Card:
        if payload.owner == "bad":
            return Card.model_construct(owner=7, pin=payload.pin)
        return payload

    caplog.set_level(logging.DEBUG)
    engine = holdfast_engine(app)
    bad = await flow.submit(card().model_copy(update={"owner": "bad"}), tenant="a")
    good = await flow.submit(card(), tenant="b")
    await engine.drain()
    assert (await good.result()).pin.get_secret_value() == HUNTER
    failure = (await bad.info()).failure
    assert failure is not None
    assert failure.kind is FailureKind.SERIALISATION
    assert HUNTER not in failure.message + failure.traceback
    assert HUNTER not in caplog.text
    tasks = (await app.store.views.find(Filter(), limit=100)).tasks
    assert notification.TYPE in {task.type for task in tasks}
    for task in tasks:
        detail = await app.store.views.detail(task.id)
        assert detail is not None
        if task.type == notification.TYPE:
            assert HUNTER not in detail.payload.decode()
        assert HUNTER not in str(detail_view(detail, app.redactor, now=0.0))
