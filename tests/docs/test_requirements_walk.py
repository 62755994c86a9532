"""The commands of docs/internals/requirements.md, typed in their order into a system that runs."""

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from holdfast.cli.root import cli
from tests.docs.test_requirements import SECTIONS, rows, text
from tests.support.redis.redis_servers import StartRedis
from tests.support.server.processes import Answer, Serving
from tests.support.stand_ins import path_with_curl
from verify.servers import RedisServer, until

DEMO = """  # a slow stage says how far it is, and lasts as long as somebody has to look at it
from pathlib import Path

from holdfast.cli.demo import service as demo_service
from holdfast.cli.demo.service import app
from holdfast.ports import Topic


async def take_a_while(ctx):
    ctx.progress(0.4)
    [task] = await app.store.views.load([ctx.task_id])
    while not task.pause_requested and not (task.last_completed >= 0 and Path("go").exists()):
        await app.store.wait(Topic.RESTED, app.store.ticket(Topic.RESTED), timeout=0.05)
        [task] = await app.store.views.load([ctx.task_id])


demo_service.take_a_while = take_a_while
"""
BOUND_SECONDS = 120.0
CODES = {
    "HOLDFAST_LEASE=soon holdfast stats": 6,
    "HOLDFAST_STORE=redis://127.0.0.1:1 holdfast stats": 5,
}
NOT_HERE = {"holdfast serve", "holdfast worker", "holdfast plans show upgrade-7"}
EMPTY = {  # in the roll-out, and in a moment that nobody can meet
    "cli HGETALL executor:plan:upgrade-7",
    "cli GET executor:trigger:lease:nightly",
}
LEAST = {"holdfast ": 45, "cli ": 20, "GET ": 9, "new ": 4, "bad ": 4, "call ": 4}
AFTER_ITS_END = "cli EXISTS "
SAYS = {  # in this row, to this command: what the row promises, at the latest after a while
    ("3.5", "holdfast why $ID"): r"It reports \d+%",
    ("3.2", "cli TTL executor:ckpt:$ID"): r"^-1$",
    ("3.1 Failure", "holdfast tasks show $BAD"): r"StageFailed(.|\n)*TaskFailed",
    ("B 1", "holdfast tasks show $ID"): r"✓ \w+.*\n.*[▶✓] \w+",  # in haste it is done
    ("B 2", "holdfast tasks show $BAD"): r"StageFailed(.|\n)*TaskFailed",
    ("B 3", "holdfast tasks show $ID"): r"StageCompleted  switch.*\n.*TaskCompleted",
    ("4.1", "cli HGET executor:trigger:nightly keepSeconds"): r"^604800",
    ("4.1", "cli TTL executor:trigger:nightly"): r"^-1$",
}
SPAN = re.compile(r"`([^`]+)`")
VARIABLE = re.compile(r"\$([A-Z]+)")


def typed() -> list[tuple[str, str]]:
    """All that the rows say to type, each with the head of its row, in the order of the page."""
    said = [row for document in SECTIONS for row in rows(document)]
    return [(row[0], span) for row in said for span in SPAN.findall(row[-2])]


def promised(head: str, command: str) -> tuple[str, str] | None:
    return next((one for one in SAYS if head.startswith(one[0]) and one[1] == command), None)


def top() -> tuple[str, str]:
    """The functions that the page gives its reader, and the first that he makes with them."""
    found = re.search(r"```sh\n(.*?)\n([^\n]+)\n```", text("By document"), re.DOTALL)
    assert found is not None
    return found[1], found[2]


class Walk:
    """A service on a Redis of its own, and somebody who types what the page says, and no more."""

    def __init__(self, server: RedisServer, serving: Serving, folder: Path) -> None:
        self._server, self._serving = server, serving
        self._path = f"{Path(sys.executable).parent}{os.pathsep}{path_with_curl(folder)}"
        self._client = server.client()
        self._go = folder / "go"  # for the stages behind the first
        self.known = {"URL": serving.url, "TOKEN": serving.token or "", "ID": "", "BAD": ""}
        self.known["FLAKY"] = ""
        self._driver: list[tuple[str, Callable[[str], None]]] = [
            (r"(?:new|bad|flaky) ", self.shell),
            (r"call ", self.shell),
            (r"(?:HOLDFAST\S+ )?holdfast ", self.holdfast),
            (r"cli ", self.redis),
            (r"GET /", self.get),
            (r"kill -9 \$PID", self.kill),
        ]

    def close(self) -> None:
        self._client.close()

    def type(self, command: str) -> bool:
        """False: it is nothing to type."""
        for pattern, do in self._driver:
            if re.match(pattern, command) and command not in NOT_HERE:
                do(command)
                return True
        return False

    def shell(self, line: str) -> None:
        self._go.unlink(missing_ok=True)
        names = " ".join(f'"${name}"' for name in self.known)
        script = f"{top()[0]}\n{{ {line}; }} >&2\nprintf '%s\\n' {names}\n"
        done = subprocess.run(
            ["/bin/sh", "-eu", "-c", script],
            env={
                **os.environ,
                **self.known,
                "PATH": self._path,
                "HOLDFAST_STORE": f"{self._server.url}?timeout=60s",
            },
            capture_output=True,
            text=True,
            timeout=BOUND_SECONDS,
            check=False,
        )
        assert done.returncode == 0, f"{line}: {done.stderr}"
        self.known = dict(zip(self.known, done.stdout.splitlines(), strict=True))
        if line.startswith("call "):
            assert '"code":' not in done.stderr, f"{line}: {done.stderr}"  # a refusal has one
        else:
            assert all(self.known[name] for name in ("ID", "BAD")), done.stderr
        if "bad " in line:
            self._until("FAILED", of="BAD")

    def shows(self, command: str, promise: str) -> None:
        ask = self._ran if command.startswith("holdfast ") else self._asked
        until(
            lambda: re.search(promise, str(ask(command))),
            f"{command} says {promise}",
            seconds=BOUND_SECONDS,
        )

    def holdfast(self, command: str) -> None:
        output = self._ran(command)
        assert output.strip() or command in CODES, command
        if command.startswith("holdfast tasks pause"):
            self._until("PAUSED")

    def _ran(self, command: str) -> str:
        words = shlex.split(self._filled(command))
        at = words.index("holdfast")
        env = {"HOLDFAST_STORE": self._server.url, "COLUMNS": "200"}
        env |= dict(word.split("=", 1) for word in words[:at])
        done = CliRunner().invoke(cli, words[at + 1 :], env=env)
        assert done.exit_code == CODES.get(command, 0), f"{command}: {done.output}"
        return done.output

    def redis(self, command: str) -> None:
        if command.startswith(AFTER_ITS_END):
            self._completed()
            assert self._asked(command) == 0
        elif command not in EMPTY:
            until(lambda: self._asked(command), command, seconds=BOUND_SECONDS)

    def _asked(self, command: str) -> Any:
        words = shlex.split(self._filled(command))[1:]
        if words[0] == "--scan":
            return list(self._client.scan_iter(words[2]))
        ask: Callable[..., Any] = self._client.execute_command
        return ask(*words)

    def get(self, route: str) -> None:
        path = route.split()[1].replace("{task_id}", self.known["ID"]).replace("{tenant}", "t-1")
        if not path.endswith("/events"):  # a stream
            assert self._get(path).status == 200, route

    def kill(self, command: str) -> None:
        """The worker that runs it; what comes of that is told by its events."""
        del command

        def at_work() -> int | None:
            lease = self._get(f"/api/tasks/{self.known['ID']}").json["lease"]
            found = lease and re.search(r"-(\d+)-\w+$", lease["worker"])
            return int(found[1]) if found else None

        def taken_over() -> bool:
            if is_his := at_work() == pid:
                self._client.zadd("executor:leases", {self.known["ID"]: 1}, xx=True)  # it lapses
            return not is_his

        pid = until(at_work, "somebody runs it", seconds=BOUND_SECONDS)
        assert pid
        os.kill(pid, signal.SIGKILL)
        until(taken_over, "another runs it", seconds=BOUND_SECONDS)
        self._completed()
        told = self._get(f"/api/tasks/{self.known['ID']}/timeline").json
        calls = [(call["stage"], call["outcome"]) for call in told["runs"][0]["calls"]]
        assert "lost" in [outcome for _, outcome in calls], told
        assert [stage for stage, _ in calls].count("snapshot") == 1, told

    def _completed(self) -> None:
        self._go.touch()
        self._until("COMPLETED")

    def _until(self, status: str, *, of: str = "ID") -> None:
        path = f"/api/tasks/{self.known[of]}"
        until(
            lambda: self._get(path).json["status"] == status,
            f"{path} is {status}",
            seconds=BOUND_SECONDS,
        )

    def _get(self, path: str) -> Answer:
        """Send a request on a new connection, because the service closes idle ones."""
        return self._serving.ask("GET", path)

    def _filled(self, command: str) -> str:
        return VARIABLE.sub(lambda found: self.known[found[1]], command)


@pytest.fixture
def walk(start_redis: StartRedis, tmp_path: Path) -> Iterator[Walk]:
    server = start_redis(appendonly=True)
    settings = {"HOLDFAST_STORE": f"{server.url}?timeout=60s", "HOLDFAST_LEASE": "10m"}
    crew = ("--no-workers", "--processes", "2")
    with Serving(tmp_path, *crew, app=DEMO, **settings) as serving:
        serving.listening()
        workers = "/internal/workers"  # a task that is paused before they are there runs no stage
        until(lambda: len(serving.ask("GET", workers).json["workers"]) == 2, "both workers")
        walk = Walk(server, serving, tmp_path)
        yield walk
        walk.close()
        serving.signal()
        serving.ended()


def test_what_the_page_says_to_type_can_be_typed_in_its_order(walk: Walk) -> None:
    walk.shell(top()[1])
    done, kept = list[str](), set[tuple[str, str]]()
    for head, command in typed():
        if walk.type(command):
            done.append(command)
            if (promise := promised(head, command)) is not None:
                walk.shows(command, SAYS[promise])
                kept.add(promise)
    assert kept == set(SAYS)
    for start, least in LEAST.items():
        assert sum(one.startswith(start) for one in done) >= least, start
    assert "flaky t-6" in done
    assert "kill -9 $PID" in done
