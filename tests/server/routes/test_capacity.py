"""When there is too much: the intake closes, claiming stops, a backlog raises an alert."""

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from holdfast import Context
from holdfast.observe.alerts import AlertRaised
from holdfast.ports import Topic
from tests.server.conftest import Served, declared, serve

ORDER = {"type": "tenant.upgrade", "payload": {}}


async def turn(client: httpx.AsyncClient, what: str, how: str, queue: str = "default") -> Any:
    answer = await client.post(
        f"/internal/queues/{queue}/{what}/{how}", json={"reason": "the database is down"}
    )
    assert answer.status_code == 200, answer.text
    return answer.json()


async def kept(served: Served) -> int:
    return sum((await served.app.store.views.stats()).by_status.values())


# -- intake


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/api/workflows/apply", ORDER | {"waitSeconds": 0}),
        ("/api/tasks", {"tasks": [ORDER]}),
        ("/api/tasks", {"tasks": [ORDER, ORDER | {"tenant": "t-1"}]}),
        ("/api/triggers/nightly/fire", {}),
    ],
)
async def test_with_the_intake_paused_nothing_comes_in_and_all_are_told_when_to_come_back(
    idle: Served, path: str, body: Any
) -> None:
    client = idle.client()
    trigger = ORDER | {"triggerId": "nightly", "cron": "0 3 * * *"}
    assert (await client.post("/api/triggers", json=trigger)).status_code == 201
    told = await turn(client, "intake", "pause")
    assert told == {
        "queue": "default",
        "what": "intake",
        "paused": True,
        "changed": True,
        "known": True,
    }
    answer = await client.post(path, json=body)
    assert answer.status_code == 503, answer.text
    assert answer.json()["code"] == "intake-paused"
    assert int(answer.headers["retry-after"]) >= 1
    assert await kept(idle) == 0
    await turn(client, "intake", "resume")
    assert (await client.post(path, json=body)).is_success


async def test_another_queue_stays_open(idle: Served) -> None:
    client = idle.client()

    @idle.app.task("elsewhere", queue="other")
    async def elsewhere(ctx: Context) -> None:
        return None

    await turn(client, "intake", "pause")
    answer = await client.post("/api/tasks", json={"tasks": [ORDER | {"queue": "other"}, ORDER]})
    assert answer.status_code == 207
    told = [task.get("code") for task in answer.json()["tasks"]]
    assert told == [None, "intake-paused"]


async def test_what_was_accepted_before_is_still_answered(idle: Served) -> None:
    client = idle.client()
    sent = ORDER | {"key": "k-1", "waitSeconds": 0}
    first = (await client.post("/api/workflows/apply", json=sent)).json()
    await turn(client, "intake", "pause")
    again = await client.post("/api/workflows/apply", json=sent)
    assert (again.status_code, again.json()["taskId"]) == (202, first["taskId"])


async def test_a_pause_says_who_when_and_why_and_is_written_down(idle: Served) -> None:
    client = idle.client("operator")
    await turn(client, "intake", "pause")
    assert (await turn(client, "intake", "pause"))["changed"] is False
    [queue] = (await client.get("/internal/queues")).json()["queues"]
    assert queue["intakePaused"]["actor"] == "api:operator"
    assert queue["intakePaused"]["reason"] == "the database is down"
    assert queue["claimingPaused"] is None
    entries = (await client.get("/internal/audit?task=queue:default")).json()["entries"]
    assert entries[-1]["command"] == "pause intake"
    assert (entries[-1]["actor"], entries[-1]["origin"]) == ("api:operator", "127.0.0.1")


# -- claiming


async def test_with_claiming_paused_work_is_taken_in_and_waits(served: Served) -> None:
    client = served.client()
    await turn(client, "claiming", "pause")
    body = ORDER | {"key": "k", "waitSeconds": 0}
    task_id = (await client.post("/api/workflows/apply", json=body)).json()["taskId"]
    why = (await client.get(f"/api/tasks/{task_id}/why")).json()["says"]
    assert "paused" in why
    ticket = served.app.store.ticket(Topic.RESTED)
    await turn(client, "claiming", "resume")
    await served.app.store.wait(Topic.RESTED, ticket, timeout=20)
    done = await client.post("/api/workflows/apply", json=ORDER | {"key": "k", "waitSeconds": 20})
    assert (done.status_code, done.json()["taskStatus"]) == (200, "COMPLETED")


# -- backlog


@pytest.fixture
async def narrow() -> AsyncIterator[Served]:
    async for one in serve(declared(backlog="default=2,*=100"), workers=0):
        yield one


async def test_a_backlog_over_its_threshold_is_an_alert_an_event_and_a_metric(
    narrow: Served,
) -> None:
    client, heard = narrow.client(), list[Any]()
    narrow.service.monitor.subscribe(heard.append)
    narrow.service.monitor._last = None  # what was seen at the start is not to be believed
    await client.post("/api/tasks", json={"tasks": [ORDER] * 5})
    narrow.service.monitor._last = None
    await narrow.service.monitor.tick()
    alerts = (await client.get("/internal/alerts")).json()["alerts"]
    [alert] = [one for one in alerts if one["code"] == "backlog"]
    assert (alert["queue"], alert["value"], alert["threshold"]) == ("default", 5, 2)
    raised = [one for one in heard if isinstance(one, AlertRaised)]
    assert ("backlog", "default") in [(one.alert.code, one.alert.queue) for one in raised]
    [queue] = (await client.get("/internal/queues")).json()["queues"]
    assert (queue["backlog"], queue["threshold"]) == (5, 2)
    metrics = (await client.get("/metrics")).text
    assert 'holdfast_alerts{alert="backlog",queue="default"} 1' in metrics.splitlines()


async def test_below_the_threshold_there_is_no_alert(narrow: Served) -> None:
    client = narrow.client()
    await client.post("/api/tasks", json={"tasks": [ORDER] * 2})
    narrow.service.monitor._last = None
    await narrow.service.monitor.tick()
    alerts = (await client.get("/internal/alerts")).json()["alerts"]
    assert "backlog" not in [one["code"] for one in alerts]
