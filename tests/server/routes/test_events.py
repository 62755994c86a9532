"""Live events over a real connection: each once, in order, from where the reader left off."""

import asyncio
import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from holdfast import Context, Holdfast
from holdfast.server.http import sse
from holdfast.server.live import live_feed, stream_quota
from tests.server.conftest import declared
from tests.support.server.listener import Listening, listening
from verify.servers.poll import until

BOUND_SECONDS = 60.0


@dataclass(frozen=True)
class Event:
    id: str | None
    name: str
    data: Any


class Gate:
    """A stage of the service's worker waits here for the test."""

    def __init__(self) -> None:
        self.open = threading.Event()


def gated(gate: Gate) -> Holdfast:
    app = declared()
    flow = app.workflow("gated", payload=str)

    @flow.stage
    async def before(ctx: Context, order: str) -> str:
        return order

    @flow.stage
    def waits(ctx: Context, order: str) -> str:
        ctx.progress(0.5, "half way, token=abcdef")
        assert gate.open.wait(BOUND_SECONDS)
        return order

    return app


@pytest.fixture
def gate() -> Iterator[Gate]:
    one = Gate()
    yield one
    one.open.set()


@pytest.fixture
def listens(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> Iterator[Listening]:
    monkeypatch.setattr(live_feed, "POLL_SECONDS", 0.05)
    with listening(gated(gate)) as served:
        try:
            yield served
        finally:
            gate.open.set()


def client_of(served: Listening, name: str = "admin") -> httpx.Client:
    return httpx.Client(base_url=served.url, headers=served.bearer(name), timeout=BOUND_SECONDS)


def apply(client: httpx.Client, type: str, payload: Any, wait: float = 0.0) -> str:
    body = {"type": type, "payload": payload, "waitSeconds": wait}
    return str(client.post("/api/workflows/apply", json=body).json()["taskId"])


def read(lines: Iterator[str]) -> Iterator[Event]:
    """Fields, then an empty line; a line that begins with a colon is a sign of life."""
    found: dict[str, str] = {}
    for line in lines:
        if line:
            name, _, value = line.partition(":")
            found[name] = value.removeprefix(" ")
            continue
        if "data" in found:
            yield Event(found.get("id"), found["event"], json.loads(found["data"]))
        found = {}


def all_of(client: httpx.Client, path: str, last: str | None = None) -> list[Event]:
    headers = {} if last is None else {"last-event-id": last}
    with client.stream("GET", path, headers=headers) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert answer.headers["cache-control"] == "no-store"
        return list(read(answer.iter_lines()))


def names(events: Sequence[Event]) -> list[str]:
    return [event.name for event in events]


def test_a_settled_tasks_stream_has_every_event_once_in_order_and_ends(listens: Listening) -> None:
    with client_of(listens) as client:
        task_id = apply(client, "tenant.upgrade", {"version": 7}, wait=20)
        events = all_of(client, f"/api/tasks/{task_id}/events")
        kept = client.get(f"/api/tasks/{task_id}").json()["events"]
    numbered = [event for event in events if event.id is not None]
    assert [event.data for event in numbered] == kept
    assert [event.name for event in numbered] == [one["event"] for one in kept]
    ids = [tuple(map(int, str(event.id).split("."))) for event in numbered]
    assert ids == sorted(set(ids))
    assert (events[-1].name, events[-1].data["status"]) == ("end", "COMPLETED")


def test_a_reader_goes_on_from_any_id_without_a_gap_or_a_repeat(listens: Listening) -> None:
    """In the middle of a version, too: a stage's start and end are written together."""
    with client_of(listens) as client:
        task_id = apply(client, "tenant.upgrade", {"version": 7}, wait=20)
        path = f"/api/tasks/{task_id}/events"
        whole = [event for event in all_of(client, path) if event.id is not None]
        assert any(str(event.id).endswith(".2") for event in whole)
        for number, event in enumerate(whole):
            rest = [one for one in all_of(client, path, event.id) if one.id is not None]
            assert rest == whole[number + 1 :]
            by_query = all_of(client, f"{path}?after={event.id}")
            assert [one for one in by_query if one.id is not None] == rest
            assert by_query[-1].name == "end"


def test_what_happens_while_somebody_watches_is_told_as_it_happens(
    listens: Listening, gate: Gate
) -> None:
    with client_of(listens) as client:
        task_id = apply(client, "gated", "x")
        with client.stream("GET", f"/api/tasks/{task_id}/events") as answer:
            found = list[Event]()
            for event in read(answer.iter_lines()):
                found.append(event)
                if event.name == "progress" and event.data["fraction"] == 0.5:
                    gate.open.set()
    numbered = [event for event in found if event.id is not None]
    assert len({event.id for event in numbered}) == len(numbered)
    assert names(numbered)[0] == "TaskCreated"
    assert names(numbered)[-1] == "TaskCompleted"
    assert found[-1].name == "end"


def test_progress_is_told_without_an_id_and_without_secrets(listens: Listening, gate: Gate) -> None:
    with client_of(listens) as client:
        task_id = apply(client, "gated", "x")
        with client.stream("GET", f"/api/tasks/{task_id}/events") as answer:
            told = next(one for one in read(answer.iter_lines()) if one.name == "progress")
        gate.open.set()
    assert told.id is None
    assert told.data["message"] == "half way, token=***"


def test_a_reader_that_was_cut_off_misses_nothing(listens: Listening, gate: Gate) -> None:
    with client_of(listens) as client:
        task_id = apply(client, "gated", "x")
        path, first = f"/api/tasks/{task_id}/events", list[Event]()
        with client.stream("GET", path) as answer:
            for event in read(answer.iter_lines()):
                if event.id is not None:
                    first.append(event)
                if event.name == "StageCompleted":
                    break
        gate.open.set()
        rest = [one for one in all_of(client, path, first[-1].id) if one.id is not None]
        whole = [one for one in all_of(client, path) if one.id is not None]
    assert first + rest == whole


@pytest.mark.parametrize("last", ["x", "1.x", "-1", "1.2.3", "9" * 16, "1.", "٣"])
def test_an_id_that_was_never_given_out_is_refused(listens: Listening, last: str) -> None:
    with client_of(listens) as client:
        task_id = apply(client, "mail.send", "ann", wait=20)
        headers = [(b"last-event-id", last.encode())]
        answer = client.get(f"/api/tasks/{task_id}/events", headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid-request")


def test_many_watchers_cost_one_look_a_second(
    listens: Listening, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twenty watch two tasks that do not move: a look is one at both together, and while it is
    under way there is no second one."""
    looks = list[Sequence[str]]()
    begun, second, go_on = threading.Event(), threading.Event(), asyncio.Event()
    load = listens.app.store.views.load

    async def held(ids: Sequence[str]) -> Any:
        looks.append(ids)
        (second if begun.is_set() else begun).set()
        await go_on.wait()
        return await load(ids)

    with client_of(listens) as client, ExitStack() as streams:
        tasks = [paused_task(client) for _ in range(2)]
        paths = [f"/api/tasks/{one}/events" for one in tasks * 10]
        answers = [streams.enter_context(client.stream("GET", path)) for path in paths]
        lines = [read(answer.iter_lines()) for answer in answers]
        assert all(next(one).name == "TaskCreated" for one in lines)
        monkeypatch.setattr(listens.app.store.views, "load", held)
        try:
            assert begun.wait(BOUND_SECONDS)
            assert listens.service.feeds.tasks.watched == 20
            assert sorted(looks[0]) == sorted(tasks)
            assert not second.wait(10 * live_feed.POLL_SECONDS), "a look for each watcher"
        finally:
            listens.loop.call_soon_threadsafe(go_on.set)
        assert second.wait(BOUND_SECONDS), "it goes on"


def paused_task(client: httpx.Client) -> str:
    """One that nobody moves."""
    client.post("/internal/queues/default/claiming/pause")
    body = {"tasks": [{"type": "mail.send", "payload": "ann"}]}
    return str(client.post("/api/tasks", json=body).json()["tasks"][0]["taskId"])


def test_a_silent_stream_says_that_it_lives(
    listens: Listening, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sse, "BEAT_SECONDS", 0.05)
    with client_of(listens) as client:
        task_id = paused_task(client)
        with client.stream("GET", f"/api/tasks/{task_id}/events") as answer:
            assert any(line == ": still here" for line in answer.iter_lines())


def test_a_stream_ends_when_its_time_is_over_and_the_reader_can_go_on(
    listens: Listening, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its time may be over before anything was told: then there is all to go on to."""
    monkeypatch.setattr(sse, "STREAM_SECONDS", 0.2)
    monkeypatch.setattr(sse, "BEAT_SECONDS", 0.1)
    with client_of(listens) as client:
        path = f"/api/tasks/{paused_task(client)}/events"
        [told] = until(lambda: all_of(client, path), "an event", seconds=BOUND_SECONDS)
        assert told.name == "TaskCreated"
        assert all_of(client, path, told.id) == []


def test_a_stream_ends_when_the_service_stops(gate: Gate) -> None:
    with listening(gated(gate)) as served, client_of(served) as client:
        task_id = paused_task(client)
        with client.stream("GET", f"/api/tasks/{task_id}/events") as answer:
            events = read(answer.iter_lines())
            assert next(events).name == "TaskCreated"
            served.loop.call_soon_threadsafe(served.service.stopping.set)
            assert list(events) == []


def test_there_is_a_bound_on_streams(listens: Listening, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_quota, "STREAMS_MAX", 1)
    with client_of(listens) as client:
        path = f"/api/tasks/{paused_task(client)}/events"
        with client.stream("GET", path) as answer:
            events = read(answer.iter_lines())
            assert next(events).name == "TaskCreated"
            refused = client.get(path)
            assert (refused.status_code, refused.json()["code"]) == (503, "too-many-streams")
            assert refused.headers["retry-after"]


def test_a_plans_stream_has_its_events_its_progress_and_its_end(listens: Listening) -> None:
    with client_of(listens) as client:
        body = {
            "planId": "p-1",
            "type": "tenant.upgrade",
            "payload": {},
            "tenants": ["t-1", "t-2"],
            "waves": ["1", "100%"],
        }
        assert client.post("/api/plans", json=body).status_code == 201
        path = "/api/plans/p-1/events"
        events = all_of(client, path)
        whole = [event for event in events if event.id is not None]
        assert names(events)[-1] == "end"
        assert events[-1].data == {"planId": "p-1", "status": "COMPLETED"}
        assert [one for one in events if one.name == "progress"][-1].data["progress"] == 1.0
        assert len({event.id for event in whole}) == len(whole)
        for number, event in enumerate(whole):
            rest = [one for one in all_of(client, path, event.id) if one.id is not None]
            assert rest == whole[number + 1 :]
