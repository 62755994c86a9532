"""Checkpoints over HTTP: read, changed and put, removed; by operators, each within his tenants."""

import threading
from typing import Any

import httpx
import pydantic
import pytest

from holdfast import Context, Permanent
from tests.server.conftest import Served

CHECKPOINTS = "/internal/checkpoints"


async def suspended(served: Served, tenant: str = "t-1") -> str:
    """A task whose second stage has failed; its first one kept a secret."""
    flow = served.app.workflow("charge", payload=str, result=str)

    @flow.stage
    async def reserve(ctx: Context, order: str) -> None:
        ctx.data.update(limit=100, api_token="s3cret", notes=["a", "password=hunter2"])

    @flow.stage
    async def book(ctx: Context, order: str) -> str:
        if ctx.data["limit"] < 900:
            raise Permanent("too much")
        return f"{ctx.data['limit']} {ctx.data['api_token']}"

    handle = await flow.submit("x", tenant=tenant)
    await served.app.waiters.wait_until_stopped(handle.id)
    return handle.id


async def shown(client: httpx.AsyncClient, task_id: str) -> Any:
    answer = await client.get(f"{CHECKPOINTS}/{task_id}")
    assert answer.status_code == 200, answer.text
    assert answer.json()["taskId"] == task_id
    return answer.json()["checkpoint"]


async def audited(served: Served, task_id: str) -> list[tuple[str, str, str, str | None]]:
    answer = await served.client().get(f"/internal/audit?task={task_id}")
    entries = reversed(answer.json()["entries"])
    return [(one["actor"], one["command"], one["reason"], one["refused"]) for one in entries]


async def test_a_checkpoint_is_read_changed_and_put(served: Served) -> None:
    task_id, client = await suspended(served), served.client("operator")
    read = await shown(client, task_id)
    assert read["customData"] == {"limit": 100, "api_token": "***", "notes": ["a", "password=***"]}
    read["customData"]["limit"] = 900
    body = {"checkpoint": read, "reason": "a higher limit"}
    put = await client.post(f"{CHECKPOINTS}/{task_id}/put", json=body)
    assert (put.status_code, put.json()) == (
        200,
        {"taskId": task_id, "version": read["version"] + 1},
    )
    again = await client.post(f"{CHECKPOINTS}/{task_id}/put", json=body)
    assert (again.status_code, again.json()["code"]) == (409, "checkpoint-conflict")
    stored = await served.app.checkpoints.get(task_id)
    assert stored is not None
    assert stored.custom_data == {
        "limit": 900,
        "api_token": "s3cret",
        "notes": ["a", "password=hunter2"],
    }, "what the view hid is kept"
    assert await audited(served, task_id) == [
        ("api:operator", "put-checkpoint", "a higher limit", None),
        ("api:operator", "put-checkpoint", "a higher limit", "checkpoint-conflict"),
    ]
    await client.post(f"/internal/tasks/suspended/{task_id}/resume")
    await served.app.waiters.wait_until_stopped(task_id)
    assert await served.app.handle(task_id).result() == "900 s3cret"


async def test_a_checkpoint_is_removed_if_it_has_that_version(served: Served) -> None:
    task_id, client = await suspended(served), served.client("operator")
    version = (await shown(client, task_id))["version"]
    remove = f"{CHECKPOINTS}/{task_id}/remove"
    other = await client.post(remove, json={"version": version + 1})
    assert (other.status_code, other.json()["code"]) == (409, "checkpoint-conflict")
    done = await client.post(remove, json={"version": version, "reason": "it starts over"})
    assert (done.status_code, done.json()) == (200, {"taskId": task_id, "version": None})
    assert await shown(client, task_id) is None
    resumed = await client.post(f"/internal/tasks/suspended/{task_id}/resume")
    assert resumed.json()["code"] == "checkpoint-gone"
    again = await client.post(remove)
    assert (again.status_code, again.json()["code"]) == (409, "checkpoint-gone")
    assert [entry[1:] for entry in await audited(served, task_id)][:2] == [
        ("remove-checkpoint", "", "checkpoint-conflict"),
        ("remove-checkpoint", "it starts over", None),
    ]


@pytest.mark.parametrize(
    ("change", "status", "code"),
    [
        ({"lastCompletedStageIndex": 1}, 422, "invalid-input"),
        ({"completedStageNames": ["other"]}, 422, "invalid-input"),
        ({"timestamp": "yesterday"}, 422, "invalid-input"),
        ({"customData": {"x": "y" * 70_000}}, 422, "invalid-input"),
        ({"customData": {"new_token": "***"}}, 422, "invalid-input"),
    ],
)
async def test_what_does_not_fit_is_refused_and_nothing_changes(
    served: Served, change: dict[str, Any], status: int, code: str
) -> None:
    task_id, client = await suspended(served), served.client("operator")
    read = await shown(client, task_id)
    answer = await client.post(f"{CHECKPOINTS}/{task_id}/put", json={"checkpoint": read | change})
    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text
    assert await shown(client, task_id) == read


async def test_what_runs_or_waits_keeps_its_checkpoint(idle: Served) -> None:
    sent = [{"type": "mail.send", "payload": "x", "tenant": "t-1"}]
    answer = await idle.client().post("/api/tasks", json={"tasks": sent})
    task_id = answer.json()["tasks"][0]["taskId"]
    refused = await idle.client("operator").post(f"{CHECKPOINTS}/{task_id}/remove")
    assert (refused.status_code, refused.json()["code"]) == (409, "illegal-transition")


async def test_a_token_of_one_tenant_reaches_its_checkpoints_only(served: Served) -> None:
    task_id = await suspended(served, tenant="t-2")
    own = served.client("of-t-1")
    body = {"checkpoint": await shown(served.client(), task_id)}
    for answer in (
        await own.get(f"{CHECKPOINTS}/{task_id}"),
        await own.post(f"{CHECKPOINTS}/{task_id}/put", json=body),
        await own.post(f"{CHECKPOINTS}/{task_id}/remove"),
        await own.get(f"{CHECKPOINTS}/nobody"),
    ):
        assert (answer.status_code, answer.json()["code"]) == (404, "task-not-found")


class Order(pydantic.BaseModel):
    to: str
    token: pydantic.SecretStr


async def test_an_amended_payload_keeps_what_a_view_hides(served: Served) -> None:
    @served.app.task("box")
    async def box(ctx: Context, order: Order) -> str:
        if order.to == "nobody":
            raise Permanent("no such box")
        return order.token.get_secret_value()

    handle = await box.submit(Order(to="nobody", token=pydantic.SecretStr("s3cret")))
    await served.app.waiters.wait_until_stopped(handle.id)
    client = served.client("operator")
    seen = (await client.get(f"/api/tasks/{handle.id}")).json()["payload"]
    assert seen == {"to": "nobody", "token": "***"}
    amend = f"/internal/tasks/suspended/{handle.id}/amend"
    await client.post(amend, json={"payload": seen | {"to": "ann"}})
    await served.app.waiters.wait_until_stopped(handle.id)
    assert await handle.result() == "s3cret"


async def test_secrets_of_a_large_amendment_are_hidden_in_a_bounded_number_of_threads(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    task_id, client = await suspended(served), served.client("operator")
    amend = f"/internal/tasks/suspended/{task_id}/amend"
    went, value, views = set[bool](), served.app.redactor.value, served.service.large_views
    here = threading.get_ident()

    def note(given: Any) -> Any:
        went.add(threading.get_ident() == here)
        return value(given)

    monkeypatch.setattr(served.app.redactor, "value", note)
    with monkeypatch.context() as full:
        full.setattr(views._quota, "_total", 0)
        refused = await client.post(amend, json={"payload": "x" * 20_000})
        assert (refused.status_code, refused.json()["code"]) == (503, "overloaded")
        assert not went
        assert (await client.post(amend, json={"payload": "small"})).status_code == 200
        assert went == {True}
    await served.app.waiters.wait_until_stopped(task_id)
    went.clear()
    assert (await client.post(amend, json={"payload": "x" * 20_000})).status_code == 200
    assert went == {False}
