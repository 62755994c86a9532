"""A service that is told to stop: it says so first, and whoever listens to that loses nothing."""

import asyncio
import http.client
import signal
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast
from holdfast.domain.errors import InvalidSetting
from holdfast.settings import load
from tests.support.server.balancer import Backend, Balancer
from tests.support.server.processes import BOUND_SECONDS, Line, Serving, token_file
from verify.servers.poll import until

LONG = "600s"  # as long as it takes: a second signal ends it
CLIENTS = 6


def body(key: str, wait_seconds: float = 0.0) -> dict[str, Any]:
    return {"type": "mail.send", "payload": "ann", "key": key, "waitSeconds": wait_seconds}


def test_readiness_says_so_first_and_connections_are_told_to_close(tmp_path: Path) -> None:
    with Serving(tmp_path, HOLDFAST_STOP_DELAY=LONG) as serving:
        serving.listening()
        line, waiting = serving.line(), serving.line()
        assert line.ask("GET", "/readyz").json["stopping"] is False
        answers = list[Any]()
        asked = {"type": "slow", "payload": "forever", "waitSeconds": 100.0}
        long = threading.Thread(
            target=lambda: answers.append(waiting.ask("POST", "/api/workflows/apply", asked))
        )
        long.start()
        running = "/api/tasks?status=RUNNING"
        until(lambda: serving.ask("GET", running).json["tasks"], "it runs")
        serving.signal()
        serving.until_said("stops in 600 s")
        told = line.ask("GET", "/readyz")
        assert (told.status, told.json["stopping"]) == (503, True)
        assert told.headers["connection"] == "close", "one from before is told with its next answer"
        done = serving.ask("POST", "/api/workflows/apply", body("b", BOUND_SECONDS))
        assert (done.status, done.headers["connection"]) == (200, "close"), "it works meanwhile"
        assert serving.ask("GET", "/livez").status == 200
        assert not answers
        serving.signal()
        long.join(BOUND_SECONDS)
        assert [(one.status, one.headers["connection"]) for one in answers] == [(202, "close")]
        serving.signal()  # the stage never ends
        assert serving.ended() == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_who_sits_before_it_need_not_wait(tmp_path: Path, number: int) -> None:
    delay = LONG if number == signal.SIGINT else "0"
    with Serving(tmp_path, HOLDFAST_STOP_DELAY=delay) as serving:
        serving.listening()
        serving.signal(number)
        assert serving.ended() == 0


@pytest.mark.parametrize("delay", ["-1s", "11m", "soon"])
def test_a_delay_that_makes_no_sense_is_refused(delay: str) -> None:
    with pytest.raises(InvalidSetting, match="HOLDFAST_STOP_DELAY"):
        load(stop_delay=delay)


# -- a rolling restart


class Load:
    """Clients that ask one request after another, and keep their connections while they may."""

    def __init__(self, url: str, token: str) -> None:
        self._url, self._token = url, token
        self._ended = threading.Event()
        self.accepted, self.broken = list[str](), list[str]()
        names = [f"client-{number}" for number in range(CLIENTS)]
        self._clients = [threading.Thread(target=self._run, args=(name,)) for name in names]

    def __enter__(self) -> "Load":
        for client in self._clients:
            client.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for client in self._clients:
            client.join(BOUND_SECONDS)

    def _run(self, name: str) -> None:
        line, number = Line(self._url, self._token), 0
        while not self._ended.is_set():
            number += 1
            key = f"{name}-{number}"
            try:
                answer = line.ask("POST", "/api/workflows/apply", body(key))
            except (OSError, http.client.HTTPException) as error:
                self.broken.append(f"{key}: {error!r}")
                return
            if answer.status != 202:
                self.broken.append(f"{key}: {answer.status} {answer.body!r}")
            self.accepted.append(key)
        line.close()


def restarted(
    old: Serving, backend: Backend, balancer: Balancer, make: Any, load: Load
) -> tuple[Serving, Backend]:
    """End one process, and put a new one into its place."""
    fresh = make()
    came = balancer.add(fresh.url)
    until(lambda: came.is_ready, "the new one is ready")
    old.signal()
    until(lambda: balancer.has_left(backend), "nothing is sent to the old one")
    asked = len(load.accepted)
    until(lambda: len(load.accepted) > asked + 2 * CLIENTS, "the load goes on")
    old.signal()  # nobody is there any more, and so nobody waits
    assert old.ended() == 0
    return fresh, came


def test_a_rolling_restart_under_load_breaks_no_request(tmp_path: Path) -> None:
    path, [token] = token_file(tmp_path)
    store, count = f"sqlite:///{tmp_path}/tasks.db", 0
    with ExitStack() as after, Balancer() as balancer:

        def make() -> Serving:
            nonlocal count
            count += 1
            folder = tmp_path / f"process-{count}"
            folder.mkdir()
            settings = {"HOLDFAST_STORE": store, "HOLDFAST_TOKENS": str(path)}
            made = Serving(folder, "--no-workers", HOLDFAST_STOP_DELAY=LONG, **settings)
            after.enter_context(made)
            made.listening()
            return made

        processes = [make(), make()]
        backends = [balancer.add(one.url) for one in processes]
        until(lambda: all(one.is_ready for one in backends), "both are ready")
        with Load(balancer.url, token) as load:
            until(lambda: len(load.accepted) > 5 * CLIENTS, "the load has begun")
            for old, backend in zip(processes, backends, strict=True):
                restarted(old, backend, balancer, make, load)
        assert load.broken == []
        assert len(set(load.accepted)) == kept(store)


def kept(store: str) -> int:
    app = Holdfast(store)

    async def count() -> int:
        async with app:
            return sum((await app.store.views.stats()).by_status.values())

    return asyncio.run(count())
