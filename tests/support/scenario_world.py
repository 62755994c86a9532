"""The LLM example as it runs in production: a service, workers, Redis, a database, an endpoint.

Each is a process of its own, that dies with the test, even if the test is killed.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol, Self
from urllib.request import Request, urlopen

import pymongo
import pytest

from tests.support.server.processes import Answer, Line
from verify.servers import RedisServer, until
from verify.servers.context import Running
from verify.servers.lifeline import Lifeline
from verify.servers.mongo import MongoServer

EXAMPLE = Path(__file__).parents[2] / "examples" / "llm"
KEY = "sk-secret-of-the-scenarios-0123456789"
TYPE = "docs.answer"
QUESTION = "What happens when a worker dies?"
BOUND_SECONDS = 120.0
GRACE_SECONDS = 60.0
WAIT_SECONDS = 50.0  # less than whoever asks waits for an answer
HOLDFAST = """  # as `python -m holdfast`, but it takes no slow start for a server out of reach
import sys
from holdfast_command import main
from holdfast.stores.redis.client import driver_connection
driver_connection.CONNECT_SECONDS_MAX = 60.0
sys.exit(main())
"""


class Process(Running):
    """One of ours: its log, its signals, its end."""

    def __init__(self, args: list[str], settings: dict[str, str], log: Path) -> None:
        self._log = log
        # With env before it, as the watcher knows no other way to hand settings on.
        words = [f"{name}={value}" for name, value in settings.items()]
        self._command = ["/usr/bin/env", *words, sys.executable, *args]
        self._life: Lifeline | None = None

    def start(self) -> Self:
        with self._log.open("ab") as log:
            self._life = Lifeline(self._command, folder=EXAMPLE, log=log, leave_folder=True)
        return self

    @property
    def pid(self) -> int:
        assert self._life is not None
        return self._life.pid

    def close(self) -> None:
        """Stop the service as an operator would; all that it started ends with it."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def _end(self, number: int) -> None:
        life, self._life = self._life, None
        if life is not None:
            life.signal(number)
            life.end(grace_seconds=GRACE_SECONDS)

    def said(self) -> str:
        return self._log.read_text()

    def until_said(self, pattern: str) -> str:
        """Wait for output that matches the pattern, and return its group."""

        def look() -> re.Match[str] | None:
            assert self._life is not None
            assert self._life.alive, self.said()
            return re.search(pattern, self.said())

        found = until(look, f"{self._log.name} says {pattern}", seconds=BOUND_SECONDS)
        assert found is not None
        return found[1]


class Service:
    """`holdfast serve`, and whoever has its token."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.url = process.until_said(r"listening on (\S+)")
        self._token = process.until_said(r"(hf_[0-9a-f]{12}_[\w-]{43})")

    def ask(self, method: str, path: str, body: Any = None) -> Answer:
        line = Line(self.url, self._token)
        try:
            return line.ask(method, path, body)
        finally:
            line.close()

    def get(self, path: str) -> Any:
        answer = self.ask("GET", path)
        assert answer.status == 200, answer.body
        return answer.json

    def post(self, path: str, body: Any = None) -> Any:
        answer = self.ask("POST", path, {} if body is None else body)
        assert answer.status == 200, answer.body
        return answer.json

    def apply(
        self, *, wait_seconds: float = WAIT_SECONDS, text: str = QUESTION, **more: Any
    ) -> Answer:
        work = {"type": TYPE, "payload": {"text": text}, "waitSeconds": wait_seconds, **more}
        return self.ask("POST", "/api/workflows/apply", work)

    def task(self, task_id: str) -> Any:
        return self.get(f"/api/workflows/tasks/{task_id}")

    def until(self, task_id: str, is_so: Callable[[Any], bool], what: str) -> Any:
        def look() -> Any:
            task = self.task(task_id)
            return task if is_so(task) else None

        return until(look, f"task {task_id}: {what}", seconds=BOUND_SECONDS)

    def until_status(self, task_id: str, status: str) -> Any:
        return self.until(task_id, lambda task: task["status"] == status, status)

    def until_stage(self, task_id: str, stage: str) -> None:
        """Wait until the task runs this stage."""

        def look() -> bool:
            task = self.get(f"/api/tasks/{task_id}")
            return bool(task["stage"] == stage and task["status"] == "RUNNING")

        until(look, f"task {task_id} is at {stage}", seconds=BOUND_SECONDS)

    def calls(self, task_id: str) -> list[tuple[str, str]]:
        """Each stage that was called, and how it went."""
        runs = self.get(f"/api/tasks/{task_id}/timeline")["runs"]
        return [(call["stage"], call["outcome"]) for run in runs for call in run["calls"]]


class Model:
    """The example's endpoint: how it fails, and how often it was called."""

    def __init__(self, process: Process) -> None:
        self._url = process.until_said(r"listening on (\S+)")

    @property
    def base_url(self) -> str:
        return f"{self._url}/v1"

    def fails(self, **orders: Any) -> None:
        self._control(json.dumps(orders).encode())

    def is_well(self) -> None:
        self.fails()

    @property
    def calls(self) -> int:
        return int(self._control()["calls"])

    def _control(self, body: bytes | None = None) -> Any:
        with urlopen(Request(f"{self._url}/control", body), timeout=BOUND_SECONDS) as answer:
            return json.load(answer)


class World(Running):
    """A world for one scenario: a namespace, a database and an endpoint on given servers."""

    def __init__(
        self,
        folder: Path,
        redis: RedisServer,
        mongo: MongoServer,
        *,
        name: str,
        **settings: str,
    ) -> None:
        self.folder, self.redis, self.mongo, self.name = folder, redis, mongo, name
        self._given = settings
        self._stack = ExitStack()
        self._numbers = iter(range(1, 1000))

    def start(self) -> Self:
        self.model = Model(self._start("endpoint", ["endpoint.py", "--port", "0"], {}))
        return self

    def close(self) -> None:
        self._stack.close()

    def _start(self, name: str, args: list[str], settings: dict[str, str]) -> Process:
        log = self.folder / f"{name}-{next(self._numbers)}.log"
        return self._stack.enter_context(Process(args, settings, log))

    @property
    def _settings(self) -> dict[str, str]:
        usual = {
            "HOLDFAST_STORE": f"{self.redis.url}?timeout=60s",
            "HOLDFAST_NAMESPACE": self.name,
            "HOLDFAST_LEASE": "10m",  # it lapses when the test says so
            "HOLDFAST_WEBHOOK_TIMEOUT": "30s",
            "OPENAI_BASE_URL": self.model.base_url,
            "OPENAI_API_KEY": KEY,
            "ANSWER_BACKOFF": "0.3s",
            "ANSWER_CALL_SECONDS": "60",
            "ANSWER_STORE_SECONDS": "60",
            "MONGODB_URL": f"{self.mongo.url}/{self.name}",
            "NO_PROXY": "127.0.0.1",
            "PYTHONDONTWRITEBYTECODE": "1",
            "HOLDFAST_STOP_DELAY": "0",
        }
        return usual | self._given

    def serve(self) -> Service:
        args = ["-c", HOLDFAST, "serve", "app:app", "--port", "0", "--no-workers"]
        return Service(self._start("service", args, self._settings))

    def work(self, **settings: str) -> Process:
        """A worker, as soon as it takes tasks."""
        args = ["-c", HOLDFAST, "worker", "app:app"]
        worker = self._start("worker", args, self._settings | settings)
        worker.until_said(r"holdfast.cli.\w+: (worker) ")
        return worker

    def documents(self) -> list[dict[str, Any]]:
        """The entries of the history."""
        return self._documents("history")

    def summaries(self) -> dict[str, dict[str, Any]]:
        """Return the summaries by tenant."""
        return {one["_id"]: one for one in self._documents("summaries")}

    def _documents(self, collection: str) -> list[dict[str, Any]]:
        client: pymongo.MongoClient[dict[str, Any]] = pymongo.MongoClient(self.mongo.url)
        with client:
            return list(client[self.name][collection].find())

    def hold_database(self) -> None:
        """Freeze the database: it keeps its connections, and answers nobody."""
        os.kill(self.mongo.pid, signal.SIGSTOP)

    def release_database(self) -> None:
        os.kill(self.mongo.pid, signal.SIGCONT)

    def lapse(self, task_id: str) -> None:
        """End the lease of a task whose worker is dead now."""
        with self.redis.client() as client:
            assert client.zadd(f"{self.name}:leases", {task_id: 1}, xx=True, ch=True) == 1

    # -- what an operator sees with redis-cli

    def in_queue(self, name: str) -> set[str]:
        """The ids in `queue:retry` or `queue:suspended`."""
        with self.redis.client() as client:
            return set(client.zrange(f"{self.name}:queue:{name}", 0, -1))

    def left_over(self, tenant: str) -> dict[str, int]:
        """Count the traces in Redis of work that is not done."""
        stream = f"{self.name}:queue:tasks"
        with self.redis.client() as client:
            return {
                "in the stream": int(client.xlen(stream)),
                "pending": int(client.xpending(stream, "workers")["pending"]),
                "leases": int(client.zcard(f"{self.name}:leases")),
                "retry": int(client.zcard(f"{self.name}:queue:retry")),
                "suspended": int(client.zcard(f"{self.name}:queue:suspended")),
                "lock": int(client.exists(f"{self.name}:lock:tenant:{tenant}")),
            }

    def kept(self) -> str:
        """All that Redis has of this scenario."""
        with self.redis.client() as client:
            readers: dict[str, Callable[[str], Any]] = {
                "string": client.get,
                "hash": client.hgetall,
                "list": lambda key: client.lrange(key, 0, -1),
                "set": client.smembers,
                "zset": lambda key: client.zrange(key, 0, -1),
                "stream": client.xrange,
            }
            keys = list(client.scan_iter(f"{self.name}:*"))
            return "".join(f"{key}: {readers[client.type(key)](key)}\n" for key in keys)

    def logs(self) -> str:
        return "".join(path.read_text() for path in sorted(self.folder.glob("*.log")))


class StartWorld(Protocol):
    def __call__(self, redis: RedisServer | None = None, **settings: str) -> World:
        """Make a world that lasts until the test ends, by default on the Redis of all tests."""


@pytest.fixture(scope="module")
def worlds_mongo() -> Iterator[MongoServer]:
    """One for all tests of a module, each with a database of its own; it may be killed."""
    with MongoServer() as server:
        yield server


@pytest.fixture
def start_world(
    redis_server: RedisServer, worlds_mongo: MongoServer, redis_namespace: str, tmp_path: Path
) -> Iterator[StartWorld]:
    """``world = start_world(ANSWER_STORE_SECONDS="0.3")``"""
    with ExitStack() as started:

        def start(redis: RedisServer | None = None, **settings: str) -> World:
            given = redis or redis_server
            world = World(tmp_path, given, worlds_mongo, name=redis_namespace, **settings)
            return started.enter_context(world)

        yield start
