"""The walk prints the files that a submit, a stage, a resume and an HTTP request pass through.

`python -m verify.walk [--store sqlite|redis] [--road submit|stage|resume|request] [--list]`
prints for each road how many files of the engine are touched and how many calls it takes; with
`--list` the road itself: file by file in the order of first touch, with the functions called.
`--check` fails where a road touches more files, or takes more calls, than are written down here.

A file is touched when one of its functions is called. Imports and first-time caches are not
counted: every road is walked before it is recorded. The stage is run by a worker whose timers
stand still, so that nothing but the commit, the claim and the begin is on its road. The request is
sent from a thread without a profiler.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise
from math import floor
from pathlib import Path
from typing import Any, TypeAlias

import httpx
import redis

from holdfast import Context, Holdfast, Permanent
from holdfast.clock import SystemClock
from holdfast.errors import TaskFailed
from holdfast.server import Service, serve
from holdfast.server.auth import tokens as tk
from holdfast.stores.redis import scripts
from holdfast.stores.redis.client.client import Script
from verify.calls import PACKAGE, CallRecorder, PythonCall
from verify.servers import RedisServer

STORES = ("sqlite", "redis")
ROADS = ("submit", "stage", "resume", "request")
WALKS = 4  # of each road; the last one is recorded
QUIET_SECONDS = 0.1  # after a walk: what it began in other threads is done then
PATIENCE_SECONDS = 30.0
END = "walk_roads"
FILES_BEFORE = {  # of the engine, on each road, before the modules were put into rooms
    "sqlite": {"submit": 25, "stage": 35, "resume": 27, "request": 37},
    "redis": {"submit": 28, "stage": 40, "resume": 26, "request": 43},
}
FILES_MAX = {  # now
    "sqlite": {"submit": 16, "stage": 21, "resume": 17, "request": 23},
    "redis": {"submit": 18, "stage": 26, "resume": 17, "request": 28},
}
LUA_MAX = {"submit": 3, "stage": 24, "resume": 26, "request": 2}  # files that Redis is sent
CALLS = {  # in holdfast and in all, before the modules were put into rooms
    "sqlite": {"submit": (114, 209), "stage": (292, 497)},
    "redis": {"submit": (103, 200), "stage": (256, 492)},
}
CALLS_MARGIN = 1.03  # of them: the order in which threads wake up differs from walk to walk

Walk: TypeAlias = Callable[[], Awaitable[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Road:
    name: str
    store: str
    calls: Sequence[PythonCall]
    lua: Sequence[str] = ()  # files of which something is sent, in order of first use

    @property
    def ours(self) -> list[PythonCall]:
        return [call for call in self.calls if call.file is not None]

    @property
    def files(self) -> dict[str, Counter[str]]:
        """Return the functions called in each file, in the order of first touch."""
        files: dict[str, Counter[str]] = {}
        for call in self.ours:
            assert call.file is not None
            files.setdefault(call.file, Counter())[call.function] += 1
        return files

    @property
    def changes(self) -> int:
        return sum(call.file != after.file for call, after in pairwise(self.ours))

    @property
    def excess(self) -> str:
        """Return what exceeds its limit, or nothing."""
        before = FILES_BEFORE[self.store][self.name]
        most = min(FILES_MAX[self.store][self.name], before * 2 // 3)
        if len(self.files) > most:
            return f"TOO MANY FILES, at most {most}"
        if len(self.lua) > LUA_MAX[self.name]:
            return f"TOO MANY LUA FILES, at most {LUA_MAX[self.name]}"
        if self.name not in CALLS[self.store]:
            return ""
        ours, all_calls = (floor(n * CALLS_MARGIN) for n in CALLS[self.store][self.name])
        if len(self.ours) > ours or len(self.calls) > all_calls:
            return f"TOO MANY CALLS, at most {ours} in holdfast and {all_calls} in all"
        return ""


class StillClock(SystemClock):
    """A clock that tells the machine's time but fires no timer, so that timed services rest."""

    def call_later(self, seconds: float, call: Callable[[], None]) -> StillTimer:
        del seconds, call
        return StillTimer()


class StillTimer:
    def cancel(self) -> None: ...


class Steps:
    """Steps let the function of a stage return only on `next`."""

    def __init__(self) -> None:
        self.entered, self.left = asyncio.Event(), asyncio.Event()

    async def run(self, _: Context, number: int) -> int:
        self.entered.set()
        await self.left.wait()
        self.left.clear()
        return number

    async def next(self) -> None:
        """Let the present call return, and wait until the function is called again."""
        self.entered.clear()
        self.left.set()
        await self.entered.wait()


class Walker:
    """A walker prepares each road on one store; each context yields a call that walks it once."""

    def __init__(self, url: str, recorder: CallRecorder) -> None:
        self._url, self._recorder = url, recorder

    @asynccontextmanager
    async def submit(self) -> AsyncIterator[Walk]:
        app = Holdfast(self._url, clock=StillClock())
        task = app.workflow("walk.submit", payload=int, result=int)
        task.stage(name="only")(_return)
        async with app:
            yield lambda: task.submit(1)

    @asynccontextmanager
    async def stage(self) -> AsyncIterator[Walk]:
        """Walk from the return of one stage's function to the call of the next one's.

        With one slot that is one commit, one claim and one begin, and nothing else.
        """
        app, steps = Holdfast(self._url, clock=StillClock(), queues="stages"), Steps()
        task = app.workflow("walk.stage", payload=int, result=int, queue="stages")
        task.stage(name="only")(steps.run)
        async with app:
            for number in range(WALKS + 2):
                await task.submit(number, tenant=f"t-{number}")
            worker = app.worker(slots=1, heartbeat_thread=False)
            await worker.start()
            await steps.entered.wait()
            await self.quiet()
            yield steps.next
            worker.stop_claiming()
            steps.left.set()
            await worker.drain()

    @asynccontextmanager
    async def resume(self) -> AsyncIterator[Walk]:
        app = Holdfast(self._url, queues="failures")
        task = app.workflow("walk.resume", payload=int, result=int, queue="failures")
        task.stage(name="first")(_return)
        task.stage(name="second")(_fail)
        async with app.running():
            handles = [await task.submit(number) for number in range(WALKS)]
            for handle in handles:
                with suppress(TaskFailed):
                    await handle.result(timeout=PATIENCE_SECONDS)
        ids = iter([handle.id for handle in handles])
        async with app:
            yield lambda: app.control.resume_suspended(next(ids), reason="walk_roads")

    @asynccontextmanager
    async def request(self) -> AsyncIterator[Walk]:
        """Get a task from the service as it is served, over a connection that is open."""
        app = Holdfast(self._url, clock=StillClock())
        task = app.workflow("walk.request", payload=int, result=int)
        task.stage(name="only")(_return)
        token, text = tk.make("walker", tk.Role.VIEWER)
        service = Service(app, tokens=[token])
        async with service.running(), _listening(service) as url:
            ids = iter([(await task.submit(number)).id for number in range(WALKS)])
            with self._recorder.unseen(), ThreadPoolExecutor(1) as outside:
                client = httpx.Client(base_url=url, headers={"authorization": f"Bearer {text}"})

                def get() -> None:
                    client.get(f"/api/tasks/{next(ids)}").raise_for_status()

                loop = asyncio.get_running_loop()
                yield lambda: loop.run_in_executor(outside, get)
                await loop.run_in_executor(outside, client.close)

    async def quiet(self) -> None:
        """Wait until no thread calls anything any more."""
        await asyncio.sleep(QUIET_SECONDS)


async def _return(_: Context, number: int) -> int:
    return number


async def _fail(_: Context, number: int) -> int:
    raise Permanent(f"number {number} fails")


@asynccontextmanager
async def _listening(service: Service) -> AsyncIterator[str]:
    asked, urged, listening = asyncio.Event(), asyncio.Event(), asyncio.Event()
    bound = serve.bind("127.0.0.1", 0)
    answering = asyncio.create_task(
        serve.answer(service, bound, stop=asked, stop_now=urged, on_listening=listening.set)
    )
    await listening.wait()
    try:
        yield serve.url_of(bound)
    finally:
        asked.set()
        await answering
        bound.close()


async def walk_roads(
    store: str, url: str, recorder: CallRecorder, names: Sequence[str]
) -> list[Road]:
    walker, roads = Walker(url, recorder), []
    for name in names:
        async with getattr(walker, name)() as walk:
            for _ in range(WALKS - 1):
                await walk()
                await walker.quiet()
            with scripts_run(url) as shas:
                recorder.start()
                await walk()
                await walker.quiet()
                calls = recorder.stop()
            roads.append(Road(name=name, store=store, calls=_from_claim(calls), lua=lua_of(shas)))
    return roads


def _from_claim(calls: list[PythonCall]) -> list[PythonCall]:
    """Turn the round of a worker so that it begins with the claim."""
    for at, call in enumerate(calls):
        if call.file is not None and call.function.endswith(".claim"):
            return calls[at:] + calls[:at]
    return calls


# -- Lua


@contextmanager
def scripts_run(url: str) -> Iterator[list[str]]:
    """Gather the digests of the scripts that the server is asked to run."""
    shas: list[str] = []
    if not url.startswith("redis"):
        yield shas
        return
    with redis.Redis.from_url(url) as client, client.monitor() as monitor:
        yield shas
        client.echo(END)
        for said in monitor.listen():
            words = said["command"].split()
            if words[0] == "ECHO":
                break
            if words[0] == "EVALSHA":
                shas.append(words[1])


def lua_of(shas: Sequence[str]) -> list[str]:
    """Return the Lua files that the scripts with these digests are made of, the verb first."""
    made = {one.sha: one.files for one in vars(scripts).values() if isinstance(one, Script)}
    paths = {path.stem: path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.lua")}
    return list(dict.fromkeys(paths[name] for sha in shas for name in reversed(made[sha])))


# -- what is printed


def summary_line(road: Road) -> str:
    lua = f" + {len(road.lua)} Lua" if road.lua else ""
    return (
        f"{road.name:8} {road.store:7} {len(road.files):3} files{lua:8} {road.changes:5} "
        f"changes of file {len(road.ours):6} calls in holdfast {len(road.calls):6} calls in all"
    )


def file_lines(road: Road) -> Iterator[str]:
    for file, functions in road.files.items():
        names = (f"{name} ×{n}" if n > 1 else name for name, n in functions.items())
        yield f"  {file:40} {functions.total():4}  {', '.join(names)}"
    for file in road.lua:
        yield f"  {file:40}       sent"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m verify.walk", description=__doc__)
    parser.add_argument("--store", choices=STORES, help="both, unless one is named")
    parser.add_argument("--road", choices=ROADS, help="all, unless one is named")
    parser.add_argument("--list", action="store_true", help="print the road itself")
    parser.add_argument("--check", action="store_true", help="fail where a limit is exceeded")
    given = parser.parse_args(arguments)
    logging.disable(logging.WARNING)
    recorder, too_long = CallRecorder(), False
    recorder.install()
    for store in [given.store] if given.store else STORES:
        with _store(store) as url:
            names = [given.road] if given.road else ROADS
            roads = asyncio.run(walk_roads(store, url, recorder, names))
        for road in roads:
            excess = road.excess if given.check else ""
            too_long = too_long or bool(excess)
            print(summary_line(road) + (f": {excess}" if excess else ""))
            if given.list:
                print("\n".join(file_lines(road)))
    return 1 if too_long else 0


@contextmanager
def _store(kind: str) -> Iterator[str]:
    if kind == "redis":
        with RedisServer() as server:
            yield f"{server.url}/0"
        return
    with tempfile.TemporaryDirectory(prefix="holdfast-walk-") as folder:
        yield f"sqlite:///{Path(folder)}/tasks.db"


if __name__ == "__main__":
    sys.exit(main())
