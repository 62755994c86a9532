"""Triggers over HTTP."""

from typing import Any

import httpx
import pytest

from tests.server.conftest import Served


def trigger(**more: Any) -> dict[str, Any]:
    order = {"triggerId": "nightly", "type": "tenant.upgrade", "payload": {"version": 7}}
    return order | ({} if {"at", "every"} & more.keys() else {"cron": "0 3 * * *"}) | more


async def make(client: httpx.AsyncClient, **more: Any) -> dict[str, Any]:
    answer = await client.post("/api/triggers", json=trigger(**more))
    assert answer.status_code == 201, answer.text
    told: dict[str, Any] = answer.json()
    return told


async def test_a_trigger_is_made_with_its_next_times_in_its_zone(idle: Served) -> None:
    told = await make(idle.client("operator"), tz="Asia/Shanghai")
    assert told["status"] == "PENDING"
    assert len(told["next"]) == 5
    assert all(one.endswith("T03:00:00+08:00") for one in told["next"])
    assert "pause" in told["legalCommands"]


@pytest.mark.parametrize(
    "schedule", [{"every": "15m"}, {"at": "2099-01-31T03:00:00+08:00"}, {"cron": "*/5 * * * *"}]
)
async def test_each_kind_of_schedule_is_taken(idle: Served, schedule: dict[str, str]) -> None:
    client = idle.client()
    await make(client, **schedule)
    shown = await client.get("/api/triggers/nightly")
    assert shown.json()["payload"] == {"version": 7}
    assert shown.json()["nextFireTime"]


@pytest.mark.parametrize(
    ("wrong", "status"),
    [
        ({"cron": None}, 422),
        ({"every": "15m", "cron": "0 3 * * *"}, 422),
        ({"cron": "0 3 * *"}, 422),
        ({"cron": "61 3 * * *"}, 422),
        ({"tz": "Mars/Base"}, 422),
        ({"every": "soon"}, 422),
        ({"at": "tomorrow"}, 422),
        ({"at": "2099-01-31T03:00:00"}, 422),
        ({"misfire": "never"}, 422),
        ({"type": "nobody"}, 404),
        ({"payload": 7}, 422),
        ({"triggerId": "a b"}, 422),
        ({"replace": 1}, 422),
    ],
)
async def test_a_trigger_that_is_wrong_is_refused(
    idle: Served, wrong: dict[str, Any], status: int
) -> None:
    answer = await idle.client().post("/api/triggers", json=trigger(**wrong))
    assert answer.status_code == status, answer.text
    assert (await idle.client().get("/api/triggers")).json()["triggers"] == []


async def test_the_same_again_answers_with_it_and_another_needs_replace(idle: Served) -> None:
    client = idle.client()
    first = await make(client)
    assert (await make(client))["createdAt"] == first["createdAt"]
    other = await client.post("/api/triggers", json=trigger(every="15m"))
    assert other.status_code == 409
    told = await make(client, every="15m", replace=True)
    assert told["kind"] != first["kind"]


async def test_fire_makes_a_task_now(idle: Served) -> None:
    client = idle.client("operator")
    await make(client)
    told = (await client.post("/api/triggers/nightly/fire", json={"reason": "now"})).json()
    task = (await client.get(f"/api/tasks/{told['taskId']}")).json()
    assert (task["type"], task["payload"]) == ("tenant.upgrade", {"version": 7})
    entries = (await idle.client().get("/internal/audit?task=trigger:nightly")).json()["entries"]
    assert [one["command"] for one in entries] == ["fire", "create"]
    assert entries[0]["actor"] == "api:operator"


async def test_a_trigger_can_be_paused_resumed_and_cancelled_and_no_more(idle: Served) -> None:
    client = idle.client()
    await make(client)
    for command, status in (("pause", 200), ("pause", 409), ("resume", 200), ("cancel", 200)):
        answer = await client.post(f"/api/triggers/nightly/{command}")
        assert answer.status_code == status, (command, answer.text)
    assert (await client.post("/api/triggers/nightly/resume")).status_code == 409
    assert (await client.get("/api/triggers/nightly/next")).json()["next"] == []


async def test_the_next_times_are_bounded(idle: Served) -> None:
    client = idle.client()
    await make(client)
    assert len((await client.get("/api/triggers/nightly/next?count=1000")).json()["next"]) == 1000
    assert (await client.get("/api/triggers/nightly/next?count=1001")).status_code == 422


async def test_a_list_of_triggers_has_pages_and_filters(idle: Served) -> None:
    client = idle.client()
    for number in range(5):
        await make(client, triggerId=f"n-{number}", tenant=f"t-{number % 2}")
    await client.post("/api/triggers/n-2/pause")
    first = (await client.get("/api/triggers?limit=2")).json()
    rest = (await client.get("/api/triggers", params={"cursor": first["cursor"]})).json()
    ids = [one["triggerId"] for one in first["triggers"] + rest["triggers"]]
    assert ids == [f"n-{n}" for n in range(5)]
    paused = (await client.get("/api/triggers?status=PAUSED")).json()["triggers"]
    assert [one["triggerId"] for one in paused] == ["n-2"]
    mine = (await idle.client("of-t-1").get("/api/triggers")).json()["triggers"]
    assert [one["triggerId"] for one in mine] == ["n-1", "n-3"]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/api/triggers/{id}"),
        ("GET", "/api/triggers/{id}/next"),
        ("POST", "/api/triggers/{id}/fire"),
        ("POST", "/api/triggers/{id}/cancel"),
    ],
)
async def test_a_foreign_tenants_trigger_is_as_unknown_as_one_that_never_was(
    idle: Served, method: str, path: str
) -> None:
    await make(idle.client(), tenant="t-2")
    client = idle.client("of-t-1")
    foreign = await client.request(method, path.format(id="nightly"))
    nobodys = await client.request(method, path.format(id="nowhere"))
    assert (foreign.status_code, foreign.json()["code"]) == (404, "trigger-not-found")
    assert foreign.text == nobodys.text.replace("nowhere", "nightly")
