"""The store goes away and comes back under load: clear errors meanwhile, and no restart needed."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import pytest

from holdfast import Status
from holdfast.cli.exit_codes import Exit
from tests.support.redis.redis_servers import StartRedis
from tests.support.server.processes import BOUND_SECONDS, Answer, Line, Serving
from verify.servers import RedisServer
from verify.servers.poll import until

CALLERS = 4
SOME = 12  # answers, which show that it goes on
STORE_SECONDS = 1.0  # the time-out of the store
LATE_SECONDS = 10.0  # that, and what a busy machine adds to it
PROBLEM = "application/problem+json"
PAUSE_SECONDS = 0.005  # between two requests of a caller, who else would fill the log


@dataclass
class Callers:
    """A steady load: each of them submits, and submits again whatever was answered."""

    serving: Serving
    accepted: list[str] = field(default_factory=list)
    refused: list[Answer] = field(default_factory=list)
    others: list[object] = field(default_factory=list)  # what nobody should ever get
    refused_seconds: list[float] = field(default_factory=list)  # how long each of them took
    _enough: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    def __enter__(self) -> "Callers":
        self._threads = [threading.Thread(target=self._call) for _ in range(CALLERS)]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._enough.set()
        for thread in self._threads:
            thread.join(BOUND_SECONDS)

    def _call(self) -> None:
        line = self.serving.line()
        try:
            while not self._enough.wait(PAUSE_SECONDS):
                self._submit(line)
        except Exception as error:
            self.others.append(error)
        finally:
            line.close()

    def _submit(self, line: Line) -> None:
        begun = time.monotonic()
        answer = line.ask("POST", "/api/tasks", {"tasks": [{"type": "mail.send", "payload": "a"}]})
        if answer.status == 202:
            self.accepted.append(answer.json["tasks"][0]["taskId"])
        elif answer.status == 503:
            self.refused_seconds.append(time.monotonic() - begun)
            self.refused.append(answer)
        else:
            self.others.append((answer.status, answer.body))

    def until_more(self, answers: list[str] | list[Answer]) -> None:
        wanted = len(answers) + SOME
        until(lambda: len(answers) >= wanted or self.others, "more", seconds=BOUND_SECONDS)
        assert self.others == []


@pytest.fixture
def server(start_redis: StartRedis) -> RedisServer:
    # With everysec a write waits for a sync that is under way: kill -9 may lose it.
    return start_redis(appendonly=True, appendfsync="always")


@pytest.fixture
def serving(server: RedisServer, tmp_path: Path) -> Iterator[Serving]:
    store = f"{server.url}/0?timeout={STORE_SECONDS:g}s"
    with ExitStack() as started:
        serving = until(lambda: served_by(store, tmp_path, started), "it listens", seconds=120)
        assert serving is not None
        yield serving


def served_by(store: str, folder: Path, started: ExitStack) -> Serving | None:
    """None: the store did not answer in its short time, and so the service did not start."""
    serving = started.enter_context(Serving(folder, HOLDFAST_STORE=store, HOLDFAST_LEASE="4s"))
    if serving.is_listening():
        return serving
    assert serving.ended() == Exit.STORE, serving.said()
    return None


def status_of(serving: Serving, path: str) -> int:
    return serving.ask("GET", path).status


def metrics_of(serving: Serving) -> bytes:
    """They are a few seconds old, and there whatever the store does."""
    answer = serving.ask("GET", "/metrics")
    assert answer.status == 200
    return answer.body


def killed(server: RedisServer) -> tuple[Callable[[], object], Callable[[], object]]:
    return server.kill, server.start


def frozen(server: RedisServer) -> tuple[Callable[[], object], Callable[[], object]]:
    """It keeps its connections and answers nobody."""
    return server.pause, server.resume


@pytest.mark.parametrize("way", [killed, frozen])
def test_the_store_goes_and_comes_back_under_load(
    server: RedisServer,
    serving: Serving,
    way: Callable[[RedisServer], tuple[Callable[[], object], Callable[[], object]]],
) -> None:
    go, come = way(server)
    with Callers(serving) as callers:
        callers.until_more(callers.accepted)
        go()
        callers.until_more(callers.refused)
        assert_it_says_that_the_store_is_away(serving)
        come()
        callers.until_more(callers.accepted)
    assert callers.others == []
    # Not the slowest: a machine that stands still for a while keeps all callers waiting at once.
    assert median(callers.refused_seconds) < LATE_SECONDS
    for answer in callers.refused:
        assert_clear(answer)
    until(lambda: status_of(serving, "/readyz") == 200, "ready", seconds=BOUND_SECONDS)
    assert_all_are_done(serving, callers.accepted)
    serving.signal()
    assert serving.ended() == 0  # it was the same process all the time


def assert_it_says_that_the_store_is_away(serving: Serving) -> None:
    assert status_of(serving, "/livez") == 200
    until(lambda: status_of(serving, "/readyz") == 503, "not ready", seconds=BOUND_SECONDS)
    assert_clear(serving.ask("GET", "/api/tasks"))
    assert_clear(serving.apply("mail.send", "ann"))
    until(lambda: b"\nholdfast_up 0" in metrics_of(serving), "it is down", seconds=BOUND_SECONDS)
    assert status_of(serving, "/livez") == 200


def assert_clear(answer: Answer) -> None:
    headers = {name.lower(): value for name, value in answer.headers.items()}
    assert (answer.status, headers["content-type"]) == (503, PROBLEM), answer.body
    assert int(headers["retry-after"]) >= 1
    assert answer.json["code"].startswith("store-")
    assert "Traceback" not in answer.json["detail"]


def assert_all_are_done(serving: Serving, task_ids: list[str]) -> None:
    line = serving.line()

    def is_done(task_id: str) -> bool:
        answer = line.ask("GET", f"/api/tasks/{task_id}")
        assert answer.status == 200, (task_id, answer.body)
        return bool(answer.json["status"] == Status.COMPLETED)

    try:
        for task_id in task_ids:
            until(lambda one=task_id: is_done(one), task_id, seconds=BOUND_SECONDS)  # type: ignore[misc]
    finally:
        line.close()
