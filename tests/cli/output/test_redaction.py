"""Whatever the command line shows of a task, its secrets are not in it."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel, SecretStr

from holdfast import Context, Holdfast, Permanent
from holdfast.cli.output import redaction
from holdfast.domain.redaction import USUAL
from tests.support.cli.world import World
from tests.support.runtime.helpers import within_bounds

PAYLOAD = {"to": "ann", "password": "hunter2", "card_pin": "hunter2", "url": "db://u:hunter2@h"}


@pytest.fixture(autouse=True)
def _hides_the_usual_again() -> Iterator[None]:
    yield
    redaction.use(USUAL)


@pytest.fixture
def failed(world: World) -> str:
    """A task with a secret wherever a task can have one."""
    app = Holdfast(world.url)
    login: Any = app.workflow("login", payload=dict)

    @login.stage
    async def connect(ctx: Context, order: dict[str, str]) -> dict[str, str]:
        ctx.data["token"] = "hunter2"
        ctx.progress(0.5, "with token=hunter2")
        return {"secret": "hunter2"}

    @login.stage
    async def read(ctx: Context, order: dict[str, str]) -> None:
        raise Permanent("Bearer hunter2 was refused")

    async def whole() -> str:
        async with app.running():
            handle = await login.submit(PAYLOAD, tenant="t-1")
            await within_bounds(app.waiters.wait_until_stopped(handle.id))
            return str(handle.id)

    return asyncio.run(whole())


@pytest.mark.parametrize(
    "command",
    [
        "tasks list",
        "tasks show ID",
        "suspended list",
        "suspended list --group",
        "suspended show ID",
        "tenants show t-1",
        "audit",
        "why ID",
    ],
)
@pytest.mark.parametrize("json", [False, True])
def test_no_command_shows_a_secret(
    command: str, json: bool, world: World, failed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_REDACT", "*_pin")
    if command.startswith("audit"):
        world.cli("suspended", "discard", failed, "--reason", "with password=hunter2")
    args = [failed if word == "ID" else word for word in command.split()]
    result = world.cli(*args, *(["--json"] if json else []), columns=500)
    assert result.exit_code == 0, result.output
    assert "hunter2" not in result.output


def test_what_is_no_secret_is_shown(world: World, failed: str) -> None:
    shown = world.json("tasks", "show", failed)
    assert shown["payload"] == {
        "to": "ann",
        "password": "***",
        "card_pin": "hunter2",
        "url": "db://u:***@h",
    }
    assert shown["error"]["message"] == "Bearer *** was refused"
    assert shown["checkpoint"]["customData"] == {"token": "***"}
    assert [stage["result"] for stage in shown["stages"]] == [{"secret": "***"}]
    told = world.cli("tasks", "show", failed, columns=500).stdout
    assert '"to":"ann"' in told
    assert "Bearer *** was refused" in told


class Card(BaseModel):
    owner: str
    word: SecretStr  # no usual name of a secret


@pytest.fixture
def paid(world: World) -> str:
    """A task with a declared secret in payload and result, and a trigger with it."""
    app = Holdfast(world.url)

    @app.task("pay")
    async def pay(ctx: Context, card: Card) -> Card:
        if card.word.get_secret_value() != "hunter2":
            raise Permanent("it has not arrived")
        return card

    async def whole() -> str:
        async with app.running():
            card = Card(owner="ann", word=SecretStr("hunter2"))
            await app.schedule.every("1h", pay, card, name="hourly")
            handle = await pay.submit(card, tenant="t-1")
            assert await within_bounds(handle.result()) == card
            return str(handle.id)

    return asyncio.run(whole())


@pytest.mark.parametrize("json", [False, True])
def test_a_declared_secret_is_hidden_from_who_does_not_know_the_type(
    json: bool, world: World, paid: str
) -> None:
    """The command line is given the store alone, no app."""
    for command in (f"tasks show {paid}", "tasks list", "triggers show hourly", "triggers list"):
        result = world.cli(*command.split(), *(["--json"] if json else []), columns=500)
        assert result.exit_code == 0, result.output
        assert "hunter2" not in result.output
    told = world.json("tasks", "show", paid)
    assert told["payload"] == told["result"] == {"owner": "ann", "word": "***"}
