"""Plans over HTTP: made once, looked at, asked, and nobody else's."""

import asyncio
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
from msgspec.structs import replace

from holdfast import Context, Permanent
from holdfast.domain.plan.plan import MemberState, PlanStatus
from holdfast.domain.task import checkpoint
from holdfast.engine.operations.expired_checkpoints import Forecast, forecast_of_plan
from holdfast.engine.plans import handle as plan_handle
from holdfast.ports import Filter, Store
from tests.server.conftest import Served


def plan(plan_id: str = "p-1", **more: Any) -> dict[str, Any]:
    order = {"planId": plan_id, "type": "tenant.upgrade", "payload": {"version": 7}}
    return order | {"tenants": ["t-1", "t-2", "t-3"]} | more


async def make(client: httpx.AsyncClient, **more: Any) -> dict[str, Any]:
    answer = await client.post("/api/plans", json=plan(**more))
    assert answer.status_code == 201, answer.text
    told: dict[str, Any] = answer.json()
    return told


async def test_a_plan_is_made_once_however_often_it_is_sent(idle: Served) -> None:
    client = idle.client("operator")
    first = await make(client, waves=["1", "100%"])
    again = await make(client, waves=["1", "100%"])
    assert first["planId"] == again["planId"] == "p-1"
    assert first["total"] == 3
    assert [wave["size"] for wave in first["waves"]] == [1, 2]
    other = await client.post("/api/plans", json=plan(tenants=["t-9"]))
    assert other.status_code == 409


async def test_a_dry_run_says_what_would_be_and_writes_nothing(idle: Served) -> None:
    client = idle.client("operator")
    answer = await client.post("/api/plans", json=plan(dryRun=True, waves=["1", "100%"]))
    assert answer.status_code == 200
    assert [wave["tenants"] for wave in answer.json()["waves"]] == [["t-1"], ["t-2", "t-3"]]
    assert (await client.get("/api/plans/p-1")).status_code == 404


@pytest.mark.parametrize(
    ("wrong", "status"),
    [
        ({"tenants": []}, 422),
        ({"tasks": [{"tenant": "t-1"}]}, 422),
        ({"waves": ["50%"]}, 422),
        ({"waves": ["2", "1"]}, 422),
        ({"soak": "soon"}, 422),
        ({"haltOn": "lots"}, 422),
        ({"maxConcurrency": 0}, 422),
        ({"maxConcurrency": "3"}, 422),
        ({"type": "nobody"}, 404),
        ({"payload": 7}, 422),
        ({"planId": "a/b"}, 422),
        ({"tenants": ["t-1", "t-1"]}, 422),
    ],
)
async def test_a_plan_that_is_wrong_is_refused_whole(
    idle: Served, wrong: dict[str, Any], status: int
) -> None:
    answer = await idle.client().post("/api/plans", json=plan() | wrong)
    assert answer.status_code == status, answer.text
    assert (await idle.client().get("/api/plans")).json()["plans"] == []


async def test_its_tasks_are_listed_in_its_order_page_by_page(idle: Served) -> None:
    client = idle.client()
    await make(client, tenants=[f"t-{n}" for n in range(7)], waves=["1", "100%"])
    found, cursor = [], None
    while True:
        query = {"limit": "3"} | ({"cursor": cursor} if cursor else {})
        page = (await client.get("/api/plans/p-1/tasks", params=query)).json()
        found += [(task["tenantId"], task["wave"]) for task in page["tasks"]]
        if (cursor := page["cursor"]) is None:
            break
    assert found == [(f"t-{n}", 1 if n == 0 else 2) for n in range(7)]
    none = (await client.get("/api/plans/p-1/tasks?state=completed")).json()["tasks"]
    assert none == []


async def test_a_plan_can_be_paused_resumed_and_cancelled_and_no_more(idle: Served) -> None:
    client = idle.client("operator")
    await make(client)
    paused = await client.post("/api/plans/p-1/pause", json={"reason": "the night"})
    assert (paused.status_code, paused.json()["status"]) == (200, "PAUSED")
    assert (await client.get("/api/plans/p-1")).json()["reason"] == "the night"
    again = await client.post("/api/plans/p-1/pause")
    assert again.status_code == 409
    assert (await client.post("/api/plans/p-1/resume")).status_code == 200
    assert (await client.post("/api/plans/p-1/cancel")).status_code == 200
    entries = (await idle.client().get("/internal/audit?task=plan:p-1")).json()["entries"]
    told = [(one["command"], one["refused"] is None) for one in reversed(entries)]
    assert told == [
        ("create", True),
        ("pause", True),
        ("pause", False),
        ("resume", True),
        ("cancel", True),
    ]


async def test_a_running_plan_is_rolled_back_with_one_command(served: Served) -> None:
    """One that waits for a tenant which a person holds."""
    await served.app.tenants.hold("t-3")
    client, handle = served.client(), served.app.plan.get("p-1")
    await make(client)

    async def half_done(_: str) -> bool | None:
        return (await handle.info()).count(MemberState.COMPLETED) == 2 or None

    async with asyncio.timeout(60):
        await served.app.waiters.wait_for_plan("p-1", half_done)
    assert (await client.get("/api/plans/p-1")).json()["status"] == "RUNNING"
    asked = await client.post("/api/plans/p-1/rollback", json={"reason": "7 is broken"})
    assert asked.status_code == 200, asked.text
    assert (await handle.wait(timeout=60)).status is PlanStatus.ROLLED_BACK
    found = await served.app.store.views.find(Filter(plan="p-1"), limit=10)
    states = {task.tenant: task.status for task in found.tasks}
    assert states == {"t-1": "ROLLED_BACK", "t-2": "ROLLED_BACK", "t-3": "CANCELLED"}


async def test_which_tasks_would_start_over_is_told_beforehand(served: Served) -> None:
    """By the plan, by the dry run of a bulk action and by the task itself."""
    flow = served.app.workflow("half", payload=str, on_invalid="restart", checkpoint_max_age="7d")

    @flow.stage
    async def first(ctx: Context, word: str) -> None: ...

    @flow.stage
    async def second(ctx: Context, word: str) -> None:
        raise Permanent("no")

    client = served.client()
    await make(client, type="half", payload="x", tenants=["t-1"])
    await served.app.plan.get("p-1").wait(timeout=60)
    [task] = (await served.app.store.views.find(Filter(plan="p-1"), limit=10)).tasks

    async def told() -> list[Any]:
        retry = {"command": "retry", "filter": {"type": "half"}, "dryRun": True}
        bulk = (await client.post("/internal/bulk", json=retry)).json()
        shown = (await client.get("/api/plans/p-1")).json()["startingOver"]
        one = (await client.get(f"/api/tasks/{task.id}")).json()["startsOver"]
        return [shown, bulk["startsOver"], bulk["startingOver"], one]

    assert await told() == [[], 0, [], False]
    store: Any = served.app.store
    bodies = store._store.state.bodies[task.id]
    found = checkpoint.decode(bodies.checkpoint)
    bodies.checkpoint = checkpoint.encode(
        replace(found, timestamp=datetime(2001, 1, 1, tzinfo=UTC))
    )
    served.service.shared_reads.forget("startingOver:p-1")
    assert await told() == [[task.id], 1, [task.id], True]
    bodies.checkpoint = checkpoint.encode(found)
    declared = served.app.registry.find("half")
    assert declared is not None
    declared.stages[0].name, declared.stage_names = "anew", ("anew", "second")
    assert await told() == [[task.id], 1, [task.id], True], "a deploy has renamed its stage"
    suspended = (await client.get(f"/internal/tasks/suspended/{task.id}")).json()
    assert (suspended["startsOver"], "'first'" in suspended["checkpointInvalid"]) == (True, True)
    assert "starts over" in (await client.get(f"/api/tasks/{task.id}/why")).text


async def test_whoever_polls_a_plan_shares_one_look_at_its_checkpoints(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    @served.app.task("broken")
    async def broken(ctx: Context, word: str) -> None:
        raise Permanent("no")

    looked = list[str]()

    async def counted(store: Store, plan_id: str, **terms: Any) -> Forecast:
        looked.append(plan_id)
        return await forecast_of_plan(store, plan_id, **terms)

    monkeypatch.setattr(plan_handle, "forecast_of_plan", counted)
    monkeypatch.setattr(served.service.shared_reads, "_steady", lambda: 0.0)  # no time passes
    client = served.client()
    for plan_id, tenant in (("p-1", "t-1"), ("p-2", "t-2")):
        await make(client, plan_id=plan_id, type="broken", payload="x", tenants=[tenant])
        await served.app.plan.get(plan_id).wait(timeout=60)
        polls = (client.get(f"/api/plans/{plan_id}") for _ in range(5))
        told = [one.json() for one in await asyncio.gather(*polls)]
        told.append((await client.get(f"/api/plans/{plan_id}")).json())
        assert [one["checkpointsToJudge"] for one in told] == [1] * 6
    assert looked == ["p-1", "p-2"]


async def test_a_list_of_plans_has_pages_and_filters(idle: Served) -> None:
    client = idle.client()
    for number in range(5):
        await make(client, plan_id=f"p-{number}", tenants=[f"t-{number}"])
    await client.post("/api/plans/p-2/pause")
    first = (await client.get("/api/plans?limit=3")).json()
    rest = (await client.get("/api/plans", params={"cursor": first["cursor"]})).json()
    ids = [one["planId"] for one in first["plans"] + rest["plans"]]
    assert sorted(ids) == [f"p-{n}" for n in range(5)]
    paused = (await client.get("/api/plans?status=PAUSED")).json()["plans"]
    assert [one["planId"] for one in paused] == ["p-2"]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/api/plans/{id}"),
        ("GET", "/api/plans/{id}/tasks"),
        ("GET", "/api/plans/{id}/events"),
        ("POST", "/api/plans/{id}/pause"),
    ],
)
async def test_a_plan_over_others_tenants_is_as_unknown_as_one_that_never_was(
    idle: Served, method: str, path: str
) -> None:
    await make(idle.client())
    client = idle.client("of-two")
    foreign = await client.request(method, path.format(id="p-1"))
    nobodys = await client.request(method, path.format(id="x-1"))
    assert (foreign.status_code, foreign.json()["code"]) == (404, "plan-not-found")
    assert foreign.text == nobodys.text.replace("x-1", "p-1")


async def test_a_token_of_some_tenants_makes_plans_for_those_alone(idle: Served) -> None:
    client = idle.client("of-two")
    assert (await client.post("/api/plans", json=plan())).status_code == 403
    mine = await client.post("/api/plans", json=plan(tenants=["t-1", "t-2"]))
    assert mine.status_code == 201
    assert (await client.get("/api/plans/p-1")).status_code == 200
