"""What is done is written down first, what is refused is written down too, and nobody gets past a
queue's or a tenant's bounds."""

from typing import Any

import pytest

from holdfast.domain.audit import Audit
from holdfast.domain.errors import DeclarationError, StoreUnavailable
from holdfast.errors import InvalidInput
from holdfast.server.pool import Pool
from tests.server.conftest import Served, declared, serve

APPLY = "/api/workflows/apply"
MAIL = {"type": "mail.send", "payload": "ann"}


async def audited(served: Served) -> list[dict[str, Any]]:
    found = (await served.client().get("/internal/audit")).json()["entries"]
    assert isinstance(found, list)
    return found


async def of_t_2(served: Served) -> str:
    answer = await served.client().post(APPLY, json=MAIL | {"tenant": "t-2", "waitSeconds": 0})
    return str(answer.json()["taskId"])


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/api/plans", {"planId": "p-1", "type": "mail.send", "payload": "x", "tenants": ["t-1"]}),
        ("/api/triggers", {"triggerId": "n-1", "type": "mail.send", "payload": "x", "every": "1h"}),
        ("/internal/doctor/fix", {}),
    ],
)
async def test_what_cannot_be_written_down_is_not_done(
    idle: Served, monkeypatch: pytest.MonkeyPatch, path: str, body: dict[str, Any]
) -> None:
    store, real, did = idle.app.store, idle.app.store.admin.doctor, list[str]()

    async def away(entry: Audit) -> None:
        raise StoreUnavailable("gone for a moment")

    async def doctor(**asked: Any) -> Any:
        did.append("doctor")
        return await real(**asked)

    monkeypatch.setattr(store.admin, "audit", away)
    monkeypatch.setattr(store.admin, "doctor", doctor)
    assert (await idle.client().post(path, json=body)).status_code == 503
    assert [*(await store.plans.load(["p-1"]))] == [None]
    assert await store.triggers.find("n-1") is None
    assert did == []


async def test_what_a_token_of_some_tenants_is_refused_is_written_down(idle: Served) -> None:
    task_id, client = await of_t_2(idle), idle.client("of-t-1")
    foreign = await client.post(f"/api/tasks/{task_id}/cancel")
    submit = await client.post(APPLY, json=MAIL | {"tenant": "t-2"})
    assert (foreign.status_code, submit.status_code) == (404, 403)
    told = [(one["actor"], one["taskId"], one["refused"]) for one in await audited(idle)]
    assert told == [
        ("api:of-t-1", "service", "forbidden"),
        ("api:of-t-1", task_id, "forbidden"),
    ]


async def test_a_token_that_is_always_refused_cannot_fill_the_audit(still: Served) -> None:
    client = still.client("of-t-1")
    for _ in range(150):
        await client.post(APPLY, json=MAIL | {"tenant": "t-2"})
    found = (await still.client().get("/internal/audit?limit=200")).json()["entries"]
    assert len(found) == 20


async def test_an_unknown_id_is_no_refusal(idle: Served) -> None:
    await idle.client("of-t-1").post("/api/tasks/nobody/cancel")
    assert await audited(idle) == []


async def test_to_discard_what_is_not_suspended_is_refused_and_written_down(idle: Served) -> None:
    task_id = await of_t_2(idle)
    answer = await idle.client().post(f"/internal/tasks/suspended/{task_id}/discard")
    assert (answer.status_code, answer.json()["code"]) == (409, "not-suspended")
    [entry] = await audited(idle)
    assert (entry["command"], entry["refused"]) == ("discard", "illegal-transition")


async def test_to_scale_is_one_command_whatever_the_number(idle: Served) -> None:
    idle.service.pool = Pool()
    for number in (1, 2, 3):
        await idle.client().post("/internal/workers/scale", json={"processes": number})
    assert {one["command"] for one in await audited(idle)} == {"scale"}
    assert set((await idle.app.store.views.stats()).refused) == {" scale"}


async def test_what_was_asked_for_wrongly_is_written_down_as_refused(
    idle: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idle.service, "check_is_shared", lambda: None)
    idle.service.pool = Pool(["false"], limit=2)
    client = idle.client()
    many = await client.post("/internal/workers/scale", json={"processes": 99})
    new = {"triggerId": "n-1", "payload": "x", "every": "1h"}
    nobodys = await client.post("/api/triggers", json=new | {"type": "nobody.knows"})
    never = await client.post("/api/triggers", json=new | {"type": "mail.send", "queue": "never"})
    assert [one.status_code for one in (many, nobodys, never)] == [422, 404, 422]
    told = [(one["command"], one["refused"]) for one in reversed(await audited(idle))]
    codes = [one.json()["code"] for one in (many, nobodys, never)]
    assert told == [
        pair
        for command, code in zip(("scale", "create", "create"), codes, strict=True)
        for pair in ((command, None), (command, code))
    ]


async def test_what_a_store_may_have_done_is_not_called_refused(
    idle: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def answer_lost(**asked: Any) -> Any:
        raise StoreUnavailable("gone for a moment")

    monkeypatch.setattr(idle.app.store.admin, "doctor", answer_lost)
    assert (await idle.client().post("/internal/doctor/fix", json={})).status_code == 503
    told = [(one["command"], one["refused"]) for one in await audited(idle)]
    assert told == [("doctor fix", None)]


async def test_no_worker_processes_are_started_beside_a_memory(idle: Served) -> None:
    idle.service.pool = Pool(["false"])
    answer = await idle.client().post("/internal/workers/scale", json={"processes": 1})
    assert (answer.status_code, answer.json()["code"]) == (409, "no-pool")
    assert idle.service.pool.state()["wanted"] == 0


async def test_an_actor_is_told_by_name_wherever_it_stands(idle: Served) -> None:
    task_id, client = await of_t_2(idle), idle.client("operator")
    await client.post(f"/api/tasks/{task_id}/pause", json={"reason": "later"})
    why = (await client.get(f"/api/tasks/{task_id}/why")).json()["says"]
    told = (await client.get(f"/api/tasks/{task_id}")).json()["events"][-1]
    assert "api:operator" in why
    assert told["by"]["actor"] == "api:operator"


# -- queues


async def test_a_queue_that_nobody_knows_is_paused_with_force_only(idle: Served) -> None:
    path = "/internal/queues/defualt/intake"
    answer = await idle.client().post(f"{path}/pause")
    assert (answer.status_code, answer.json()["code"]) == (422, "unknown-queue")
    assert await idle.app.store.admin.switches() == []
    assert await idle.app.store.admin.audits(limit=10) == []
    forced = await idle.client().post(f"{path}/pause", json={"force": True})
    assert (forced.status_code, forced.json()["known"]) == (200, False)
    assert (await idle.client().post(f"{path}/resume")).status_code == 200
    assert (await idle.client().post(f"{path}/resume")).status_code == 200, "nothing is lost by it"
    known = await idle.client().post("/internal/queues/default/intake/pause")
    assert known.json()["known"] is True


@pytest.mark.parametrize("what", ["intake", "claiming"])
async def test_the_engines_own_queue_cannot_be_paused(idle: Served, what: str) -> None:
    answer = await idle.client().post(f"/internal/queues/holdfast/{what}/pause")
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid-input")
    assert await idle.app.store.admin.switches() == []


async def test_a_plan_into_a_paused_intake_is_not_even_begun(idle: Served) -> None:
    client = idle.client()
    await client.post("/internal/queues/default/intake/pause")
    answer = await client.post("/api/plans", json=a_plan() | {"tenants": ["t-1"]})
    assert (answer.status_code, answer.json()["code"]) == (503, "intake-paused")
    assert [*(await idle.app.store.plans.load(["p-1"]))] == [None]


async def test_a_trigger_fired_into_a_paused_intake_says_so(idle: Served) -> None:
    client = idle.client()
    await client.post("/api/triggers", json=a_trigger())
    await client.post("/internal/queues/default/intake/pause")
    answer = await client.post("/api/triggers/n-1/fire")
    assert (answer.status_code, answer.json()["code"]) == (503, "intake-paused")


async def test_a_batch_says_which_type_is_unknown(idle: Served) -> None:
    tasks = [MAIL, MAIL | {"type": "mail.nobody"}]
    answer = await idle.client().post("/api/tasks", json={"tasks": tasks})
    assert (answer.status_code, answer.json()["code"]) == (404, "unknown-type")
    assert answer.json()["detail"].startswith("tasks.1.type")


@pytest.mark.parametrize("queue", ["holdfast", "made-up"])
async def test_a_queue_of_the_engine_or_of_nobody_is_refused(idle: Served, queue: str) -> None:
    client = idle.client()
    answers = [
        await client.post(APPLY, json=MAIL | {"queue": queue}),
        await client.post("/api/tasks", json={"tasks": [MAIL | {"queue": queue}]}),
        await client.post("/api/triggers", json=a_trigger() | {"queue": queue}),
        await client.post("/api/plans", json=a_plan() | {"tasks": [{"queue": queue}]}),
    ]
    assert {answer.status_code for answer in answers} == {422}
    assert {answer.json()["code"] for answer in answers} == {"unknown-queue"}
    assert (await client.get("/api/tasks")).json()["tasks"] == []


async def test_the_queues_of_types_settings_and_live_workers_are_known() -> None:
    app = declared(queues="default,night")

    @app.task("report", queue="slow")
    async def report(ctx: object) -> None: ...

    async for served in serve(app, workers=1):
        for queue in ("default", "night", "slow"):
            sent = MAIL | {"queue": queue, "waitSeconds": 0}
            assert (await served.client().post(APPLY, json=sent)).status_code in (200, 202)


async def test_no_code_may_use_the_engines_own_queue(idle: Served) -> None:
    mail = idle.app.registry.find("mail.send")
    assert mail is not None
    with pytest.raises(InvalidInput, match="the engine's own"):
        await idle.app.submit(mail, "ann", queue="holdfast")
    with pytest.raises(DeclarationError, match="the engine's"):
        declared().task("mine", queue="holdfast")(lambda _: None)


def a_trigger() -> dict[str, Any]:
    return {"triggerId": "n-1", "type": "mail.send", "payload": "x", "every": "1h"}


def a_plan() -> dict[str, Any]:
    return {"planId": "p-1", "type": "mail.send", "payload": "x"}


# -- results


async def test_a_viewer_sees_no_secrets_in_results_by_any_route() -> None:
    app = declared()

    @app.task("login")
    async def login(ctx: object) -> dict[str, str]:
        return {"password": "hunter2"}

    async for served in serve(app, workers=1):
        task_id = (await served.client().post(APPLY, json={"type": "login"})).json()["taskId"]
        for path in (f"/api/tasks/{task_id}", f"/api/workflows/tasks/{task_id}"):
            assert "hunter2" not in (await served.client("viewer").get(path)).text
        theirs = await served.client("operator").get(f"/api/workflows/tasks/{task_id}")
        assert theirs.json()["result"] == {"password": "hunter2"}
