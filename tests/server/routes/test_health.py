"""Liveness, readiness and metrics."""

import pytest

from holdfast.domain.errors import StoreUnavailable
from holdfast.observe.metrics import AUTH_FAILURES
from holdfast.server.auth.access import Forbidden, TooManyRequests, Unauthenticated
from holdfast.server.routes import health
from tests.server.conftest import Served
from tests.support.server.requests import APPLY, get, lose, worker_of


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
