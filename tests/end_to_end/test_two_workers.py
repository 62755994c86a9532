"""The same app on SQLite and on Redis: two workers started by hand, one of them killed."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from tests.docs.test_readme import example
from tests.support.sqlite.sqlite_files import ask
from verify.servers import RedisServer, until

APP = '''
"""A shop, as its owner wrote it."""

import asyncio
import os
from pathlib import Path

from holdfast import Context, Holdfast
from verify.servers import until

app = Holdfast()
order = app.workflow("shop.order", payload=int, result=str)


@order.stage
async def pay(ctx: Context, number: int) -> str:
    return f"paid {number}"


@order.stage
async def ship(ctx: Context, number: int) -> str:
    with open("shipping.log", "a") as log:
        log.write(f"{os.getpid()} {ctx.task_id}\\n")
    await asyncio.to_thread(until, Path("harbour-is-open").exists, "it is open", seconds=600)
    return f"{ctx.result_of(pay)}, shipped"
'''
SUBMIT = """
import shop
with shop.app.blocking as app:
    for number in range(8):
        print(app.submit(shop.order, number, tenant=f"t-{number}", key=f"order-{number}").id)
"""
LAPSE = "UPDATE leases SET until = 0 WHERE n IN (SELECT n FROM states WHERE id = ?)"
SLOTS = 4
BOUND_SECONDS = 60.0


class Terminal:
    """What a person does in the app's folder."""

    def __init__(self, folder: Path, store: str, opened: ExitStack, **settings: str) -> None:
        self.folder = folder
        self._store, self._opened = store, opened
        self._env = {k: v for k, v in os.environ.items() if not k.startswith("HOLDFAST_")}
        self._env |= {"HOLDFAST_STORE": store, "HOLDFAST_LEASE": "10m", "COLUMNS": "80"}
        self._env |= {"HOLDFAST_SLOTS": str(SLOTS)} | settings

    def python(self, *args: str) -> str:
        return self._done(sys.executable, *args)

    def holdfast(self, *args: str) -> str:
        return self._done(sys.executable, "-m", "holdfast", *args)

    def json(self, *args: str) -> Any:
        return json.loads(self.holdfast(*args, "--json"))

    def worker(self, app: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "holdfast", "worker", app]
        log = self._opened.enter_context((self.folder / "worker.log").open("ab"))
        worker = subprocess.Popen(command, cwd=self.folder, env=self._env, stderr=log)
        self._opened.callback(_end, worker)
        return worker

    def let_lapse(self, ids: set[str]) -> None:
        """As if the rest of their leases had gone by, which is long: a worker that is not run for a
        while must not lose its own."""
        if self._store.startswith("sqlite"):
            for task_id in ids:
                ask(self.folder / "holdfast.db", LAPSE, task_id)
            return
        with Redis.from_url(self._store) as client:
            client.zadd("executor:leases", dict.fromkeys(ids, 0), xx=True)

    def _done(self, *command: str) -> str:
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=self._env,
            capture_output=True,
            text=True,
            timeout=BOUND_SECONDS,
            check=False,
        )
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        return done.stdout


def _end(worker: subprocess.Popen[bytes]) -> None:
    worker.kill()
    worker.wait()


@pytest.fixture(params=["sqlite", "redis"])
def terminal(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Terminal]:
    with ExitStack() as opened:
        if request.param == "redis":
            server = opened.enter_context(RedisServer(appendonly=True))
            yield Terminal(tmp_path, server.url, opened)
        else:
            yield Terminal(tmp_path, "sqlite:///holdfast.db", opened)


def shipped(folder: Path) -> list[tuple[int, str]]:
    """Which process has begun to ship which task."""
    log = folder / "shipping.log"
    lines = log.read_text().splitlines() if log.exists() else []
    return [(int(pid), task_id) for pid, task_id in (line.split() for line in lines)]


def test_one_of_two_workers_is_killed_and_the_other_finishes(terminal: Terminal) -> None:
    folder = terminal.folder
    (folder / "shop.py").write_text(APP)
    dead, heir = (terminal.worker("shop:app") for _ in range(2))
    ids = terminal.python("-c", SUBMIT).split()
    until(
        lambda: len(shipped(folder)) == len(ids) == 2 * SLOTS,
        "both workers have all that they can hold",
        seconds=BOUND_SECONDS,
    )
    dead.send_signal(signal.SIGKILL)
    dead.wait()
    orphans = {task_id for pid, task_id in shipped(folder) if pid == dead.pid}
    assert len(orphans) == SLOTS
    terminal.let_lapse(orphans)
    (folder / "harbour-is-open").touch()
    until(
        lambda: {(heir.pid, task_id) for task_id in orphans} <= set(shipped(folder)),
        "the other has taken over",
        seconds=BOUND_SECONDS,
    )
    until(
        lambda: len(terminal.json("tasks", "list", "--status", "COMPLETED")["tasks"]) == len(ids),
        "all orders are shipped",
        seconds=BOUND_SECONDS,
    )
    task = terminal.json("tasks", "show", min(orphans))
    number = int(task["tenantId"].removeprefix("t-"))
    assert task["result"] == f"paid {number}, shipped"
    commits = [event["stage"] for event in task["events"] if event["event"] == "StageCompleted"]
    assert commits == ["pay", "ship"]  # the first was not done again
    health = terminal.json("doctor")
    assert health["clean"], health
    assert terminal.holdfast("tasks", "list").count("COMPLETED") == len(ids)
    heir.send_signal(signal.SIGTERM)
    assert heir.wait(BOUND_SECONDS) == 0
    assert "has stopped" in (folder / "worker.log").read_text()


@pytest.mark.parametrize("terminal", ["redis"], indirect=True)
def test_the_example_of_the_readme_runs_on_redis_unchanged(terminal: Terminal) -> None:
    (terminal.folder / "example.py").write_text(example())
    said = terminal.python("example.py")
    assert "at 7, snapshot t-001-before-7, effect key" in said
    assert terminal.python("example.py") == said  # the same key: the same task
    assert terminal.json("doctor")["clean"]
