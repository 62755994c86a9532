"""The five scenarios at the end of the queue's document, with real processes from end to end."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import Context, Holdfast, Status
from holdfast.errors import SinkUnavailable, StoreUnavailable, Unavailable
from holdfast.testing.plugin import MakeEngine
from tests.support.pager import Pager, pager
from tests.support.redis.redis_servers import StartRedis
from tests.support.scenario_world import BOUND_SECONDS, KEY, QUESTION, TYPE, Service, StartWorld
from verify.servers import until

ROOT = Path(__file__).parents[2]
ANSWER = (
    "When a worker dies, its lease lapses, and another worker takes the task over and goes on at "
    "the last checkpoint. [lease]"
)
STAGES = ["retrieve", "prompt", "call", "check", "store"]
OUTAGES = {"sink": SinkUnavailable, "store": StoreUnavailable, "own": Unavailable}
NOTHING = dict.fromkeys(["in the stream", "pending", "leases", "retry", "suspended", "lock"], 0)


def is_document_of(document: dict[str, Any], task_id: str) -> bool:
    fence = document.get("holdfastFence", 0)
    return fence > 0 and document == {
        "_id": f"{task_id}/1/store",
        "question": QUESTION,
        "answer": ANSWER,
        "sources": ["lease"],
        "holdfastFence": fence,
    }


# -- 1: GIVEN database and Redis are well, WHEN apply is called


def test_all_well_the_answer_is_returned_stored_and_nothing_is_left_in_redis(
    start_world: StartWorld,
) -> None:
    world = start_world()
    service = world.serve()
    world.work()

    answer = service.apply(tenant="t-1", key="q-1")

    assert answer.status == 200
    done = answer.json
    assert done["status"] == "completed"
    assert done["result"] == {"text": ANSWER, "sources": ["lease"]}
    [document] = world.documents()
    assert is_document_of(document, done["taskId"])
    summary = world.summaries()["t-1"]
    assert (summary["latest"], summary["task"]) == (ANSWER, done["taskId"])
    assert world.model.calls == 1
    assert world.left_over("t-1") == NOTHING
    assert service.calls(done["taskId"]) == [(stage, "done") for stage in STAGES]

    again = service.apply(tenant="t-1", key="q-1").json
    assert (again["taskId"], again["result"]) == (done["taskId"], done["result"])
    assert len(world.documents()) == world.model.calls == 1
    assert KEY not in world.logs()
    assert QUESTION in (kept := world.kept())
    assert KEY not in kept


# -- 2: GIVEN the database is down, WHEN apply is called


def test_while_the_database_is_down_a_task_stays_in_retry_and_then_completes_by_itself(
    start_world: StartWorld,
) -> None:
    world = start_world(ANSWER_STORE_SECONDS="0.3")
    service = world.serve()
    world.work()
    world.mongo.kill()
    try:
        answer = service.apply(tenant="t-2", key="q-2", wait_seconds=1)
        assert answer.status == 202
        task_id = answer.json["taskId"]
        parked = service.until(
            task_id,
            lambda task: task["status"] == "retry" and task["retry"]["outages"] > 1,
            "tried again, and an outage is no failure",
        )
        assert parked["retry"]["count"] == 0
        assert parked["error"]["error"] == "holdfast.SinkUnavailable"
        assert parked["retry"]["nextAttemptAt"] > 0
        assert world.in_queue("suspended") == set()
        until(lambda: world.in_queue("retry") == {task_id}, "it is in queue:retry")
        again = service.apply(tenant="t-2", key="q-2", wait_seconds=0)
        assert (again.status, again.json["taskId"]) == (202, task_id)
        assert again.json["status"] in ("retry", "processing")  # it waits, or it tries
    finally:
        world.mongo.start()

    done = service.until_status(task_id, "completed")
    assert done["result"]["text"] == ANSWER
    [document] = world.documents()
    assert is_document_of(document, task_id)
    assert world.model.calls == 1  # the model was not asked anew for each try to store
    assert world.left_over("t-2") == NOTHING


async def test_ten_minutes_without_a_database_are_waited_out_on_the_defaults(
    holdfast_engine: MakeEngine,
) -> None:
    """The same on a clock that the test moves, for every kind of outage at once."""
    app, is_away, stored = Holdfast(), True, list[str]()
    flow = app.workflow("answer.store", payload=str, result=str)

    @flow.stage
    async def answer(ctx: Context, kind: str) -> str:
        return f"answer of {kind}"

    @flow.stage
    async def store(ctx: Context, kind: str) -> str:
        if is_away:
            raise OUTAGES[kind]("the database is away")
        stored.append(ctx.key)
        return ctx.result_of(answer)

    engine = holdfast_engine(app)
    handles = [await flow.submit(kind, tenant=kind) for kind in OUTAGES]
    await engine.drain()
    await engine.advance("10m")
    for info in [await handle.info() for handle in handles]:
        assert (info.status, info.attempt, info.completed) == (Status.RETRYING, 1, ("answer",))
        assert info.outages > 3
    is_away = False
    await engine.advance("6m")
    results = [await handle.result() for handle in handles]
    assert results == [f"answer of {kind}" for kind in OUTAGES]
    assert sorted(stored) == sorted(f"{handle.id}/1/store" for handle in handles)


# -- 3: GIVEN a task fails three times


def test_three_failures_suspend_and_a_person_resumes_one_and_discards_another(
    start_world: StartWorld,
) -> None:
    world = start_world()
    service = world.serve()
    world.work()
    world.model.fails(fail="503")
    answers = [service.apply(tenant=tenant) for tenant in ("t-3", "t-4")]
    assert [(one.status, one.json["status"]) for one in answers] == [(202, "suspended")] * 2
    first, second = (one.json["taskId"] for one in answers)
    assert world.model.calls == 6
    assert world.in_queue("suspended") == {first, second}

    listed = service.get("/internal/tasks/suspended")["tasks"]
    assert {one["taskId"] for one in listed} == {first, second}
    seen = service.get(f"/internal/tasks/suspended/{first}")
    assert seen["payload"] == {"text": QUESTION}
    assert "ConnectionError: the endpoint: 503" in seen["error"]["traceback"]
    assert "app.py" in seen["error"]["traceback"]
    failed = [one["failure"] for one in seen["events"] if one["event"] == "StageFailed"]
    assert [(one["stage"], one["attempt"]) for one in failed] == [("call", n) for n in (1, 2, 3)]

    world.model.is_well()
    service.post(f"/internal/tasks/suspended/{first}/resume", {"reason": "the endpoint is back"})
    service.post(f"/internal/tasks/suspended/{second}/discard", {"reason": "asked elsewhere"})

    assert service.until_status(first, "completed")["result"]["text"] == ANSWER
    given_up = service.task(second)
    assert (given_up["taskStatus"], given_up["reason"]) == ("CANCELLED", "asked elsewhere")
    assert service.get("/internal/tasks/suspended")["tasks"] == []
    [document] = world.documents()
    assert is_document_of(document, first)
    assert world.left_over("t-3") == world.left_over("t-4") == NOTHING
    audit = service.get("/internal/audit")["entries"]
    assert {(one["taskId"], one["reason"]) for one in audit} == {
        (first, "the endpoint is back"),
        (second, "asked elsewhere"),
    }


# -- 4: GIVEN a worker crashes, WHEN a worker is started again


def test_the_task_of_a_killed_worker_goes_on_elsewhere_at_its_checkpoint(
    start_world: StartWorld,
) -> None:
    world = start_world()
    service = world.serve()
    worker = world.work()
    world.hold_database()
    try:
        task_id = service.apply(tenant="t-5", wait_seconds=0).json["taskId"]
        service.until_stage(task_id, "store")
        worker.kill()
        assert service.task(task_id)["status"] == "processing"  # until its lease lapses
        assert world.left_over("t-5")["pending"] == 1
        world.lapse(task_id)
    finally:
        world.release_database()
    world.work()

    done = service.until_status(task_id, "completed")
    assert done["result"]["text"] == ANSWER
    assert service.calls(task_id) == [
        *((stage, "done") for stage in STAGES[:-1]),
        ("store", "lost"),
        ("store", "done"),
    ]
    assert world.model.calls == 1
    [document] = world.documents()
    assert is_document_of(document, task_id)
    assert world.left_over("t-5") == NOTHING


def test_a_worker_that_dies_between_its_write_and_its_commit_has_written_once(
    start_world: StartWorld, start_redis: StartRedis
) -> None:
    redis = start_redis(appendonly=True, appendfsync="always")
    world = start_world(redis)
    service = world.serve()
    worker = world.work()
    world.hold_database()
    try:
        task_id = service.apply(tenant="t-6", wait_seconds=0).json["taskId"]
        service.until_stage(task_id, "store")
        redis.kill()  # so that it can write, but not say so
    finally:
        world.release_database()
    until(world.documents, "it has written", seconds=BOUND_SECONDS)
    worker.kill()
    redis.start()
    world.lapse(task_id)
    world.work()

    until(lambda: service.ask("GET", "/readyz").status == 200, "it has Redis again")
    service.until_status(task_id, "completed")
    assert ("store", "lost") in service.calls(task_id)
    [document] = world.documents()
    assert is_document_of(document, task_id)
    assert world.left_over("t-6") == NOTHING


# -- 5: GIVEN a backlog over its threshold


def test_a_backlog_raises_an_alert_and_a_person_pauses_the_intake_and_adds_workers(
    start_world: StartWorld, oncall: Pager
) -> None:
    world = start_world(None, HOLDFAST_BACKLOG="default=5", **oncall.settings)
    service = world.serve()
    work = [{"type": TYPE, "payload": {"text": QUESTION}, "key": f"q-{n}"} for n in range(8)]
    assert service.ask("POST", "/api/tasks", {"tasks": work}).status == 202

    alert = until(
        lambda: alerts(service).get("backlog"), "an alert is raised", seconds=BOUND_SECONDS
    )
    assert alert is not None
    assert (alert["queue"], alert["value"], alert["threshold"]) == ("default", 8, 5)
    service.process.until_said(r"alert (backlog) \(default\) raised")

    service.post("/internal/queues/default/intake/pause", {"reason": "catching up"})
    refused = service.apply()
    assert (refused.status, refused.json["code"]) == (503, "intake-paused")
    assert int(refused.headers["retry-after"]) > 0

    pool = service.post("/internal/workers/scale", {"processes": 2, "reason": "a backlog"})
    assert [one["state"] for one in pool["processes"]] == ["alive", "alive"]
    until(lambda: len(world.documents()) == 8, "all are done", seconds=BOUND_SECONDS)
    until(lambda: "backlog" not in alerts(service), "all clear", seconds=BOUND_SECONDS)
    paged = ["AlertRaised", "AlertCleared"]
    until(lambda: oncall.told_of("backlog") == paged, "it was paged", seconds=BOUND_SECONDS)

    service.post("/internal/queues/default/intake/resume", {"reason": "caught up"})
    assert service.apply(tenant="t-7").status == 200
    assert len(world.documents()) == 9
    # The pager has its notification before the delivery is committed.
    until(lambda: world.left_over("t-7") == NOTHING, "nothing is left", seconds=BOUND_SECONDS)


@pytest.fixture
def oncall(tmp_path: Path) -> Iterator[Pager]:
    with pager(tmp_path, "AlertRaised", "AlertCleared") as found:
        yield found


def alerts(service: Service) -> dict[str, Any]:
    return {one["code"]: one for one in service.get("/internal/alerts")["alerts"]}


def test_each_scenario_is_a_page_of_the_runbook() -> None:
    pages = sorted((ROOT / "docs" / "runbook").glob("scenario-*.md"))
    told = [re.findall(r"test_scenarios\.py::(\w+)", page.read_text()) for page in pages]
    here = re.findall(r"^(?:async )?def (test_\w+)", Path(__file__).read_text(), re.MULTILINE)
    assert len(pages) == 5
    assert [name for names in told for name in names] == here[:-1]
