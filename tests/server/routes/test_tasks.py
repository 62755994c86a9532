"""A task over HTTP: found, looked at, asked something, and its whole life told."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from holdfast import Context, Holdfast, Permanent, Retry, Snooze, Status
from holdfast.server import Service, bare_api
from holdfast.testing.engine import Engine
from holdfast.testing.plugin import MakeEngine
from tests.server.conftest import BASE, Served, made_tokens

BATCH = "/api/tasks"


def mail(to: str = "ann", **more: Any) -> dict[str, Any]:
    return {"type": "mail.send", "payload": to, **more}


async def submit(client: httpx.AsyncClient, *tasks: dict[str, Any]) -> list[str]:
    answer = await client.post(BATCH, json={"tasks": tasks})
    assert answer.status_code == 202, answer.text
    return [task["taskId"] for task in answer.json()["tasks"]]


async def listed(client: httpx.AsyncClient, query: str = "") -> list[str]:
    answer = await client.get(f"/api/tasks?{query}")
    assert answer.status_code == 200, answer.text
    return [task["taskId"] for task in answer.json()["tasks"]]


# -- lists


async def test_a_list_has_the_newest_first(idle: Served) -> None:
    client = idle.client("operator")
    ids = await submit(client, *(mail(f"box-{n}") for n in range(5)))
    assert await listed(client) == sorted(ids, reverse=True)


async def test_each_filter_narrows_the_list(idle: Served) -> None:
    client = idle.client("operator")

    @idle.app.task("slowly", queue="slow")
    async def slowly(ctx: Context) -> None:
        return None

    one, two, other = await submit(
        client,
        mail(tenant="t-1"),
        mail(tenant="t-2", queue="slow"),
        {"type": "tenant.upgrade", "payload": {}, "tenant": "t-1"},
    )
    await client.post(f"/api/tasks/{one}/cancel")
    assert await listed(client, "status=CANCELLED") == [one]
    assert set(await listed(client, "status=CANCELLED&status=PENDING")) == {one, two, other}
    assert await listed(client, "type=tenant.upgrade") == [other]
    assert await listed(client, "queue=slow") == [two]
    assert set(await listed(client, "tenant=t-1")) == {one, other}
    assert await listed(client, "tenant=t-1&status=PENDING") == [other]
    assert await listed(client, "plan=nobody") == []
    assert await listed(client, "error=0123456789ab") == []
    assert await listed(client, "updatedBefore=2000-01-01T00:00:00Z") == []
    assert len(await listed(client, "updatedAfter=2000-01-01T00:00:00Z")) == 3


async def test_pages_follow_each_other_without_a_gap_or_a_repeat(idle: Served) -> None:
    client = idle.client("operator")
    ids = await submit(client, *(mail(f"box-{n}") for n in range(23)))
    found, cursor, pages = [], None, 0
    while True:
        query = {"limit": "5"} | ({"cursor": cursor} if cursor else {})
        page = (await client.get("/api/tasks", params=query)).json()
        found += [task["taskId"] for task in page["tasks"]]
        pages += 1
        if (cursor := page["cursor"]) is None:
            break
    assert found == sorted(ids, reverse=True)
    assert pages == 5


@pytest.mark.parametrize("query", ["limit=0", "limit=201", "limit=x", "status=BUSY", "nobody=1"])
async def test_a_query_that_is_wrong_is_refused(idle: Served, query: str) -> None:
    answer = await idle.client().get(f"/api/tasks?{query}")
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid-request")


# -- one task


async def test_a_task_is_told_with_all_that_is_kept_of_it(served: Served) -> None:
    client = served.client()
    sent = {"type": "tenant.upgrade", "payload": {"version": 7}, "tenant": "t-1", "key": "k"}
    task_id = (await client.post("/api/workflows/apply", json=sent)).json()["taskId"]
    told = (await client.get(f"/api/tasks/{task_id}")).json()
    assert (told["status"], told["key"], told["tenantId"]) == ("COMPLETED", "k", "t-1")
    assert told["stageNames"] == told["completed"] == ["snapshot", "migrate"]
    assert told["payload"] == {"version": 7}
    assert told["result"] == {"at": 7, "snapshot": "snap-1"}
    assert told["stages"][0]["result"] == "snap-1"
    assert told["events"][0]["event"] == "TaskCreated"
    assert told["legalCommands"] == ["rollback"]
    assert told["lease"] is None


@pytest.mark.parametrize("path", ["", "/why", "/commands", "/timeline", "/events"])
async def test_an_unknown_task_is_404(idle: Served, path: str) -> None:
    answer = await idle.client().get(f"/api/tasks/nobody{path}")
    assert (answer.status_code, answer.json()["code"]) == (404, "task-not-found")
    assert answer.json()["taskId"] == "nobody"


async def test_why_says_what_it_waits_for(idle: Served) -> None:
    client = idle.client()
    [task_id] = await submit(client, mail())
    says = (await client.get(f"/api/tasks/{task_id}/why")).json()["says"]
    assert "worker" in says


# -- commands


async def test_the_legal_commands_are_those_that_are_taken(idle: Served) -> None:
    client = idle.client("operator")
    [task_id] = await submit(client, mail())
    told = (await client.get(f"/api/tasks/{task_id}/commands")).json()
    assert told == {"taskId": task_id, "status": "PENDING", "legalCommands": ["pause", "cancel"]}
    refused = await client.post(f"/api/tasks/{task_id}/resume")
    assert (refused.status_code, refused.json()["code"]) == (409, "illegal-transition")
    paused = await client.post(f"/api/tasks/{task_id}/pause", json={"reason": "later"})
    assert paused.json() == {
        "taskId": task_id,
        "status": "PAUSED",
        "pauseRequested": False,
        "cancelRequested": False,
    }
    assert (await client.post(f"/api/tasks/{task_id}/resume")).json()["status"] == "PENDING"
    assert (await client.post(f"/api/tasks/{task_id}/cancel")).json()["status"] == "CANCELLED"


async def test_a_command_is_written_down_with_who_from_where_and_why(idle: Served) -> None:
    client = idle.client("operator")
    [task_id] = await submit(client, mail())
    await client.post(f"/api/tasks/{task_id}/cancel", json={"reason": "a duplicate"})
    await client.post(f"/api/tasks/{task_id}/cancel")
    entries = (await idle.client().get(f"/internal/audit?task={task_id}")).json()["entries"]
    told = [(one["actor"], one["origin"], one["command"], one["refused"]) for one in entries]
    assert told == [
        ("api:operator", "127.0.0.1", "cancel", "illegal-transition"),
        ("api:operator", "127.0.0.1", "cancel", None),
    ]
    assert entries[-1]["reason"] == "a duplicate"
    events = (await client.get(f"/api/tasks/{task_id}")).json()["events"]
    assert events[-1]["by"]["actor"] == "api:operator", "a name, not a secret"


@pytest.mark.parametrize("command", ["release", "complete", "start", "why", "Cancel", "hold-back"])
async def test_what_is_no_command_of_a_person_is_refused(idle: Served, command: str) -> None:
    client = idle.client("admin")
    [task_id] = await submit(client, mail())
    answer = await client.post(f"/api/tasks/{task_id}/{command}")
    assert answer.status_code in (405, 422)
    assert (await client.get(f"/api/tasks/{task_id}")).json()["version"] == 1


@pytest.mark.parametrize(
    "body",
    [{"reason": 7}, {"reason": "x" * 2001}, {"why": "x"}, {"force": 1}, {"force": "no"}, []],
)
async def test_a_command_with_a_wrong_body_does_nothing(idle: Served, body: object) -> None:
    client = idle.client()
    [task_id] = await submit(client, mail())
    answer = await client.post(f"/api/tasks/{task_id}/cancel", json=body)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid-request")
    assert (await client.get(f"/api/tasks/{task_id}")).json()["status"] == "PENDING"


# -- its life, on a clock that the test moves


class Life:
    def __init__(self, engine: Engine, client: httpx.AsyncClient) -> None:
        self.engine, self.client, self.task_id = engine, client, ""

    async def begin(self, payload: Any = None) -> None:
        task = {"type": "flow", "payload": payload, "tenant": "t-1"}
        [self.task_id] = await submit(self.client, task)

    async def ask(self, command: str, **body: Any) -> None:
        answer = await self.client.post(f"/api/tasks/{self.task_id}/{command}", json=body)
        assert answer.status_code == 200, answer.text

    async def told(self) -> list[dict[str, Any]]:
        answer = await self.client.get(f"/api/tasks/{self.task_id}/timeline")
        assert answer.status_code == 200, answer.text
        runs: list[dict[str, Any]] = answer.json()["runs"]
        return runs

    async def calls(self) -> list[list[tuple[str, int, str]]]:
        return [
            [(call["stage"], call["attempt"], call["outcome"]) for call in run["calls"]]
            for run in await self.told()
        ]


@pytest.fixture
async def life(app: Holdfast, holdfast_engine: MakeEngine) -> AsyncIterator[Life]:
    flow = app.workflow("flow", payload=Any)
    waits = asyncio.Event()
    seen: dict[str, int] = {}

    @flow.stage
    async def first(ctx: Context, order: Any) -> str:
        return "first is done"

    @flow.stage(retry=Retry(max=3, backoff=("1m",), jitter=0.0))
    async def second(ctx: Context, order: Any) -> str:
        count = seen[ctx.task_id] = seen.get(ctx.task_id, 0) + 1
        if order == "fails twice" and count <= 2:
            raise ConnectionError(f"no answer, try {count}")
        if order == "fails for good":
            raise Permanent("cannot be")
        if order == "snoozes" and count == 1:
            raise Snooze("5m")
        if order == "waits":
            await waits.wait()
        return "second is done"

    @first.undo
    async def undo_first(ctx: Context, order: Any) -> None:
        return None

    engine = holdfast_engine(app)
    tokens, texts = made_tokens()
    api = bare_api(Service(app, tokens=tokens), None)
    headers = {"authorization": f"Bearer {texts['admin']}"}
    transport = httpx.ASGITransport(api)
    async with httpx.AsyncClient(transport=transport, base_url=BASE, headers=headers) as client:
        yield Life(engine, client)


async def test_a_life_without_events_is_one_run(life: Life) -> None:
    await life.begin()
    await life.engine.drain()
    [run] = await life.told()
    assert await life.calls() == [[("first", 1, "done"), ("second", 1, "done")]]
    assert [call["result"] for call in run["calls"]] == ["first is done", "second is done"]
    assert (run["run"], run["endedAs"]) == (1, "TaskCompleted")
    assert all(call["worker"] and call["startedAt"] and call["endedAt"] for call in run["calls"])
    assert [mark["event"]["event"] for mark in run["marks"]] == ["TaskCreated", "TaskCompleted"]


async def test_each_attempt_is_told_with_its_error(life: Life) -> None:
    await life.begin("fails twice")
    await life.engine.drain()
    await life.engine.advance("5m")
    assert await life.calls() == [
        [
            ("first", 1, "done"),
            ("second", 1, "failed"),
            ("second", 2, "failed"),
            ("second", 3, "done"),
        ]
    ]
    [run] = await life.told()
    errors = [call["error"]["message"] for call in run["calls"] if call["error"]]
    assert errors == ["no answer, try 1", "no answer, try 2"]
    assert run["calls"][2]["error"]["attempt"] == 2


async def test_a_retry_and_a_rollback_are_runs_of_their_own(life: Life) -> None:
    await life.begin("fails for good")
    await life.engine.drain()
    await life.ask("retry", reason="perhaps now")
    await life.engine.drain()
    await life.ask("rollback")
    await life.engine.drain()
    assert await life.calls() == [
        [("first", 1, "done"), ("second", 1, "failed")],
        [("second", 1, "failed")],
        [("second", 1, "undone"), ("first", 1, "undone")],
    ]
    runs = await life.told()
    assert [run["run"] for run in runs] == [1, 2, 3]
    assert [run["endedAs"] for run in runs] == ["TaskFailed", "TaskFailed", "TaskRolledBack"]
    assert runs[1]["marks"][0]["event"]["by"] == {
        "actor": "api:admin",
        "origin": "127.0.0.1",
        "reason": "perhaps now",
    }


async def test_a_crash_is_told_at_its_stage(life: Life) -> None:
    life.engine.crash_at("second", when="after")
    await life.begin()
    await life.engine.drain()
    assert await life.calls() == [
        [("first", 1, "done"), ("second", 1, "lost"), ("second", 2, "done")]
    ]
    [run] = await life.told()
    lost, done = run["calls"][1:]
    assert lost["worker"] != done["worker"]
    assert lost["fence"] < done["fence"]
    assert lost["startedAt"] < lost["endedAt"] <= done["startedAt"]


async def test_a_crash_on_the_way_back_is_told_at_its_stage(life: Life) -> None:
    await life.begin()
    await life.engine.drain()
    life.engine.crash_at("first", when="after", undo=True)
    await life.ask("rollback")
    await life.engine.drain()
    back = (await life.calls())[1]
    assert [(stage, outcome) for stage, _, outcome in back] == [
        ("second", "undone"),
        ("first", "lost"),
        ("first", "undone"),
    ]


async def test_a_crash_at_the_undo_of_a_stage_that_failed_is_told_at_that_stage(life: Life) -> None:
    await life.begin("fails for good")
    await life.engine.drain()
    life.engine.crash_at("second", when="after", undo=True)
    await life.ask("rollback")
    await life.engine.drain()
    assert [stage for stage, _, _ in (await life.calls())[1]] == ["second", "second", "first"]


async def test_a_pause_does_not_end_a_run_for_good(life: Life) -> None:
    await life.begin()
    await life.ask("pause", reason="the night")
    [run] = await life.told()
    assert (run["endedAs"], run["calls"]) == ("TaskPaused", [])
    await life.ask("resume")
    [run] = await life.told()
    assert run["endedAt"] is None
    await life.engine.drain()
    [run] = await life.told()
    assert run["endedAs"] == "TaskCompleted"
    names = [mark["event"]["event"] for mark in run["marks"]]
    assert names == ["TaskCreated", "TaskPaused", "TaskResumed", "TaskCompleted"]


async def test_a_snooze_is_a_call_that_has_not_failed(life: Life) -> None:
    await life.begin("snoozes")
    await life.engine.drain()
    await life.engine.advance("5m")
    assert await life.calls() == [
        [("first", 1, "done"), ("second", 1, "snoozed"), ("second", 1, "done")]
    ]


async def test_what_runs_now_is_told_too(life: Life) -> None:
    await life.begin("waits")
    await life.engine.advance("1s")
    assert (await life.calls())[0][-1] == ("second", 1, "running")
    [run] = await life.told()
    assert run["calls"][-1]["startedAt"] is not None
    assert run["calls"][-1]["endedAt"] is None


async def test_a_task_that_was_never_started_has_no_calls(life: Life) -> None:
    await life.begin()
    [run] = await life.told()
    assert (run["calls"], run["endedAt"]) == ([], None)


async def test_the_timeline_has_the_checkpoint(life: Life) -> None:
    await life.begin("fails for good")
    await life.engine.drain()
    told = (await life.client.get(f"/api/tasks/{life.task_id}/timeline")).json()
    assert told["status"] == Status.FAILED
    assert told["checkpoint"]["lastCompletedStageIndex"] == 0
