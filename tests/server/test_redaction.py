"""Secrets are hidden wherever the API shows what users and their code have written."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from holdfast import Context, Holdfast, Permanent, Retry
from tests.server.conftest import Served, declared, serve

SECRETS = {  # where it stands: what must not be seen
    "payload, by a usual name": "pay-4711",
    "payload, by a declared name": "pin-4711",
    "payload, by a pattern": "4000-1234-5678-9010",
    "within a text": "text-4711",
    "user": "user-4711",
    "error": "error-4711",
    "reason": "reason-4711",
    "stage result": "stage-4711",
    "data": "data-4711",
}


def leaky() -> Holdfast:
    app = declared(redact="pin,*_ssn", redact_patterns=[r"\b\d{4}(-\d{4}){3}\b"])
    flow = app.workflow("leaky", payload=dict[str, Any], result=dict[str, Any])

    @flow.stage
    async def first(ctx: Context, order: dict[str, Any]) -> dict[str, Any]:
        ctx.data["api_key"] = SECRETS["data"]
        ctx.progress(0.5, f"password={SECRETS['within a text']}")
        return {"token": SECRETS["stage result"]}

    @flow.stage(retry=Retry(max=1))
    async def second(ctx: Context, order: dict[str, Any]) -> dict[str, Any]:
        if order.get("fails"):
            raise Permanent(f"refused: Authorization: Bearer {SECRETS['error']}")
        return {"pin": SECRETS["payload, by a declared name"], "ok": True}

    return app


@pytest.fixture
async def leaking() -> AsyncIterator[Served]:
    async for one in serve(leaky(), workers=1):
        yield one


def order(**more: Any) -> dict[str, Any]:
    payload = {
        "password": SECRETS["payload, by a usual name"],
        "PIN": SECRETS["payload, by a declared name"],
        "customer_ssn": SECRETS["payload, by a declared name"],
        "note": f"card {SECRETS['payload, by a pattern']}",
        "url": f"postgres://bob:{SECRETS['within a text']}@db/x",
        "plain": "shown",
    }
    user = {"id": 7, "secret": SECRETS["user"]}
    return {"type": "leaky", "payload": payload | more, "tenant": "t-1", "user": user}


PATHS = [
    "/api/workflows/tasks/{id}",
    "/api/tasks",
    "/api/tasks/{id}",
    "/api/tasks/{id}/why",
    "/api/tasks/{id}/timeline",
    "/internal/tasks/suspended",
    "/internal/tasks/suspended/groups",
    "/internal/tasks/suspended/{id}",
    "/internal/tenants/t-1",
    "/internal/tasks/stats",
    "/internal/doctor",
    "/internal/audit",
]


@pytest.mark.parametrize("path", PATHS)
async def test_no_secret_is_shown_of_a_task_that_failed(leaking: Served, path: str) -> None:
    client = leaking.client()
    answer = await client.post("/api/workflows/apply", json=order(fails=True))
    assert answer.status_code == 202
    shows_none(answer.text)
    task_id = answer.json()["taskId"]
    sent = {"reason": f"token={SECRETS['reason']}"}
    await client.post(f"/internal/tasks/suspended/{task_id}/resume", json=sent)
    await client.post("/api/workflows/apply", json=order(fails=True) | {"tenant": "t-2"})
    told = await client.get(path.format(id=task_id))
    assert told.status_code in (200, 409), told.text
    shows_none(told.text)


def shows_none(text: str) -> None:
    for where, secret in SECRETS.items():
        assert secret not in text, where


async def test_what_is_no_secret_is_shown(leaking: Served) -> None:
    client = leaking.client()
    task_id = (await client.post("/api/workflows/apply", json=order())).json()["taskId"]
    told = (await client.get(f"/api/tasks/{task_id}")).json()
    assert told["payload"]["plain"] == "shown"
    assert told["payload"]["password"] == told["payload"]["PIN"] == "***"
    assert told["payload"]["customer_ssn"] == "***"
    assert told["payload"]["note"] == "card ***"
    assert told["payload"]["url"] == "postgres://bob:***@db/x"
    assert told["result"] == {"pin": "***", "ok": True}
    assert told["stages"][0]["result"] == {"token": "***"}


async def test_no_secret_is_in_the_stream_of_events(leaking: Served) -> None:
    client = leaking.client()
    task_id = (await client.post("/api/workflows/apply", json=order(fails=True))).json()["taskId"]
    sent = {"reason": f"password: {SECRETS['reason']}"}
    await client.post(f"/internal/tasks/suspended/{task_id}/discard", json=sent)
    told = (await client.get(f"/api/tasks/{task_id}/events")).text
    assert "event: StageFailed" in told
    assert "event: TaskDiscarded" in told
    shows_none(told)


async def test_no_secret_is_in_a_refusal(leaking: Served) -> None:
    client = leaking.client()
    await client.post("/api/workflows/apply", json=order(fails=True) | {"key": "k"})
    task_id = (await client.get("/api/tasks")).json()["tasks"][0]["taskId"]
    sent = {"reason": f"token={SECRETS['reason']}"}
    await client.post(f"/api/tasks/{task_id}/discard", json=sent)
    again = await client.post("/api/workflows/apply", json=order(fails=True) | {"key": "k"})
    assert again.status_code == 409
    shows_none(again.text)


async def test_no_secret_is_in_plans_triggers_queues_and_bulk_actions(leaking: Served) -> None:
    client, reason = leaking.client(), f"token={SECRETS['reason']}"
    body = order()
    del body["tenant"], body["user"]
    answers = [
        await client.post(
            "/api/triggers", json=body | {"triggerId": "n", "cron": "0 3 * * *", "reason": reason}
        ),
        await client.post("/api/triggers/n/pause", json={"reason": reason}),
        await client.get("/api/triggers/n"),
        await client.get("/api/triggers"),
        await client.post(
            "/api/plans", json=body | {"planId": "p", "tenants": ["t-7"], "reason": reason}
        ),
        await client.get("/api/plans/p"),
        await client.post(
            "/internal/queues/q/intake/pause", json={"reason": reason, "force": True}
        ),
        await client.get("/internal/queues"),
        await client.post(
            "/internal/bulk",
            json={"command": "pause", "filter": {"tenant": "t-9"}, "reason": reason},
        ),
        await client.get("/internal/bulk"),
        await client.get("/internal/audit"),
    ]
    for answer in answers:
        assert answer.is_success, answer.text
        shows_none(answer.text)


async def test_a_wrong_payload_is_refused_without_being_repeated(leaking: Served) -> None:
    wrong = {"type": "leaky", "payload": [SECRETS["payload, by a usual name"]]}
    answer = await leaking.client().post("/api/workflows/apply", json=wrong)
    assert answer.status_code == 422
    shows_none(json.dumps(answer.json()))
