"""What a token of some tenants sees of those who act for all, and who sees tracebacks."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest

from holdfast.domain.bulk import BulkCommand
from holdfast.domain.task.task import By
from holdfast.engine.visibility import Sight
from holdfast.ports import Filter
from tests.server.conftest import Served

ADDRESS = "10.9.8.7"
OF_ALL = "because of somebody else"  # said to what concerns more than one tenant
OF_ONE = "because of this task"  # said to one task


async def made(served: Served, *tenants: str, **more: Any) -> list[str]:
    tasks = [{"type": "mail.send", "payload": "ann", "tenant": one, **more} for one in tenants]
    answer = await served.client().post("/api/tasks", json={"tasks": tasks})
    return [one["taskId"] for one in answer.json()["tasks"]]


async def streamed(client: httpx.AsyncClient, path: str, until: str) -> str:
    """What a stream tells up to an event."""
    told = ""
    async with asyncio.timeout(60), client.stream("GET", path) as answer:
        async for line in answer.aiter_lines():
            told += line + "\n"
            if line == f"event: {until}":
                return told
    return told


async def all_views(served: Served, task_id: str, name: str = "of-t-1") -> str:
    """Everything that a caller can read of a task and its tenant, as one text."""
    client = served.client(name)
    answers = [
        await client.get(path)
        for path in (
            f"/api/tasks/{task_id}",
            f"/api/tasks/{task_id}/why",
            f"/api/tasks/{task_id}/timeline",
            f"/api/workflows/tasks/{task_id}",
            f"/internal/tasks/suspended/{task_id}",
            "/api/tasks",
            "/internal/tasks/suspended",
            "/internal/tenants/t-1",
            "/api/triggers",
        )
    ]
    answers.append(await client.post("/internal/tenants/query", json={"tenants": ["t-1"]}))
    assert {answer.status_code for answer in answers} <= {200, 409}
    return "\n".join(answer.text for answer in answers)


async def paused_by_queue(served: Served) -> str:
    [task_id] = await made(served, "t-1")
    return task_id


async def paused_by_plan(served: Served) -> str:
    order = {"planId": "p-1", "type": "mail.send", "payload": "ann", "tenants": ["t-1", "t-2"]}
    assert (await served.client().post("/api/plans", json=order)).status_code == 201
    await served.app.plan.acting_as("api:admin", ADDRESS).control.cancel("p-1", reason=OF_ALL)
    page = await served.app.store.views.find(Filter(tenant="t-1"), limit=1)
    task_id = page.tasks[0].id
    await streamed(served.client(), f"/api/tasks/{task_id}/events", "TaskCancelled")
    return task_id


async def paused_by_bulk(served: Served) -> str:
    [task_id, _] = await made(served, "t-1", "t-2")
    bulks = served.app.bulk.acting_as("api:admin", ADDRESS)
    handle = await bulks.start(BulkCommand.PAUSE, Filter(type="mail.send"), reason=OF_ALL)
    await served.app.handle(handle.id).result(timeout=60)
    return task_id


WIDE: list[Callable[[Served], Awaitable[str]]] = [paused_by_queue, paused_by_plan, paused_by_bulk]


@pytest.mark.parametrize("act", WIDE)
async def test_of_an_act_on_many_tenants_one_sees_neither_address_nor_reason(
    served: Served, act: Callable[[Served], Awaitable[str]]
) -> None:
    queues = served.app.queues.acting_as("api:admin", ADDRESS)
    await queues.pause("default", claiming=True, reason=OF_ALL)
    task_id = await act(served)
    told = await all_views(served, task_id)
    assert ADDRESS not in told
    assert OF_ALL not in told
    assert OF_ALL in await all_views(served, task_id, "operator")


async def test_why_a_task_waits_for_a_plan_of_many_tenants_is_told_without_its_reason(
    idle: Served,
) -> None:
    order = {"planId": "p-1", "type": "mail.send", "payload": "ann", "tenants": ["t-1", "t-2"]}
    assert (await idle.client().post("/api/plans", json=order)).status_code == 201
    await idle.app.plan.acting_as("api:admin", ADDRESS).control.pause("p-1", reason=OF_ALL)
    page = await idle.app.store.views.find(Filter(tenant="t-1"), limit=1)
    told = await all_views(idle, page.tasks[0].id)
    assert "p-1" in told
    assert OF_ALL not in told
    assert ADDRESS not in told
    assert OF_ALL in await all_views(idle, page.tasks[0].id, "operator")


@pytest.mark.parametrize("name", ["of-t-1", "viewer"])
async def test_of_an_act_on_its_own_task_a_tenant_sees_who_and_why_and_not_from_where(
    idle: Served, name: str
) -> None:
    [task_id] = await made(idle, "t-1")
    admin = idle.app.control.acting_as("api:admin", ADDRESS)
    await admin.pause(task_id, reason=OF_ONE)
    told = await all_views(idle, task_id, name)
    assert OF_ONE in told
    assert "api:admin" in told
    assert (ADDRESS in told) is (name == "viewer"), "one of all tenants sees where from"
    await admin.cancel(task_id)
    ended = await streamed(idle.client(name), f"/api/tasks/{task_id}/events", "end")
    assert OF_ONE in ended
    assert (ADDRESS in ended) is (name == "viewer")


async def test_of_its_own_acts_a_tenant_sees_all(idle: Served) -> None:
    [task_id] = await made(idle, "t-1")
    mine = idle.app.control.acting_as("api:of-t-1", "192.0.2.1")
    await mine.pause(task_id, reason="mine")
    assert "192.0.2.1" in await all_views(idle, task_id)


async def test_of_a_bulk_action_on_its_own_tasks_a_tenant_sees_who_and_not_from_where(
    idle: Served,
) -> None:
    bulks = idle.app.bulk.acting_as("api:admin", ADDRESS)
    handle = await bulks.start(BulkCommand.CANCEL, Filter(tenant="t-1"), reason=OF_ONE)
    client = idle.client("of-t-1")
    bulk = await client.get(f"/internal/bulk/{handle.id}")
    asked = await client.post(f"/internal/bulk/{handle.id}/pause")
    for told in (bulk.json(), asked.json()):
        assert (told["startedBy"], told["origin"], told["why"]) == ("api:admin", "", OF_ONE)


async def test_of_a_plan_of_its_own_tasks_a_tenant_sees_who_and_not_from_where(
    served: Served,
) -> None:
    order = {"planId": "p-2", "type": "mail.send", "payload": "ann", "tenants": ["t-1"]}
    assert (await served.client().post("/api/plans", json=order)).status_code == 201
    plans = served.app.plan.acting_as("api:admin", ADDRESS)
    await plans.get("p-2").wait(timeout=60)
    await plans.control.rollback("p-2", reason=OF_ONE)
    live = await streamed(served.client("of-t-1"), "/api/plans/p-2/events", "end")
    assert ADDRESS not in live
    assert "api:admin" in live
    assert ADDRESS in await streamed(served.client(), "/api/plans/p-2/events", "end")


def test_a_reason_of_former_days_that_came_through_a_bulk_action_is_not_shown() -> None:
    sight = Sight(limited=True, actor="api:mine")
    by = By(actor="bulk:0199", origin=ADDRESS, reason=f"api:admin: {OF_ALL}")
    assert sight.seen_actor(by) == By(actor="bulk:0199")


# -- tracebacks


@pytest.mark.parametrize(
    ("name", "shown"),
    [("admin", True), ("operator", True), ("viewer", False), ("of-t-1", False)],
)
async def test_a_traceback_is_for_operators_of_all_tenants(
    served: Served, name: str, shown: bool
) -> None:
    body = {"type": "mail.lost", "payload": "bob", "tenant": "t-1", "waitSeconds": 60}
    answer = (await served.client().post("/api/workflows/apply", json=body)).json()
    assert "Traceback" in answer["error"]["traceback"]
    task_id, client = answer["taskId"], served.client(name)
    for path in (
        f"/api/tasks/{task_id}",
        f"/api/tasks/{task_id}/timeline",
        f"/api/workflows/tasks/{task_id}",
        f"/internal/tasks/suspended/{task_id}",
    ):
        told = (await client.get(path)).text
        assert ("Traceback" in told) is shown, path
        assert "no such box" in told
    await served.app.control.discard(task_id)
    ended = await streamed(client, f"/api/tasks/{task_id}/events", "end")
    assert ("Traceback" in ended) is shown
    assert "no such box" in ended


async def test_who_submits_for_a_tenant_gets_no_traceback_with_its_failure(served: Served) -> None:
    body = {"type": "mail.lost", "payload": "bob", "waitSeconds": 60}
    answer = await served.client("of-t-1").post("/api/workflows/apply", json=body)
    assert answer.json()["error"]["message"].startswith("no such box")
    assert answer.json()["error"]["traceback"] == ""


async def test_no_list_has_a_traceback(served: Served) -> None:
    body = {"type": "mail.lost", "payload": "bob", "tenant": "t-1", "waitSeconds": 60}
    client = served.client()
    await client.post("/api/workflows/apply", json=body)
    for path in (
        "/api/tasks",
        "/internal/tasks/suspended",
        "/internal/tasks/suspended/groups",
        "/internal/tasks/stats",
        "/internal/tenants/t-1",
        "/internal/doctor",
    ):
        told = await client.get(path)
        assert "Traceback" not in told.text, path
    assert "no such box" in json.dumps((await client.get("/api/tasks")).json())
