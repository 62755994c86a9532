"""Holds of tenants over HTTP: for operators, each within his tenants."""

from typing import Any

import httpx

from holdfast.runtime.plans.task_gateway import TaskGateway
from holdfast.testing.clock import ManualClock
from tests.server.conftest import Served


async def get(client: httpx.AsyncClient, path: str) -> Any:
    return (await client.get(path)).json()


async def submit(served: Served, tenant: str) -> str:
    sent = [{"type": "mail.send", "payload": "x", "tenant": tenant}]
    answer = await served.client().post("/api/tasks", json={"tasks": sent})
    return str(answer.json()["tasks"][0]["taskId"])


async def test_a_tenant_is_held_shown_and_released(idle: Served) -> None:
    task_id = await submit(idle, "t-1")
    client = idle.client()
    body = {"reason": "being moved", "seconds": 3600}
    held = (await client.post("/internal/tenants/t-1/hold", json=body)).json()
    assert held == {"tenantId": "t-1", "held": True, "changed": True, "waitingFor": None}
    assert not (await client.post("/internal/tenants/t-1/hold")).json()["changed"]
    [hold] = (await get(client, "/internal/holds"))["holds"]
    assert (hold["tenantId"], hold["reason"]) == ("t-1", "being moved")
    assert hold["until"] > hold["at"]
    shown = await get(client, "/internal/tenants/t-1")
    assert shown["held"] == hold
    assert "tenant t-1 has been held for" in shown["next"]
    assert "being moved" in (await get(client, f"/api/tasks/{task_id}/why"))["says"]
    released = (await client.post("/internal/tenants/t-1/release", json={"reason": "moved"})).json()
    assert released == {"tenantId": "t-1", "held": False, "changed": True, "waitingFor": None}
    entries = (await get(client, "/internal/audit"))["entries"]
    told = [(one["taskId"], one["command"], one["before"], one["after"]) for one in entries[:3]]
    assert told == [
        ("tenant:t-1", "release", "held", "free"),
        ("tenant:t-1", "hold", "held", "held"),
        ("tenant:t-1", "hold", "free", "held"),
    ]


async def test_a_token_of_one_tenant_holds_that_one_only(idle: Served) -> None:
    own = idle.client("of-t-1")
    assert (await own.post("/internal/tenants/t-1/hold")).json()["held"]
    for verb in ("hold", "release"):
        foreign = await own.post(f"/internal/tenants/t-2/{verb}")
        assert (foreign.status_code, foreign.json()["code"]) == (404, "tenant-not-found")
    await idle.client().post("/internal/tenants/t-2/hold")
    assert [one["tenantId"] for one in (await get(own, "/internal/holds"))["holds"]] == ["t-1"]
    assert len((await get(idle.client(), "/internal/holds"))["holds"]) == 2


async def test_a_token_of_one_tenant_is_not_told_who_holds_it_and_why(idle: Served) -> None:
    task_id = await submit(idle, "t-1")
    await idle.client().post("/internal/tenants/t-1/hold", json={"reason": "between us"})
    own = idle.client("of-t-1")
    [hold] = (await get(own, "/internal/holds"))["holds"]
    assert (hold["actor"], hold["origin"], hold["reason"]) == ("", "", "")
    why = (await get(own, f"/api/tasks/{task_id}/why"))["says"]
    assert "been held" in why
    assert "between us" not in why
    assert (await own.post("/internal/tenants/t-1/release")).json()["changed"]


async def test_a_tenant_with_a_slash_can_be_held(idle: Served) -> None:
    client = idle.client()
    assert (await client.post("/internal/tenants/a%2Fb/hold")).json()["tenantId"] == "a/b"
    assert (await client.post("/internal/tenants/a%2Fb/release")).json()["changed"]
    wrong = await client.post("/internal/tenants/t-1/hold", json={"seconds": 0})
    assert wrong.status_code == 422


async def test_stats_and_metrics_have_the_tenants_that_are_held(still: Served) -> None:
    client, clock = still.client(), still.app.clock
    assert isinstance(clock, ManualClock)
    await still.service.monitor.snapshot()
    await client.post("/internal/tenants/t-1/hold", json={"reason": "moving", "seconds": 3600})
    clock.advance(3)  # one look serves all for two seconds
    told = await get(client, "/internal/tasks/stats")
    assert told["tenantsHeld"] == 1
    assert told["holds"] == (await get(client, "/internal/holds"))["holds"]
    assert told["holds"][0]["reason"] == "moving"
    assert "holdfast_tenants_held 1" in (await client.get("/metrics")).text


async def test_a_hold_that_is_over_is_shown_nowhere(still: Served) -> None:
    """No worker runs that would remove it."""
    clock = still.app.clock
    assert isinstance(clock, ManualClock)
    task_id, client = await submit(still, "t-1"), still.client()
    await client.post("/internal/tenants/t-1/hold", json={"reason": "moving", "seconds": 60})
    assert "been held" in (await get(client, f"/api/tasks/{task_id}/why"))["says"]
    clock.advance(61)
    assert not await still.app.tenants.exists("t-1")
    assert (await get(client, "/internal/holds"))["holds"] == []
    assert (await get(client, "/internal/tasks/stats"))["holds"] == []
    assert "holdfast_tenants_held 0" in (await client.get("/metrics")).text
    assert "been held" not in (await get(client, f"/api/tasks/{task_id}/why"))["says"]
    assert (await get(client, "/internal/tenants/t-1"))["held"] is None
    assert "been held" not in str((await get(client, "/internal/doctor"))["waiting"])
    reach = TaskGateway(still.app.store, clock, "")
    assert await reach.busy({"other": "t-1"}) != {"other": None}, "a plan sees no hold"
    again = (await client.post("/internal/tenants/t-1/hold", json={"reason": "again"})).json()
    assert again["changed"], "it was free"
    [entry, *_] = (await get(client, "/internal/audit"))["entries"]
    assert (entry["before"], entry["after"]) == ("free", "held")
