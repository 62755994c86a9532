"""The view of a Redis server on itself: memory, keys, and the time of each script."""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import msgspec

from holdfast.stores.redis.keys import GROUP, TEMPLATES, KeyNames
from verify.servers import RedisServer

_SCRIPTS = re.compile(r"cmdstat_evalsha:calls=\d+,usec=(\d+)")
CALM_SECONDS_MAX = 60.0  # the server shrinks its tables little by little
LOOK_SECONDS = 0.5
REPLY_SECONDS = 60.0  # to measure one key with a million members takes a while

T = TypeVar("T")


class State(msgspec.Struct, frozen=True, kw_only=True):
    """The state that must be as before when all work is done (R1)."""

    used_bytes: int
    keys: int
    pending: int
    consumers: int


class ScriptTime(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a script: for how many tasks, and what it took the server."""

    tasks: int = 1
    cpu_micros: float  # with reading the command and writing the reply
    wall_micros: float  # as the server counts it: also while the system ran something else

    @property
    def per_task(self) -> float:
        return self.cpu_micros / max(1, self.tasks)


class ServerView:
    """A connection of its own to the server that is measured."""

    def __init__(self, server: RedisServer, namespace: str = "executor") -> None:
        self._client = server.client(timeout_seconds=REPLY_SECONDS)
        self._client.response_callbacks.clear()
        self._execute: Callable[..., Any] = self._client.execute_command
        self._keys = KeyNames(namespace)
        self._cpu = Path(f"/proc/{server.pid}/task/{server.pid}/schedstat")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._client.close()

    def ask(self, *command: str | int) -> Any:
        return self._execute(*command)

    def version(self) -> str:
        return self._info("server", "redis_version")

    def used_bytes(self) -> int:
        return int(self._info("memory", "used_memory"))

    async def time_script(self, script: Awaitable[T]) -> tuple[T, ScriptTime]:
        """Return the answer of a call, and the server's time for the one script that it ran."""
        wall, cpu = self._wall_micros(), self._cpu_micros()
        answer = await script
        cpu, wall = self._cpu_micros() - cpu, self._wall_micros() - wall
        return answer, ScriptTime(cpu_micros=cpu or wall, wall_micros=wall)

    def state(self) -> State:
        """Return the state as soon as the server's memory does not change any more."""
        stream = self._keys("tasks")
        keys = self.ask("DBSIZE")
        pending = self.ask("XPENDING", stream, GROUP)[0]
        consumers = len(self.ask("XINFO", "CONSUMERS", stream, GROUP))
        self.ask("SLOWLOG", "RESET")  # it keeps the arguments of slow scripts
        self.ask("MEMORY", "PURGE")
        ends_at = time.monotonic() + CALM_SECONDS_MAX
        used, last = self.used_bytes(), 0
        while used != last and time.monotonic() < ends_at:
            time.sleep(LOOK_SECONDS)
            used, last = self.used_bytes(), used
        return State(used_bytes=used, keys=keys, pending=pending, consumers=consumers)

    def bytes_by_kind(
        self, *, tasks: int, ids: Sequence[str], tenants: Sequence[str], tenants_in_all: int
    ) -> dict[str, float]:
        """Return bytes per task, sampled for the keys of a task, a tenant and all tasks."""
        of_task = {k: self._mean(k, ids) for k in ("task", "payload", "result", "events")}
        of_tenant = {
            k: self._mean(k, tenants) * tenants_in_all / tasks
            for k in ("active", "lock", "by_tenant", "line", "resting")
        }
        of_all = {
            k: self._memory(self._keys(k)) / tasks for k, t in TEMPLATES.items() if "{" not in t
        }
        return {k: found for k, found in (of_task | of_tenant | of_all).items() if found >= 0.05}

    def bytes_of_keys(self, names: Sequence[str]) -> float:
        return sum(map(self._memory, names)) / max(1, len(names))

    def _wall_micros(self) -> int:
        """Return the elapsed time of all scripts so far."""
        found = _SCRIPTS.search(self.ask("INFO", "commandstats"))
        return int(found[1]) if found else 0

    def _cpu_micros(self) -> float:
        """Return the CPU time of the thread that runs scripts; 0 where the system hides it."""
        try:
            return int(self._cpu.read_text().split()[0]) / 1000
        except OSError:
            return 0.0

    def _mean(self, kind: str, of: Sequence[str]) -> float:
        return self.bytes_of_keys([self._keys(kind, name) for name in of])

    def _memory(self, name: str) -> int:
        return self.ask("MEMORY", "USAGE", name, "SAMPLES", 0) or 0

    def _info(self, section: str, name: str) -> str:
        found = re.search(rf"^{name}:(.*)\r$", self.ask("INFO", section), re.MULTILINE)
        return found[1] if found else ""
