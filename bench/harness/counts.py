"""The counts of a task: `python -m bench.harness.counts --what drain --url URL`.

A drain, bulk submits or stages run in this process, once with few tasks and once with many. What
the larger run takes more, divided by the tasks that it has more, is the count for each: Python
calls, commands that Redis ran, bytes of its append-only file, and rows that SQLite changed. So
opening, closing and warming up are in no count, and no clock takes part.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence

import apsw
import msgspec
import redis

from bench.harness.loop import run
from holdfast import Context, Holdfast
from verify.calls import CallRecorder

WHATS = ("drain", "submit", "stages")
FEW, MANY = 1_024, 4_096  # tasks
STAGES, AT_ONCE = 5, 50
WAIT_SECONDS = 120.0

Count = dict[str, float]


class RunCounts(msgspec.Struct, frozen=True, kw_only=True):
    """The counts of one run, and how many tasks or stages it did."""

    units: int
    counts: Count


class Counters:
    """The counters of a process and its store; `read` tells how far each has come."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.calls = CallRecorder()
        self._files: list[apsw.Connection] = []

    def install(self) -> None:
        self.calls.install()
        apsw.connection_hooks.append(self._files.append)

    def read_store(self) -> Count:
        if self.url.startswith("sqlite"):
            return {"rows": float(sum(map(count_changes, self._files)))}
        with redis.Redis.from_url(self.url) as client:
            commands = client.info("commandstats").values()
            size = client.info("persistence")["aof_current_size"]
        return {"commands": float(sum(one["calls"] for one in commands)), "bytes": float(size)}

    def forget_files(self) -> None:
        self._files.clear()


def count_changes(connection: apsw.Connection) -> int:
    """Return the rows that an open connection has changed; one that was closed counts no more."""
    try:
        return connection.total_changes()
    except apsw.ConnectionClosedError:
        return 0


def divide_growth(few: RunCounts, many: RunCounts) -> Count:
    """Return what each further task or stage took."""
    more = many.units - few.units
    return {name: (many.counts[name] - few.counts[name]) / more for name in many.counts}


async def count_run(what: str, counters: Counters, tasks: int) -> RunCounts:
    counters.forget_files()
    app, done, left = Holdfast(counters.url), asyncio.Event(), tasks

    @app.task("bench.noop")
    async def noop(_: Context, __: int) -> None:
        nonlocal left
        left -= 1
        if not left:
            done.set()

    flow = app.workflow("bench.flow", payload=int, result=int)
    for n in range(STAGES):
        flow.stage(name=f"step-{n}")(return_number)

    async def submit() -> None:
        await noop.submit_many(list(range(tasks)))

    async def drain() -> None:
        worker = app.worker()
        await worker.start()
        async with asyncio.timeout(WAIT_SECONDS):
            await done.wait()
        worker.stop_claiming()
        await worker.drain()

    async def run_workflows() -> None:
        worker, numbers = app.worker(), iter(range(tasks // STAGES))

        async def one_after_another() -> None:
            for number in numbers:
                await (await flow.submit(number)).result(timeout=WAIT_SECONDS)

        await worker.start()
        await asyncio.gather(*(one_after_another() for _ in range(AT_ONCE)))
        worker.stop_claiming()
        await worker.drain()

    async with app:
        if what == "drain":
            await submit()
        timed = {"drain": drain, "submit": submit, "stages": run_workflows}[what]
        counts = await count_around(counters, timed)
    units = tasks // STAGES * STAGES if what == "stages" else tasks
    return RunCounts(units=units, counts=counts)


async def count_around(counters: Counters, work: Callable[[], Awaitable[None]]) -> Count:
    before = counters.read_store()
    counters.calls.start()
    await work()
    calls = len(counters.calls.stop())
    after = counters.read_store()
    return {"calls": float(calls), **{name: after[name] - before[name] for name in after}}


async def return_number(_: Context, number: int) -> int:
    return number


async def count_all(what: str, counters: Counters) -> Count:
    few = await count_run(what, counters, FEW)
    return divide_growth(few, await count_run(what, counters, MANY))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.harness.counts", description=__doc__)
    parser.add_argument("--what", choices=WHATS, required=True)
    parser.add_argument("--url", required=True)
    given = parser.parse_args(arguments)
    counters = Counters(given.url)
    counters.install()
    print(json.dumps(run(count_all(given.what, counters))))


if __name__ == "__main__":
    main()
