"""What docs/requirements.md says to type, to see each section, typed into a system that runs."""

import re
import shlex
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import redis
from typer.testing import CliRunner, Result

from holdfast.cli.root import cli
from holdfast.testing.servers import RedisServer, until
from tests.redis_servers import StartRedis
from tests.server.processes import Line, Serving
from tests.test_requirements import text

APPLY = "/api/workflows/apply"
DEMO = "from holdfast.cli.demo_service import app\n"
BOUND_SECONDS = 60.0
CODES = {
    "HOLDFAST_LEASE=soon holdfast stats": 6,
    "HOLDFAST_STORE=redis://127.0.0.1:1 holdfast stats": 5,
}
NOT_HERE = {"holdfast serve", "holdfast worker", "holdfast plans show upgrade-7"}
AT_THE_END = (  # they leave nothing to look at
    "holdfast tasks rollback",
    "holdfast triggers cancel",
    "holdfast bulk start",
    "holdfast queues pause",
)
EMPTY = {  # at another moment, or in the roll-out
    "cli HGETALL executor:plan:upgrade-7",
    "cli GET executor:trigger:lease:nightly",
    "cli ZRANGE executor:queue:retry 0 -1 WITHSCORES",
    "cli EXISTS executor:ckpt:$ID",
}


def typed(pattern: str) -> list[str]:
    """In the order of the page, each once."""
    found = re.findall(rf"`({pattern}[^`]*)`", text("By document").partition("### ")[2])
    return list(dict.fromkeys(found))


class Walk:
    """A service on a Redis of its own, and somebody who types."""

    def __init__(self, server: RedisServer, line: Line) -> None:
        self.server, self._line = server, line
        self._tenants = count(1)
        self.slow = self._apply("tour.slow", 7, tenant="t-1")
        self.bad = self.broken("t-2")
        with server.client() as client:
            until(
                lambda: client.exists(f"executor:ckpt:{self.slow}"),
                "a stage is done",
                seconds=BOUND_SECONDS,
            )

    def _apply(self, kind: str, payload: object, **fields: object) -> str:
        sent = {"type": kind, "payload": payload, "waitSeconds": 0.1, **fields}
        answer = self._line.ask("POST", APPLY, sent)
        assert answer.status in {200, 202}, answer.body
        return str(answer.json["taskId"])

    def broken(self, tenant: str = "") -> str:
        task_id = self._apply("tour.broken", "ann", tenant=tenant or f"b-{next(self._tenants)}")
        self.until(task_id, "suspended")
        return task_id

    def until(self, task_id: str, status: str) -> None:
        until(
            lambda: self.get(f"/api/workflows/tasks/{task_id}").json["status"] == status,
            f"{task_id} is {status}",
            seconds=BOUND_SECONDS,
        )

    def get(self, path: str) -> Any:
        return self._line.ask("GET", path)

    def cli(self, command: str) -> Result:
        """One that is acted on is another each time."""
        acted = "$BAD" in command and " show " not in command
        bad = self.broken() if acted else self.bad
        words = shlex.split(command.replace("$ID", self.slow).replace("$BAD", bad))
        at = words.index("holdfast")
        env = {"HOLDFAST_STORE": self.server.url, "COLUMNS": "200"}
        env |= dict(word.split("=", 1) for word in words[:at])
        return CliRunner().invoke(cli, words[at + 1 :], env=env)

    def redis(self, client: redis.Redis, command: str) -> Any:
        words = shlex.split(command.replace("$ID", self.slow))[1:]
        if words[0] == "--scan":
            return list(client.scan_iter(words[2]))
        ask: Callable[..., Any] = client.execute_command
        return ask(*words)


@pytest.fixture
def walk(start_redis: StartRedis, tmp_path: Path) -> Iterator[Walk]:
    server = start_redis(appendonly=True)
    settings = {"HOLDFAST_STORE": server.url, "HOLDFAST_LEASE": "2s"}
    with Serving(tmp_path, app=DEMO, **settings) as serving:
        serving.listening()
        line = Line(serving.url, serving.token)
        yield Walk(server, line)
        line.close()


def test_what_the_page_says_to_type_can_be_typed(walk: Walk) -> None:
    commands = [one for one in typed(r"(?:HOLDFAST\S+ )?holdfast ") if one not in NOT_HERE]
    assert len(commands) > 30
    first = [one for one in commands if "triggers add" in one]
    last = [one for one in commands if one.startswith(AT_THE_END)]
    look_into_redis(walk, [one for one in typed("cli [A-Z-]") if "trigger" not in one])
    for command in first:
        expect(walk, command)
    look_into_redis(walk, [one for one in typed("cli [A-Z-]") if "trigger" in one])
    for command in commands:
        if command not in first + last:
            expect(walk, command)
    ask_over_http(walk)
    walk.until(walk.slow, "completed")
    for command in last:
        expect(walk, command)


def look_into_redis(walk: Walk, commands: list[str]) -> None:
    assert commands
    with walk.server.client() as client:
        for command in commands:
            assert walk.redis(client, command) or command in EMPTY, command


def expect(walk: Walk, command: str) -> None:
    done = walk.cli(command)
    assert done.exit_code == CODES.get(command, 0), f"{command}: {done.output}"
    if "--json" not in command and not CODES.get(command):
        assert done.output.strip(), command


def ask_over_http(walk: Walk) -> None:
    routes = [route.split()[1] for route in typed("GET /") if not route.endswith("/events")]
    assert len(routes) > 5
    for route in routes:
        answer = walk.get(route.replace("{task_id}", walk.slow).replace("{tenant}", "t-1"))
        assert answer.status == 200, route
