"""The routes of workflows: `apply`, and the state of a task."""

import asyncio

import pytest

from holdfast import Context, Holdfast
from holdfast.errors import TaskRolledBack
from holdfast.ports import Topic
from tests.server.conftest import Served, declared, serve

APPLY = "/api/workflows/apply"


async def test_apply_waits_for_the_result(served: Served) -> None:
    answer = await served.client("operator").post(APPLY, json=mail("ann"))
    assert answer.status_code == 200
    told = answer.json()
    assert (told["status"], told["taskStatus"], told["result"]) == (
        "completed",
        "COMPLETED",
        "sent to ann",
    )


async def test_apply_waits_twenty_seconds_unless_told_otherwise(
    idle: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()
    start, passed = loop.time(), 0.0
    monkeypatch.setattr(loop, "time", lambda: start + passed)
    waiting = asyncio.create_task(idle.client().post(APPLY, json=mail("ann")))
    await first_task(idle)
    await turns()
    passed = 19.9
    await turns()
    assert not waiting.done()
    passed = 20.1
    await turns()
    assert waiting.done()
    assert (await waiting).status_code == 202


async def turns() -> None:
    """Whatever is due in this loop is done."""
    for _ in range(100):
        await asyncio.sleep(0)


async def test_apply_told_to_wait_for_nothing_answers_at_once(idle: Served) -> None:
    answer = await idle.client().post(APPLY, json=mail("ann") | {"waitSeconds": 0})
    assert (answer.status_code, answer.json()["taskStatus"]) == (202, "PENDING")


@pytest.mark.parametrize("wait", [-1, 120.1, "soon", None])
async def test_apply_waits_at_most_two_minutes(served: Served, wait: object) -> None:
    answer = await served.client().post(APPLY, json=mail("ann") | {"waitSeconds": wait})
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid-request")


async def test_apply_answers_202_when_the_result_is_not_there_in_time(idle: Served) -> None:
    answer = await idle.client().post(APPLY, json=mail("ann") | {"waitSeconds": 0.01})
    assert answer.status_code == 202
    assert answer.json()["taskStatus"] == "PENDING"
    assert answer.json()["status"] == "pending"


async def test_apply_answers_202_with_the_error_when_the_task_waits_for_a_person(
    served: Served,
) -> None:
    answer = await served.client().post(APPLY, json={"type": "mail.lost", "payload": "bob"})
    told = answer.json()
    assert (answer.status_code, told["status"], told["taskStatus"]) == (202, "suspended", "FAILED")
    assert told["error"]["error"] == "holdfast.Permanent"
    assert told["error"]["message"] == "no such box: bob, password=***"
    assert "hunter2" not in answer.text


async def test_apply_answers_409_when_the_task_was_cancelled(idle: Served) -> None:
    client = idle.client()
    waiting = asyncio.create_task(client.post(APPLY, json=mail("ann") | {"key": "k"}))
    task_id = await first_task(idle)
    await client.post(f"/api/tasks/{task_id}/cancel", json={"reason": "not needed"})
    answer = await waiting
    assert (answer.status_code, answer.json()["code"]) == (409, "task-cancelled")
    assert answer.json()["taskId"] == task_id
    assert "not needed" in answer.json()["detail"]


async def first_task(served: Served) -> str:
    client, store = served.client(), served.app.store
    while True:
        ticket = store.ticket(Topic.READY)
        if tasks := (await client.get("/api/tasks")).json()["tasks"]:
            return str(tasks[0]["taskId"])
        await store.wait(Topic.READY, ticket, timeout=10)


async def test_apply_answers_409_when_the_task_was_rolled_back(served: Served) -> None:
    client = served.client()
    sent = {"type": "tenant.upgrade", "payload": {"version": 7}, "key": "upgrade-7"}
    task_id = (await client.post(APPLY, json=sent)).json()["taskId"]
    await client.post(f"/api/tasks/{task_id}/rollback", json={"reason": "too early"})
    with pytest.raises(TaskRolledBack):
        await served.app.handle(task_id).result(timeout=60)
    answer = await client.post(APPLY, json=sent)
    assert (answer.status_code, answer.json()["code"]) == (409, "task-rolled-back")
    assert answer.json()["taskId"] == task_id


async def test_the_same_key_answers_with_the_same_task_from_header_or_body(idle: Served) -> None:
    client, now = idle.client(), {"waitSeconds": 0}
    first = await client.post(APPLY, json=mail("ann") | now, headers={"idempotency-key": "k-1"})
    second = await client.post(APPLY, json=mail("ann") | now | {"key": "k-1"})
    other = await client.post(APPLY, json=mail("bob") | now | {"key": "k-1"})
    assert first.json()["taskId"] == second.json()["taskId"]
    assert (other.status_code, other.json()["code"]) == (409, "key-conflict")


async def test_two_keys_that_differ_are_refused(idle: Served) -> None:
    answer = await idle.client().post(
        APPLY, json=mail("ann") | {"key": "a"}, headers={"idempotency-key": "b"}
    )
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid-input")


async def test_a_task_is_shown_as_the_documents_envelope(served: Served) -> None:
    client = served.client()
    sent = mail("ann") | {"key": "k", "tenant": "t-1", "traceId": "abc", "user": {"id": 7}}
    task_id = (await client.post(APPLY, json=sent)).json()["taskId"]
    told = (await client.get(f"/api/workflows/tasks/{task_id}")).json()
    assert told["context"] == {"idempotencyKey": "k", "traceId": "abc", "user": {"id": 7}}
    assert told["retry"] == {"count": 0, "max": 3, "nextAttemptAt": 0}
    assert (told["status"], told["taskStatus"], told["result"]) == (
        "completed",
        "COMPLETED",
        "sent to ann",
    )
    assert told["payload"] == "ann"


async def test_a_task_that_was_not_kept_still_tells_its_end() -> None:
    app = declared()

    @app.task("quick", keep=0)
    async def quick(ctx: Context) -> str:
        return "done"

    async for served in serve(app, workers=1):
        client = served.client()
        task_id = (await client.post(APPLY, json={"type": "quick"})).json()["taskId"]
        told = (await client.get(f"/api/workflows/tasks/{task_id}")).json()
        assert (told["taskStatus"], told["result"]) == ("COMPLETED", "done")
        assert (await served.client("of-t-1").get(f"/api/workflows/tasks/{task_id}")).is_error


async def test_in_results_only_what_is_declared_secret_is_hidden() -> None:
    app = declared(redact="pin")

    @app.task("card")
    async def card(ctx: Context) -> dict[str, object]:
        return {"pin": "1234", "total_tokens": 17}

    async for served in serve(app, workers=1):
        result = (await served.client().post(APPLY, json={"type": "card"})).json()["result"]
        assert result == {"pin": "***", "total_tokens": 17}


async def test_those_who_wait_are_answered_when_the_service_stops(idle: Served) -> None:
    waiting = asyncio.create_task(idle.client().post(APPLY, json=mail("ann")))
    task_id = await first_task(idle)
    idle.service.stopping.set()
    answer = await waiting
    assert (answer.status_code, answer.json()["taskId"]) == (202, task_id)


async def test_a_result_is_waited_for_across_processes(tmp_path: object) -> None:
    url = f"sqlite:///{tmp_path}/shared.db"
    async for served in serve(declared(url), workers=0):
        patient = mail("ann") | {"waitSeconds": 60}
        waiting = asyncio.create_task(served.client().post(APPLY, json=patient))
        elsewhere: Holdfast = declared(url)  # a worker with a store of its own on the same file
        async with elsewhere.running():
            answer = await waiting
        assert (answer.status_code, answer.json()["result"]) == (200, "sent to ann")


async def test_an_unknown_type_is_404_and_a_wrong_payload_422(served: Served) -> None:
    client = served.client()
    unknown = await client.post(APPLY, json={"type": "mail.nobody"})
    internal = await client.post(APPLY, json={"type": "holdfast.bulk"})
    wrong = await client.post(APPLY, json={"type": "mail.send", "payload": 7})
    assert (unknown.status_code, unknown.json()["code"]) == (404, "unknown-type")
    assert (internal.status_code, internal.json()["code"]) == (404, "unknown-type")
    assert (wrong.status_code, wrong.json()["code"]) == (422, "invalid-payload")


# -- many at once


async def test_a_batch_is_accepted_in_its_order(idle: Served) -> None:
    tasks = [mail(f"box-{n}") | {"key": f"k-{n}"} for n in range(50)]
    answer = await idle.client("operator").post("/api/tasks", json={"tasks": tasks})
    told = answer.json()
    assert (answer.status_code, told["accepted"], told["refused"]) == (202, 50, 0)
    again = await idle.client("operator").post("/api/tasks", json={"tasks": tasks})
    assert again.json() == told


async def test_a_batch_with_one_wrong_payload_accepts_none(idle: Served) -> None:
    tasks = [mail("ann"), {"type": "mail.send", "payload": 7}]
    answer = await idle.client().post("/api/tasks", json={"tasks": tasks})
    assert answer.status_code == 422
    assert answer.json()["detail"].startswith("tasks.1.payload")
    assert (await idle.client().get("/api/tasks")).json()["tasks"] == []


async def test_a_batch_of_which_some_are_refused_says_which(idle: Served) -> None:
    client = idle.client()
    await client.post("/api/tasks", json={"tasks": [mail("ann") | {"key": "k"}]})
    tasks = [mail("bob") | {"key": "k"}, mail("bob")]
    answer = await client.post("/api/tasks", json={"tasks": tasks})
    told = answer.json()
    assert (answer.status_code, told["accepted"], told["refused"]) == (207, 1, 1)
    assert told["tasks"][0]["code"] == "key-conflict"
    assert told["tasks"][1]["taskId"]


@pytest.mark.parametrize("tasks", [[], [{"type": "mail.send", "payload": "a"}] * 1001])
async def test_a_batch_is_bounded(idle: Served, tasks: list[object]) -> None:
    assert (await idle.client().post("/api/tasks", json={"tasks": tasks})).status_code == 422


# -- tenants


async def test_a_token_of_one_tenant_submits_for_it(served: Served) -> None:
    answer = await served.client("of-t-1").post(APPLY, json=mail("ann"))
    task = (await served.client().get(f"/api/tasks/{answer.json()['taskId']}")).json()
    assert task["tenantId"] == "t-1"


async def test_a_token_of_two_tenants_must_name_one_of_them(served: Served) -> None:
    client = served.client("of-two")
    none = await client.post(APPLY, json=mail("ann"))
    other = await client.post(APPLY, json=mail("ann") | {"tenant": "t-3"})
    good = await client.post(APPLY, json=mail("ann") | {"tenant": "t-2"})
    assert (none.status_code, other.status_code, good.status_code) == (422, 403, 200)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/api/workflows/tasks/{id}"),
        ("GET", "/api/tasks/{id}"),
        ("GET", "/api/tasks/{id}/why"),
        ("GET", "/api/tasks/{id}/commands"),
        ("GET", "/api/tasks/{id}/timeline"),
        ("GET", "/api/tasks/{id}/events"),
        ("POST", "/api/tasks/{id}/cancel"),
        ("GET", "/internal/tasks/suspended/{id}"),
        ("POST", "/internal/tasks/suspended/{id}/resume"),
        ("POST", "/internal/tasks/suspended/{id}/discard"),
    ],
)
async def test_a_foreign_tenants_task_is_as_unknown_as_one_that_never_was(
    served: Served, method: str, path: str
) -> None:
    sent = {"type": "mail.lost", "payload": "x", "tenant": "t-2"}
    task_id = (await served.client().post(APPLY, json=sent)).json()["taskId"]
    client = served.client("of-t-1")
    foreign = await client.request(method, path.format(id=task_id))
    nobodys = await client.request(method, path.format(id="nobody"))
    assert (foreign.status_code, foreign.json()["code"]) == (404, "task-not-found")
    told = nobodys.text.replace("nobody", task_id)
    assert foreign.text == told, "the two answers must not differ"


async def test_a_list_has_the_tokens_own_tenants_only(idle: Served) -> None:
    client = idle.client()
    for tenant in ("t-1", "t-2", None):
        await client.post("/api/tasks", json={"tasks": [mail("ann") | {"tenant": tenant}]})
    mine = (await idle.client("of-t-1").get("/api/tasks")).json()["tasks"]
    assert [task["tenantId"] for task in mine] == ["t-1"]
    assert (await idle.client("of-t-1").get("/api/tasks?tenant=t-2")).status_code == 403


def mail(to: str) -> dict[str, object]:
    return {"type": "mail.send", "payload": to}
