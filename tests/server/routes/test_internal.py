"""What the person on call uses: stats, suspended tasks, workers, tenants, audit, doctor, health."""

from typing import Any
from urllib.parse import quote

import httpx
import pytest

from holdfast.domain.errors import StoreUnavailable
from holdfast.observe.metrics import AUTH_FAILURES
from holdfast.ports import Topic
from holdfast.server.auth.access import Forbidden, TooManyRequests, Unauthenticated
from holdfast.server.routes import health
from tests.server.conftest import Served

APPLY = "/api/workflows/apply"
SUSPENDED = "/internal/tasks/suspended"


async def lose(client: httpx.AsyncClient, to: str = "bob", **more: Any) -> str:
    """A task that waits for a person."""
    answer = await client.post(APPLY, json={"type": "mail.lost", "payload": to, **more})
    assert answer.json()["taskStatus"] == "FAILED", answer.text
    return str(answer.json()["taskId"])


async def get(client: httpx.AsyncClient, path: str) -> dict[str, Any]:
    answer = await client.get(path)
    assert answer.status_code == 200, answer.text
    told: dict[str, Any] = answer.json()
    return told


async def worker_of(served: Served) -> dict[str, Any]:
    """Its first sign of life may be a moment away."""
    client, store = served.client(), served.app.store
    while True:
        if workers := (await get(client, "/internal/workers"))["workers"]:
            [worker] = workers
            return dict(worker)
        await store.wait(Topic.READY, store.ticket(Topic.READY), timeout=0.02)


# -- stats


async def test_stats_count_by_the_names_of_the_envelope_and_of_the_engine(served: Served) -> None:
    client = served.client()
    lost = await lose(client)
    await worker_of(served)
    await client.post(APPLY, json={"type": "mail.send", "payload": "ann"})
    served.service.monitor._last = None  # one look serves all for two seconds
    told = await get(client, "/internal/tasks/stats")
    assert (told["counts"]["suspended"], told["counts"]["completed"]) == (1, 1)
    assert (told["byStatus"]["FAILED"], told["byStatus"]["COMPLETED"]) == (1, 1)
    assert lost in [task["taskId"] for task in told["latest"]]
    assert told["liveWorkers"] == 1
    assert told["durable"] is False
    none = await get(client, "/internal/tasks/stats?latest=0")
    assert none["latest"] == []


# -- suspended


async def test_suspended_tasks_are_listed_with_filters_and_pages(served: Served) -> None:
    client = served.client()
    ids = [await lose(client, f"box-{n}", tenant=f"t-{n}") for n in range(5)]
    await client.post(APPLY, json={"type": "mail.send", "payload": "ann"})
    first = await get(client, f"{SUSPENDED}?limit=3")
    rest = await get(client, f"{SUSPENDED}?cursor={first['cursor']}")
    found = [task["taskId"] for task in first["tasks"] + rest["tasks"]]
    assert found == sorted(ids, reverse=True)
    mine = await get(client, f"{SUSPENDED}?tenant=t-3")
    assert [task["taskId"] for task in mine["tasks"]] == [ids[3]]
    error = first["tasks"][0]["error"]["fingerprint"]
    assert len((await get(client, f"{SUSPENDED}?error={error}"))["tasks"]) >= 1
    assert (await get(client, f"{SUSPENDED}?type=mail.send"))["tasks"] == []
    own = await get(served.client("of-t-1"), SUSPENDED)
    assert [task["tenantId"] for task in own["tasks"]] == ["t-1"]


async def test_groups_tell_one_cause_once(served: Served) -> None:
    client = served.client()
    ids = [await lose(client, "bob") for _ in range(3)]
    [group] = (await get(client, f"{SUSPENDED}/groups"))["groups"]
    assert (group["count"], group["error"]) == (3, "holdfast.Permanent")
    assert group["example"]["taskId"] in ids
    assert group["message"] == "no such box: bob, password=***"
    listed = await get(client, f"{SUSPENDED}?error={group['fingerprint']}")
    assert {task["taskId"] for task in listed["tasks"]} == set(ids)


async def test_a_suspended_task_is_told_with_its_traceback(served: Served) -> None:
    client = served.client()
    task_id = await lose(client)
    told = await get(client, f"{SUSPENDED}/{task_id}")
    assert "Permanent" in told["error"]["traceback"]
    assert told["payload"] == "bob"


@pytest.mark.parametrize("path", ["", "/resume", "/discard"])
async def test_what_is_not_suspended_is_409_and_what_is_not_there_404(
    served: Served, path: str
) -> None:
    client = served.client()
    sent = {"type": "mail.send", "payload": "ann"}
    done = (await client.post(APPLY, json=sent)).json()["taskId"]
    method = "POST" if path else "GET"
    fine = await client.request(method, f"{SUSPENDED}/{done}{path}")
    assert (fine.status_code, fine.json()["code"]) == (409, "not-suspended")
    nobody = await client.request(method, f"{SUSPENDED}/nobody{path}")
    assert (nobody.status_code, nobody.json()["code"]) == (404, "task-not-found")


async def test_a_suspended_task_is_resumed_or_discarded_with_a_reason(served: Served) -> None:
    client = served.client("operator")
    task_id = await lose(client)
    resumed = await client.post(f"{SUSPENDED}/{task_id}/resume", json={"reason": "try again"})
    assert (resumed.status_code, resumed.json()["status"]) == (200, "PENDING")
    other = await lose(client, "eve")
    discarded = await client.post(f"{SUSPENDED}/{other}/discard", json={"reason": "a duplicate"})
    assert discarded.json()["status"] == "CANCELLED"
    assert (await get(client, f"/api/tasks/{other}"))["reason"] == "a duplicate"
    entries = (await get(client, f"/internal/audit?task={other}"))["entries"]
    assert [(one["command"], one["reason"]) for one in entries] == [("discard", "a duplicate")]


# -- workers


async def test_a_suspended_task_is_amended_and_set_going(served: Served) -> None:
    client = served.client()
    task_id = await lose(client, key="k-1")
    amend = f"{SUSPENDED}/{task_id}/amend"
    wrongs: list[dict[str, Any]] = [{}, {"payload": 7}, {"payloads": "x"}, {"data": []}]
    for wrong in wrongs:
        answer = await client.post(amend, json=wrong)
        assert answer.status_code in {400, 422}, answer.text
    answer = await client.post(amend, json={"data": {"note": "x" * 70_000}})
    assert (answer.status_code, answer.json()["code"]) == (413, "checkpoint-too-large")
    answer = await client.post(amend, json={"payload": "ann", "reason": "a slip"})
    assert answer.status_code == 200, answer.text
    assert (await get(client, f"/api/tasks/{task_id}"))["payload"] == "ann"
    again = await client.post(APPLY, json={"type": "mail.lost", "payload": "bob", "key": "k-1"})
    assert again.json()["taskId"] == task_id
    entries = (await get(client, f"/internal/audit?task={task_id}"))["entries"]
    assert entries[0]["command"] == "amend"
    assert (await client.post(f"{SUSPENDED}/nobody/amend", json={"payload": 1})).status_code == 404


async def test_workers_are_told_and_can_be_drained(served: Served) -> None:
    client = served.client()
    worker = await worker_of(served)
    assert worker["live"] is True
    assert worker["draining"] is False
    assert "mail.send" in worker["types"]
    path = f"/internal/workers/{worker['worker']}/drain"
    assert (await client.post(path, json={"reason": "its host goes"})).json()["changed"] is True
    entries = (await get(client, f"/internal/audit?task=worker:{worker['worker']}"))["entries"]
    assert entries[0]["reason"] == "its host goes"


async def test_a_worker_nobody_knows_is_404(served: Served) -> None:
    answer = await served.client().post("/internal/workers/nobody/drain")
    assert (answer.status_code, answer.json()["code"]) == (404, "worker-not-found")


@pytest.mark.parametrize("processes", [-1, 1001, "4", True, 1.5, None])
async def test_scaling_is_bounded(idle: Served, processes: object) -> None:
    body = {"processes": processes}
    answer = await idle.client().post("/internal/workers/scale", json=body)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid-request")


# -- tenants


async def test_a_tenant_is_told_with_its_task_its_line_and_what_to_do(served: Served) -> None:
    client = served.client()
    task_id = await lose(client, tenant="t-1")
    told = await get(client, "/internal/tenants/t-1")
    assert told["tenantId"] == "t-1"
    assert task_id in (told["active"] or told["latest"])["taskId"]
    assert told["next"]
    nobody = await client.get("/internal/tenants/t-99")
    assert (nobody.status_code, nobody.json()["code"]) == (404, "tenant-not-found")


async def test_many_tenants_are_told_at_once_and_a_foreign_one_is_left_out(idle: Served) -> None:
    sent = [{"type": "mail.send", "payload": "x", "tenant": f"t-{n}"} for n in (1, 2, 3)]
    await idle.client().post("/api/tasks", json={"tasks": sent})
    body = {"tenants": ["t-3", "t-1", "t-3", "nobody"]}
    told = (await idle.client().post("/internal/tenants/query", json=body)).json()["tenants"]
    assert [one["tenantId"] for one in told][:2] == ["t-3", "t-1"]
    own = (await idle.client("of-t-1").post("/internal/tenants/query", json=body)).json()
    assert [one["tenantId"] for one in own["tenants"]] == ["t-1"]
    too_many = {"tenants": ["t"] * 201}
    assert (await idle.client().post("/internal/tenants/query", json=too_many)).is_error
    foreign = await idle.client("of-t-1").get("/internal/tenants/t-3")
    nobodys = await idle.client("of-t-1").get("/internal/tenants/t-9")
    assert foreign.text == nobodys.text.replace("t-9", "t-3")
    assert foreign.status_code == 404


# -- audit, doctor, states


async def test_the_audit_has_pages_and_its_chain_holds(idle: Served) -> None:
    client = idle.client()
    for number in range(5):
        await client.post(f"/internal/queues/q-{number}/intake/pause", json={"force": True})
    first = await get(client, "/internal/audit?limit=3")
    rest = await get(client, f"/internal/audit?cursor={first['cursor']}")
    told = [one["taskId"] for one in first["entries"] + rest["entries"]]
    assert told == [f"queue:q-{n}" for n in (4, 3, 2, 1, 0)]
    chain = await get(client, "/internal/audit/verify")
    assert (chain["holds"], chain["links"]) == (True, 5)
    noted = await get(client, f"/internal/audit/verify?head={chain['head']}")
    assert noted["holds"] is True
    other = await get(client, f"/internal/audit/verify?head=5:{'0' * 64}")
    assert (other["holds"], other["brokenAt"]) == (False, 5)


async def test_every_transition_is_listed_with_who_made_it_in_pages(idle: Served) -> None:
    client = idle.client()
    body = {"tasks": [{"type": "mail.send", "payload": "x", "tenant": one} for one in ("a", "b")]}
    made = [one["taskId"] for one in (await client.post("/api/tasks", json=body)).json()["tasks"]]
    await client.post(f"/api/tasks/{made[0]}/pause", json={"reason": "lunch"})
    path = "/internal/audit/transitions"
    told = (await get(client, f"{path}?tenant=a"))["transitions"]
    assert [(one["command"], one["before"], one["after"]) for one in told] == [
        ("submit", None, "PENDING"),
        ("pause", "PENDING", "PAUSED"),
    ]
    assert [(one["maker"], one["name"], one["reason"]) for one in told] == [
        ("client", "", ""),
        ("operator", "api:admin", "lunch"),
    ]
    assert {one["taskId"] for one in told} == {made[0]}
    assert (await get(client, f"{path}?task={made[0]}"))["transitions"] == told
    assert (await get(client, f"{path}?until=2001-01-01T00:00:00Z"))["transitions"] == []
    first = await get(client, f"{path}?limit=1")
    rest = await get(client, f"{path}?limit=9&cursor={first['cursor']}")
    whole = (await get(client, path))["transitions"]
    assert (first["transitions"] + rest["transitions"], rest["cursor"]) == (whole, None)
    assert (await client.get(f"{path}?task=nobody")).status_code == 404
    assert (await client.get(f"{path}?cursor=x")).status_code == 422


async def test_the_doctor_looks_and_mends_and_only_mending_is_written_down(idle: Served) -> None:
    client = idle.client()
    told = await get(client, "/internal/doctor")
    assert told["findings"] == []
    assert (await get(client, "/internal/audit"))["entries"] == []
    mended = await client.post("/internal/doctor/fix", json={"reason": "after the restore"})
    assert mended.status_code == 200
    [entry] = (await get(client, "/internal/audit"))["entries"]
    assert (entry["command"], entry["reason"]) == ("doctor fix", "after the restore")


@pytest.mark.parametrize(
    ("query", "kind", "has"),
    [
        ("", "image/svg+xml", "<svg"),
        ("format=mermaid", "text/vnd.mermaid", "stateDiagram"),
        ("format=text&live=true", "text/plain", "PENDING"),
        ("of=plans&live=true", "image/svg+xml", "<svg"),
    ],
)
async def test_the_states_are_drawn(idle: Served, query: str, kind: str, has: str) -> None:
    answer = await idle.client().get(f"/internal/states?{query}")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith(kind)
    assert has in answer.text


# -- health


async def test_readyz_says_whether_anything_is_consumed(served: Served, idle: Served) -> None:
    await worker_of(served)
    assert (await get(served.client(None), "/readyz"))["consuming"] is True
    assert (await get(idle.client(None), "/readyz"))["consuming"] is False


async def test_without_its_store_it_lives_and_is_not_ready(
    still: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: object, **__: object) -> None:
        raise StoreUnavailable("the store is away")

    for verb in ("workers", "load", "find", "detail", "peek"):
        monkeypatch.setattr(still.app.store.views, verb, away)
    monkeypatch.setattr(still.app.store.tasks, "insert", away)
    monkeypatch.setattr(health, "FRESH_SECONDS", 0.0)
    client = still.client()
    assert (await client.get("/livez")).status_code == 200
    ready = await client.get("/readyz")
    assert (ready.status_code, ready.json()["status"]) == (503, "not-ready")
    for method, path, body in (
        ("GET", "/api/tasks", None),
        ("GET", "/api/tasks/some-task", None),
        ("POST", APPLY, {"type": "mail.send", "payload": "ann"}),
    ):
        answer = await client.request(method, path, json=body)
        assert answer.status_code == 503, answer.text
        assert answer.headers["retry-after"]
    monkeypatch.undo()
    assert (await client.get("/readyz")).status_code == 200, "it comes back by itself"


async def test_a_service_that_stops_is_not_ready(idle: Served) -> None:
    idle.service.stopping.set()
    answer = await idle.client(None).get("/readyz")
    assert (answer.status_code, answer.json()["stopping"]) == (503, True)


# -- tenants whose names have slashes


@pytest.mark.parametrize("tenant", ["a/b", "a/b/c", "a//b", "a/retry", "a/query", "x/", "a@b/c=d"])
@pytest.mark.parametrize("encoded", [True, False])
async def test_a_tenant_with_slashes_is_reached_on_every_route(
    idle: Served, tenant: str, encoded: bool
) -> None:
    client, written = idle.client(), quote(tenant, safe="") if encoded else tenant
    if tenant.endswith("/retry"):
        written = quote(tenant, safe="")  # as it is, it would be a command
    body = {"tasks": [{"type": "mail.send", "payload": "ann", "tenant": tenant}]}
    [made] = (await client.post("/api/tasks", json=body)).json()["tasks"]
    shown = await client.get(f"/internal/tenants/{written}")
    assert (shown.status_code, shown.json().get("tenantId")) == (200, tenant), shown.text
    assert shown.json()["active"]["taskId"] == made["taskId"]
    retried = await client.post(f"/internal/tenants/{written}/retry")
    assert retried.json()["code"] == "illegal-transition", "it was found, and only waits"
    for path in ("/api/tasks", "/internal/tasks/suspended", "/api/triggers"):
        listed = await client.get(path, params={"tenant": tenant})
        assert listed.status_code == 200
    [asked] = (await client.post("/internal/tenants/query", json={"tenants": [tenant]})).json()[
        "tenants"
    ]
    assert asked["active"]["taskId"] == made["taskId"]


async def test_the_metrics_and_the_audit_name_the_route_as_it_is_documented(idle: Served) -> None:
    await idle.client("of-t-1").post("/internal/tenants/a%2Fb/retry", json={})
    await idle.client("viewer").post("/internal/tenants/a%2Fb/retry", json={})
    commands = {entry.command for entry in await idle.app.store.admin.audits(limit=10)}
    assert commands == {"POST /internal/tenants/{tenant}/retry"}
    told = (await idle.client().get("/metrics")).text
    assert 'route="/internal/tenants/{tenant}/retry"' in told
    assert ":path" not in told


# -- series that are there from the start


async def test_what_the_rules_look_at_is_told_as_0_before_it_happens(idle: Served) -> None:
    told = set((await idle.client().get("/metrics")).text.splitlines())
    assert 'holdfast_refused_total{status="RUNNING",command="retry"} 0' in told
    stage = "holdfast_stage_duration_seconds_count"
    for about in ('type="mail.lost",stage="lose"', 'type="tenant.upgrade",stage="migrate"'):
        for outcome in ("done", "failed"):
            assert f'{stage}{{{about},outcome="{outcome}"}} 0' in told
    for kind in ("unauthenticated", "forbidden", "too-many-requests"):
        assert f'holdfast_auth_failures_total{{kind="{kind}"}} 0.0' in told


async def test_a_series_that_was_told_as_0_is_told_once_when_it_has_happened(
    served: Served,
) -> None:
    await lose(served.client())
    await served.client(None).get("/api/tasks")
    told = (await served.client().get("/metrics")).text.splitlines()
    names = [line.rpartition(" ")[0] for line in told if not line.startswith("#")]
    assert len(names) == len(set(names))
    assert 'holdfast_auth_failures_total{kind="unauthenticated"} 1.0' in told


def test_the_kinds_of_refused_tokens_are_those_of_the_errors() -> None:
    codes = {Unauthenticated.code, Forbidden.code, TooManyRequests.code}
    assert codes == set(AUTH_FAILURES)


async def test_a_command_of_a_tenant_is_no_tenant_of_that_name(idle: Served) -> None:
    for method in ("GET", "OPTIONS"):
        answer = await idle.client().request(method, "/internal/tenants/t-1/retry")
        assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
