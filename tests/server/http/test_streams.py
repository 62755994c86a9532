"""Live streams: through an outage, as long as the token counts, and not too many at once."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from itertools import islice
from typing import Any

import httpx
import pytest
from msgspec.structs import replace

from holdfast import Context
from holdfast.domain.errors import StoreUnavailable
from holdfast.engine.visibility import WHOLE
from holdfast.server.auth import revocation
from holdfast.server.auth import tokens as tk
from holdfast.server.auth.tokens import Role
from holdfast.server.http import sse
from holdfast.server.http.sse import Position
from holdfast.server.live import live_feed, stream_quota
from holdfast.server.routes import events
from holdfast.settings import load
from holdfast.testing.clock import ManualClock
from tests.server import conftest
from tests.server.conftest import Served, declared
from tests.support.server.listener import Listening, listening

BOUND_SECONDS = 60.0
ALERTS = "/internal/alerts/events"


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_feed, "POLL_SECONDS", 0.02)


# -- through an outage


class Blinking:
    """Fails once, and then is as it was."""

    def __init__(self, real: Callable[..., Any]) -> None:
        self._real, self.failed = real, False

    async def __call__(self, *args: Any, **options: Any) -> Any:
        if not self.failed:
            self.failed = True
            raise StoreUnavailable("gone for a moment")
        return await self._real(*args, **options)


async def told(source: AsyncIterator[bytes]) -> list[bytes]:
    async with asyncio.timeout(BOUND_SECONDS):
        return [part async for part in source]


async def test_a_tasks_stream_goes_on_after_an_outage(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if its last version was seen just before."""
    body = {"type": "mail.send", "payload": "ann"}
    answer = await served.client().post("/api/workflows/apply", json=body)
    task_id = answer.json()["taskId"]
    blinking = Blinking(served.app.store.views.detail)
    monkeypatch.setattr(served.app.store.views, "detail", blinking)
    parts = await told(events._task_stream(served.service, task_id, Position(), WHOLE))
    assert blinking.failed
    assert b"event: end" in parts[-1]
    assert any(b"event: TaskCompleted" in part for part in parts)


async def test_a_plans_stream_goes_on_after_an_outage(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = {"planId": "p-1", "type": "mail.send", "payload": "ann", "tenants": ["t-1"]}
    assert (await served.client().post("/api/plans", json=body)).status_code == 201
    before = await told(
        events._plan_stream(served.service, "p-1", Position(), WHOLE)
    )  # it has settled then
    blinking = Blinking(served.app.store.plans.events)
    monkeypatch.setattr(served.app.store.plans, "events", blinking)
    parts = await told(events._plan_stream(served.service, "p-1", Position(), WHOLE))
    assert blinking.failed
    assert numbered(parts) == numbered(before)
    assert parts[-1] == before[-1]
    assert b"event: end" in parts[-1]


def numbered(parts: list[bytes]) -> list[bytes]:
    return [part for part in parts if part.startswith(b"id:")]


async def test_one_that_cannot_be_read_hides_no_other(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_feed, "DETAILS_AT_ONCE", 1)
    ids = list[str]()
    for _ in range(2):
        body = {"type": "mail.send", "payload": "ann"}
        answer = await served.client().post("/api/workflows/apply", json=body)
        ids.append(answer.json()["taskId"])
    real = served.app.store.views.detail

    async def partly(task_id: str) -> Any:
        if task_id == ids[0]:
            raise StoreUnavailable("never to be read")
        return await real(task_id)

    monkeypatch.setattr(served.app.store.views, "detail", partly)
    first, second = (
        asyncio.create_task(told(events._task_stream(served.service, task_id, Position(), WHOLE)))
        for task_id in ids
    )
    try:
        parts = await second
        assert b"event: end" in parts[-1]
    finally:
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)


# -- many of one task


class Counted:
    """How often a verb of the store was asked for; ``enough`` after so many times."""

    def __init__(self, real: Callable[..., Any], enough: int) -> None:
        self._real, self._enough = real, enough
        self.count, self.enough = 0, asyncio.Event()

    async def __call__(self, *args: Any, **options: Any) -> Any:
        self.count += 1
        if self.count >= self._enough:
            self.enough.set()
        return await self._real(*args, **options)


@pytest.fixture
async def waiting() -> AsyncIterator[tuple[Served, asyncio.Event]]:
    """With a task that runs until the event is set."""
    app, go_on = declared(), asyncio.Event()

    @app.task("waits")
    async def waits(ctx: Context, order: str) -> str:
        await go_on.wait()
        return order

    async for served in conftest.serve(app, workers=1):
        yield served, go_on
        go_on.set()


async def test_many_who_watch_one_running_task_share_one_look_at_it(
    waiting: tuple[Served, asyncio.Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    served, go_on = waiting
    batch = {"tasks": [{"type": "waits", "payload": "x"}]}
    answer = await served.client().post("/api/tasks", json=batch)
    task_id, store = answer.json()["tasks"][0]["taskId"], served.app.store
    looks, details = Counted(store.views.load, enough=10), Counted(store.views.detail, enough=10)
    monkeypatch.setattr(store.views, "load", looks)
    monkeypatch.setattr(store.views, "detail", details)
    reading = [
        asyncio.create_task(told(events._task_stream(served.service, task_id, Position(), WHOLE)))
        for _ in range(30)
    ]
    async with asyncio.timeout(BOUND_SECONDS):
        await looks.enough.wait()
        await details.enough.wait()
        assert details.count <= looks.count
        go_on.set()
        found = await asyncio.gather(*reading)
    assert all(b"event: end" in parts[-1] for parts in found)
    assert all(sum(b"TaskCompleted" in part for part in parts) == 1 for parts in found)


# -- how many


@pytest.fixture
def server() -> Iterator[Listening]:
    with listening(declared(), workers=0) as served:
        yield served


def client_of(served: Listening, name: str) -> httpx.Client:
    return httpx.Client(base_url=served.url, headers=served.bearer(name), timeout=BOUND_SECONDS)


def refusal(client: httpx.Client) -> tuple[int, str]:
    with client.stream("GET", ALERTS) as answer:
        assert answer.status_code != 200
        assert answer.headers["retry-after"]
        answer.read()
        return answer.status_code, answer.json()["code"]


def test_most_connections_are_left_to_those_who_do_not_stay() -> None:
    assert load().connection_limit // 2 >= stream_quota.STREAMS_MAX


def test_streams_of_every_kind_are_counted(
    server: Listening, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_quota, "STREAMS_MAX", 1)
    with client_of(server, "admin") as client, client.stream("GET", ALERTS) as first:
        assert first.status_code == 200
        assert refusal(client) == (503, "too-many-streams")


def test_one_token_cannot_take_all_streams(
    server: Listening, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_quota, "STREAMS_OF_TOKEN_MAX", 2, raising=False)
    with ExitStack() as open_ones:
        viewer = open_ones.enter_context(client_of(server, "viewer"))
        admin = open_ones.enter_context(client_of(server, "admin"))
        for client in (viewer, viewer, admin):
            answer = open_ones.enter_context(client.stream("GET", ALERTS))
            assert answer.status_code == 200
        assert refusal(viewer) == (429, "too-many-streams-of-token")


def test_a_stream_that_has_ended_leaves_its_room(
    server: Listening, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sse, "STREAM_SECONDS", 0.05)
    monkeypatch.setattr(sse, "BEAT_SECONDS", 0.02)
    monkeypatch.setattr(stream_quota, "STREAMS_OF_TOKEN_MAX", 1)
    with client_of(server, "viewer") as client:
        assert [client.get(ALERTS).status_code for _ in range(3)] == [200] * 3
    assert server.service.long_requests.streams.taken == 0


# -- for as long as the token counts


def without(token: tk.Token) -> list[tk.Token]:
    return []


def with_another_role(token: tk.Token) -> list[tk.Token]:
    return [replace(token, role=Role.ADMIN)]


def with_fewer_tenants(token: tk.Token) -> list[tk.Token]:
    return [replace(token, tenants=("t-1",))]


def with_another_secret(token: tk.Token) -> list[tk.Token]:
    return [replace(token, hash=tk.hash_text("hf_other"))]


@pytest.mark.parametrize(
    "changed", [without, with_another_role, with_fewer_tenants, with_another_secret]
)
def test_a_stream_ends_when_its_token_was_revoked_or_changed(
    server: Listening,
    monkeypatch: pytest.MonkeyPatch,
    changed: Callable[[tk.Token], list[tk.Token]],
) -> None:
    monkeypatch.setattr(sse, "BEAT_SECONDS", 0.05)
    service = server.service
    [token] = [one for one in service.admission.given if one.name == "viewer"]
    with client_of(server, "viewer") as client, client.stream("GET", ALERTS) as answer:
        lines = answer.iter_lines()
        assert next(lines)
        service.admission.given = tk.Tokens(changed(token))
        assert ends(lines)


def test_a_stream_does_not_outlive_its_token_until_the_next_sign_of_life(
    server: Listening, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(revocation, "POLL_SECONDS", 0.02)
    monkeypatch.setattr(sse, "BEAT_SECONDS", 3600.0)
    service = server.service
    with client_of(server, "viewer") as client, client.stream("GET", ALERTS) as answer:
        lines = answer.iter_lines()
        assert any("not-durable" in line for line in lines), "there is nothing else to tell"
        service.admission.given = tk.Tokens(
            [one for one in service.admission.given if one.name != "viewer"]
        )
        assert list(lines) == [""], "it ends"
    assert service.long_requests.streams.taken == 0


def test_a_stream_ends_when_its_token_expires(
    server: Listening, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sse, "BEAT_SECONDS", 0.05)
    clock = ManualClock()
    soon, text = tk.make("soon", Role.VIEWER, expires_at=clock.now() + 1.0)
    server.service.admission.given = tk.Tokens([soon])
    monkeypatch.setattr(server.app, "clock", clock)
    headers = {"authorization": f"Bearer {text}"}
    with (
        httpx.Client(base_url=server.url, headers=headers, timeout=BOUND_SECONDS) as client,
        client.stream("GET", ALERTS) as answer,
    ):
        assert answer.status_code == 200
        lines = answer.iter_lines()
        assert len(list(islice(lines, 20))) == 20, "it still counts"
        clock.advance(1.0)
        assert ends(lines)


def test_a_token_that_is_left_alone_keeps_its_stream(
    server: Listening, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sse, "BEAT_SECONDS", 0.02)
    service = server.service
    with client_of(server, "viewer") as client, client.stream("GET", ALERTS) as answer:
        service.admission.given = tk.Tokens(list(service.admission.given))  # the same, read again
        assert len(list(islice(answer.iter_lines(), 20))) == 20


def test_nothing_more_is_told_to_a_token_that_was_revoked(
    server: Listening, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even what happens before the next sign of life."""
    service = server.service
    with client_of(server, "viewer") as client, client_of(server, "admin") as admin:
        admin.post("/internal/queues/still/claiming/pause", json={"force": True})
        body = {"tasks": [{"type": "mail.send", "payload": "ann"}]}
        task_id = admin.post("/api/tasks", json=body).json()["tasks"][0]["taskId"]
        with client.stream("GET", f"/api/tasks/{task_id}/events") as answer:
            lines = answer.iter_lines()
            assert any("TaskCreated" in line for line in lines)
            kept = [one for one in service.admission.given if one.name != "viewer"]
            service.admission.given = tk.Tokens(kept)
            assert admin.post(f"/api/tasks/{task_id}/cancel").status_code == 200
            assert not any("Cancelled" in line for line in lines)


def ends(lines: Iterator[str]) -> bool:
    """Signs of life come as long as it lasts."""
    ends_at = time.monotonic() + BOUND_SECONDS
    return all(time.monotonic() < ends_at for _ in lines)
