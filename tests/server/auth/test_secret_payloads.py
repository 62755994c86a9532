"""A field that is declared as a secret is shown by no route, under whatever name it goes."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from pydantic import BaseModel, SecretStr

from holdfast import Context, Holdfast, Permanent
from tests.server.conftest import Served, declared, serve
from tests.server.test_redaction import PATHS

SECRET = "hunter2"
SEEN: list[str] = []


class Card(BaseModel):
    owner: str
    word: SecretStr  # no usual name of a secret


def paying() -> Holdfast:
    app = declared()
    flow = app.workflow("pay", payload=Card, result=Card)

    @flow.stage
    async def check(ctx: Context, card: Card) -> list[Card]:
        SEEN.append(card.word.get_secret_value())
        return [card]

    @flow.stage
    async def charge(ctx: Context, card: Card) -> Card:
        if card.owner == "bob":
            raise Permanent(f"no money: {card!r}")
        return card

    return app


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    SEEN.clear()
    async for one in serve(paying(), workers=1):
        yield one


def order(owner: str, **more: Any) -> dict[str, Any]:
    return {"type": "pay", "payload": {"owner": owner, "word": SECRET}} | more


@pytest.mark.parametrize("path", [*PATHS, "/api/tasks/{id}/events"])
async def test_no_route_shows_a_declared_secret(served: Served, path: str) -> None:
    client = served.client()
    ids = []
    for owner, tenant in (("bob", "t-1"), ("ann", "t-2")):
        answer = await client.post("/api/workflows/apply", json=order(owner, tenant=tenant))
        assert answer.is_success, answer.text
        assert SECRET not in answer.text
        ids.append(answer.json()["taskId"])
    assert SEEN == [SECRET, SECRET]
    await client.post(f"/api/tasks/{ids[0]}/discard", json={})  # so that its events end
    for task_id in ids:
        told = await client.get(path.format(id=task_id))
        assert SECRET not in told.text


async def test_what_is_beside_a_secret_is_shown(served: Served) -> None:
    client = served.client()
    answer = await client.post("/api/workflows/apply", json=order("ann"))
    assert answer.json()["result"] == {"owner": "ann", "word": "***"}
    told = (await client.get(f"/api/tasks/{answer.json()['taskId']}")).json()
    assert told["payload"] == told["result"] == {"owner": "ann", "word": "***"}
    assert told["stages"][0]["result"] == [{"owner": "ann", "word": "***"}]


async def test_no_plan_or_trigger_or_refusal_shows_a_declared_secret(served: Served) -> None:
    client = served.client()
    answers = [
        await client.post("/api/triggers", json=order("ann", triggerId="n", cron="0 3 * * *")),
        await client.get("/api/triggers/n"),
        await client.get("/api/triggers"),
        await client.post("/api/plans", json=order("ann", planId="p", tenants=["t-7"])),
        await client.get("/api/plans/p"),
        await client.get("/internal/audit"),
    ]
    for answer in answers:
        assert answer.is_success, answer.text
        assert SECRET not in answer.text
    assert (await client.get("/api/triggers/n")).json()["payload"]["word"] == "***"
    wrong = {"type": "pay", "payload": {"owner": 7, "word": SECRET}}
    refused = await client.post("/api/workflows/apply", json=wrong)
    assert refused.status_code == 422
    assert SECRET not in refused.text
