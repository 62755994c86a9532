"""Views of large tasks: to hide their secrets takes long, and others are answered meanwhile."""

import asyncio
import json
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from holdfast import Holdfast
from holdfast.server.live import task_reads
from tests.support.server.listener import BOUND_SECONDS, Listening, listening
from tests.support.server.wire import APPLY, Told, ask, free, head, send
from verify.servers.poll import until

LARGE = "x" * 100_000
PATHS = ("/api/tasks/{}", "/api/tasks/{}/timeline", "/api/workflows/tasks/{}")


@pytest.fixture
def server() -> Iterator[Listening]:
    with listening(free(), workers=1) as served:
        yield served


def submitted(served: Listening, payload: str) -> str:
    body = f'{{"type": "mail.send", "payload": "{payload}"}}'.encode()
    told = ask(served, "POST", APPLY, body)
    assert told.status == 200, told.raw[:500]
    return told.body.partition(b'"taskId":"')[2].partition(b'"')[0].decode()


@contextmanager
def slow_views(app: Holdfast, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Let every view wait until the block ends; which threads have begun one."""
    go, begun, body = threading.Event(), list[int](), app.redactor.body

    def wait(given: bytes) -> Any:
        begun.append(threading.get_ident())
        go.wait(BOUND_SECONDS)
        return body(given)

    monkeypatch.setattr(app.redactor, "body", wait)
    try:
        yield begun
    finally:
        go.set()


def look(served: Listening, path: str, token: str = "viewer") -> Told:
    ours, theirs = served.tokens["admin"].encode(), served.tokens[token].encode()
    return send(served, head(served, "GET", path).replace(ours, theirs))


@pytest.mark.parametrize("path", PATHS)
def test_others_are_answered_while_a_large_task_is_shown(
    server: Listening, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    task_id = submitted(server, LARGE)
    with ThreadPoolExecutor(1) as threads:
        with slow_views(server.app, monkeypatch) as begun:
            shown = threads.submit(look, server, path.format(task_id))
            until(lambda: len(begun) == 1, "the view has begun")
            assert ask(server, "GET", "/livez").status == 200
            assert ask(server, "GET", "/api/tasks").status == 200
            assert not shown.done(), "it was not made before these"
        told = shown.result(BOUND_SECONDS)
    assert told.status == 200
    assert LARGE.encode() in told.body


def test_a_small_task_is_shown_at_once(server: Listening) -> None:
    task_id = submitted(server, "ann")
    server.service.large_views._quota._total = 0
    assert [look(server, path.format(task_id)).status for path in PATHS] == [200] * 3


def test_large_and_small_tasks_look_the_same(server: Listening) -> None:
    ids = [submitted(server, payload) for payload in ("ann", LARGE)]
    for path in PATHS:
        small, large = (look(server, path.format(task_id)) for task_id in ids)
        assert small.headers["content-type"] == large.headers["content-type"]
        assert small.body.count(b":") == large.body.count(b":")


def test_one_token_has_one_large_view_made_at_a_time_and_few_waiting(
    server: Listening, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, views = f"/api/tasks/{submitted(server, LARGE)}", server.service.large_views
    with ThreadPoolExecutor(8) as threads:
        asked = list[Future[Told]]()
        with slow_views(server.app, monkeypatch) as begun:
            asked += [threads.submit(look, server, path) for _ in range(4)]
            until(lambda: views._quota.taken == 4, "four are asked for")
            refused = look(server, path)
            assert (refused.status, refused.code) == (429, "too-many-requests")
            asked.append(threads.submit(look, server, path, "operator"))
            until(lambda: len(set(begun)) == 2, "another token has its own turn")
        assert [one.result(BOUND_SECONDS).status for one in asked] == [200] * 5
    until(lambda: not views._turns, "nothing is left of them")
    assert views._quota.taken == 0


def test_few_tasks_are_read_at_once(server: Listening, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each may have megabytes, whether or not it can be shown then."""
    path, go = f"/api/tasks/{submitted(server, LARGE)}", asyncio.Event()
    read, begun = server.app.store.views.detail, list[str]()

    async def read_late(task_id: str) -> Any:
        begun.append(task_id)
        await go.wait()
        return await read(task_id)

    monkeypatch.setattr(server.app.store.views, "detail", read_late)
    monkeypatch.setattr(server.service.large_views, "_reads", asyncio.Semaphore(2))
    monkeypatch.setattr(task_reads, "READ_WAIT_SECONDS", 0.01)
    with ThreadPoolExecutor(2) as threads:
        first = [threads.submit(look, server, path) for _ in range(2)]
        until(lambda: len(begun) == 2, "two are read")
        refused = look(server, path)
        assert (refused.status, refused.code) == (503, "overloaded")
        assert len(begun) == 2
        server.loop.call_soon_threadsafe(go.set)
        assert [one.result(BOUND_SECONDS).status for one in first] == [200, 200]
    assert look(server, path).status == 200


def test_others_are_answered_while_a_large_result_is_made_ready(
    server: Listening, monkeypatch: pytest.MonkeyPatch
) -> None:
    went, body = list[int](), server.service.hide_declared.body

    def note(given: bytes) -> Any:
        went.append(threading.get_ident())
        return body(given)

    async def loop_thread() -> int:
        return threading.get_ident()

    monkeypatch.setattr(server.service.hide_declared, "body", note)
    submitted(server, "ann")
    submitted(server, LARGE)
    of_loop = server.do(loop_thread)
    assert [one == of_loop for one in went] == [True, False]


def test_a_large_result_that_finds_no_place_is_left_for_later(server: Listening) -> None:
    """The task is accepted, so that its id is told in any case."""
    server.service.large_views._quota._total = 0
    body = f'{{"type": "mail.send", "payload": "{LARGE}"}}'.encode()
    told = ask(server, "POST", APPLY, body)
    assert told.status == 202
    answer = json.loads(told.body)
    assert (answer["status"], answer["taskStatus"]) == ("completed", "COMPLETED")
    assert "result" not in answer
    server.service.large_views._quota._total = 1
    assert look(server, f"/api/workflows/tasks/{answer['taskId']}").status == 200


def test_few_large_results_are_made_ready_at_once(
    server: Listening, monkeypatch: pytest.MonkeyPatch
) -> None:
    body, go, begun = server.service.hide_declared.body, threading.Event(), list[int]()

    def wait(given: bytes) -> Any:
        begun.append(len(given))
        go.wait(BOUND_SECONDS)
        return body(given)

    monkeypatch.setattr(server.service.hide_declared, "body", wait)
    views = server.service.large_views
    with ThreadPoolExecutor(4) as threads:
        asked = [threads.submit(submitted, server, LARGE) for _ in range(4)]
        until(lambda: views._quota.taken == 4, "four are asked for")
        assert len(begun) <= 1, "one token has one made at a time"
        go.set()
        assert all(one.result(BOUND_SECONDS) for one in asked)


def test_the_answer_to_a_new_trigger_with_a_large_payload_needs_a_place(
    server: Listening,
) -> None:
    def created(name: str, payload: str) -> Told:
        new = {"triggerId": name, "type": "mail.send", "payload": payload, "every": "1h"}
        return ask(server, "POST", "/api/triggers", json.dumps(new).encode())

    total, server.service.large_views._quota._total = server.service.large_views._quota._total, 0
    assert created("small", "ann").status == 201
    refused = created("large", LARGE)
    assert (refused.status, refused.code) == (503, "overloaded")
    server.service.large_views._quota._total = total
    again = created("large", LARGE)
    assert again.status == 201, "sent again, it answers with the trigger that is there"
    assert LARGE.encode() in again.body
