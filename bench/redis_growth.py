"""Growth of memory and time with the backlog: `python -m bench.redis_growth` (`make bench-redis`).

For one tenant, many tenants and none, on a server of its own each: bytes of a waiting task by kind
of key; server time of a claim and of a finish with few and with all tasks waiting; how long single
scripts take (R2); and whether everything is as before when all is done (R1). Times are processor
time of the server's main thread, where the system tells it, as on a busy machine the clock counts
what the system did meanwhile.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import statistics
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import count

import msgspec

from bench.redis_load import WORKER, Load, RedisBatchWorker, open_store, prune_tombstones
from bench.redis_view import ScriptTime, ServerView, State
from holdfast.stores.redis.keys import KeyNames
from holdfast.stores.redis.partition import BATCH, MOVES
from verify.servers import RedisServer

GOAL_BYTES = 1600
GOAL_RATIO = 1.2
GOAL_SCRIPT_MILLIS = 5.0
SAMPLES = 300
SAMPLED_EVERY = 20  # with one tenant each script has one task: not all of them are timed
KEYS = KeyNames("executor")


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    tasks: int
    few: int
    steady: int  # tasks that are put in and taken out while the number of waiting ones stays

    @classmethod
    def for_tasks(cls, tasks: int) -> Sizes:
        return cls(tasks=tasks, few=min(1000, tasks // 2), steady=min(10_000, tasks // 2))


class Growth(msgspec.Struct, frozen=True, kw_only=True):
    """The measurements of one load."""

    load: Load
    tasks: int
    bytes_per_task: float
    by_kind: dict[str, float]
    tombstone_bytes: float
    before: State
    after: State
    few: dict[str, list[ScriptTime]]
    many: dict[str, list[ScriptTime]]
    all: dict[str, list[ScriptTime]]


class Run:
    """One load on one server."""

    def __init__(self, server: RedisServer, view: ServerView, load: Load, sizes: Sizes) -> None:
        self._url, self._view, self._load, self._sizes = server.url, view, load, sizes
        self._numbers = count()
        self._seen: dict[str, list[ScriptTime]] = {"insert": [], "claim": [], "finish": []}
        self._ids: list[str] = []

    async def measure(self) -> Growth:
        await self._warm_up()
        before = self._view.state()
        async with open_store(self._url) as store:
            hand = RedisBatchWorker(store, self._load, self._numbers)
            await self._fill(hand, self._sizes.tasks)
            bytes_per_task = (self._view.used_bytes() - before.used_bytes) / self._sizes.tasks
            by_kind = self._by_kind(self._sizes.tasks)
            few, many = await self._compare(hand)
            await self._drain(hand)
            await store.tasks.leave(WORKER)
        passed = self._sizes.tasks + self._sizes.steady
        tombstone_bytes = (self._view.used_bytes() - before.used_bytes) / passed
        await prune_tombstones(self._url)
        return Growth(
            load=self._load,
            tasks=self._sizes.tasks,
            bytes_per_task=bytes_per_task,
            by_kind=by_kind,
            tombstone_bytes=tombstone_bytes,
            before=before,
            after=self._view.state(),
            few=few,
            many=many,
            all=self._seen,
        )

    async def _warm_up(self) -> None:
        """Make what is made once and stays: scripts, groups, counts and the server's own tables."""
        async with open_store(self._url) as store:
            hand = RedisBatchWorker(store, self._load, self._numbers)
            await self._fill(hand, BATCH)
            self._by_kind(BATCH)
            await self._drain(hand)
            await store.tasks.leave(WORKER)
        await prune_tombstones(self._url)
        self._seen = {verb: [] for verb in self._seen}

    async def _compare(
        self, hand: RedisBatchWorker
    ) -> tuple[dict[str, list[ScriptTime]], dict[str, list[ScriptTime]]]:
        """Measure in turn with a server where few wait: both bear the machine's other load."""
        rounds = -(-self._sizes.steady // BATCH)
        load = self._load.over(self._sizes.few // 4)  # there, too, a tenant has several waiting
        with RedisServer() as server, ServerView(server) as view:
            few = Run(server, view, load, self._sizes)
            await few._warm_up()
            async with open_store(server.url) as store:
                few_hand = RedisBatchWorker(store, load, few._numbers)
                await few._fill(few_hand, self._sizes.few)
                starts = [few._mark(), self._mark()]
                for _ in range(rounds):
                    await few._round(few_hand)
                    await self._round(hand)
        return few._since(starts[0]), self._since(starts[1])

    async def _fill(self, hand: RedisBatchWorker, tasks: int) -> None:
        for _ in range(-(-tasks // BATCH)):
            await self._insert(hand)

    async def _round(self, hand: RedisBatchWorker) -> None:
        await self._insert(hand)
        ended = 0
        while ended < BATCH:
            ended += await self._end_some(hand, timed=True)

    async def _drain(self, hand: RedisBatchWorker) -> None:
        one_by_one = self._load.tenants == 1
        for number in count():
            timed = not one_by_one or number % SAMPLED_EVERY == 0
            if not await self._end_some(hand, timed=timed):
                return

    def _mark(self) -> dict[str, int]:
        return {verb: len(found) for verb, found in self._seen.items()}

    def _since(self, mark: dict[str, int]) -> dict[str, list[ScriptTime]]:
        return {verb: found[mark[verb] :] for verb, found in self._seen.items()}

    async def _insert(self, hand: RedisBatchWorker) -> None:
        batch = hand.submissions()
        self._ids.append(batch[0].task.id)
        _, script = await self._view.time_script(hand.insert(batch))
        self._note("insert", len(batch), script)

    async def _end_some(self, hand: RedisBatchWorker, *, timed: bool) -> int:
        if not timed:
            claimed = await hand.claim()
            await hand.finish(claimed)
            return len(claimed)
        claimed, script = await self._view.time_script(hand.claim())
        if claimed:
            self._note("claim", len(claimed), script)
            _, script = await self._view.time_script(hand.finish(claimed))
            self._note("finish", len(claimed), script)
        return len(claimed)

    def _note(self, verb: str, tasks: int, script: ScriptTime) -> None:
        self._seen[verb].append(msgspec.structs.replace(script, tasks=tasks))

    def _by_kind(self, tasks: int) -> dict[str, float]:
        """Return the bytes per task by kind of key, from samples of the newest."""
        tenants = min(self._load.tenants, tasks)
        ids = self._ids[-min(SAMPLES, tasks // BATCH) :]
        found = self._view.bytes_by_kind(
            tasks=tasks,
            ids=ids,
            tenants=[self._load.tenant_of(n) or "" for n in range(min(SAMPLES, tenants))],
            tenants_in_all=tenants,
        )
        today = datetime.now(UTC).date().isoformat()
        for kind, name in (("by_status", "PENDING"), ("by_day", today)):
            found[kind] = self._view.bytes_of_keys([KEYS(kind, name)]) / tasks
        if self._load.keyed:
            last = next(self._numbers)
            numbers = range(last - min(SAMPLES, tasks), last)
            names = [KEYS.key(self._load.tenant_of(n), self._load.key_of(n) or "") for n in numbers]
            found["key"] = self._view.bytes_of_keys(names)
        return dict(sorted(found.items(), key=lambda item: -item[1]))


# -- the report


def report(growth: Growth) -> list[str]:
    before, after = growth.before, growth.after
    change = after.used_bytes / before.used_bytes - 1
    kinds = ", ".join(f"{kind} {found:.1f}" for kind, found in growth.by_kind.items())
    rest = growth.bytes_per_task - sum(growth.by_kind.values())
    return [
        f"{growth.load.name}, {growth.tasks:,} waiting",
        f"  bytes per task      {growth.bytes_per_task:,.0f} (goal: at most {GOAL_BYTES:,})",
        f"    by kind of key    {kinds}; tables and slack {rest:.1f}",
        f"  bytes per tombstone {growth.tombstone_bytes:,.0f}",
        *_format_comparison(growth),
        *_script_times(growth),
        f"  before and after    {before.used_bytes:,} / {after.used_bytes:,} bytes ({change:+.1%})",
        f"    keys              {before.keys} / {after.keys}",
        f"    pending entries   {before.pending} / {after.pending}",
        f"    consumers         {before.consumers} / {after.consumers}",
    ]


def _format_comparison(growth: Growth) -> list[str]:
    lines = []
    for verb in ("claim", "finish"):
        few, many = (
            statistics.median(script.per_task for script in found[verb])
            for found in (growth.few, growth.many)
        )
        lines.append(
            f"  µs per {verb:<12} {few:.1f} with few waiting, {many:.1f} with all "
            f"({many / few - 1:+.0%}; goal: at most {GOAL_RATIO - 1:+.0%})"
        )
    return lines


def _script_times(growth: Growth) -> list[str]:
    lines = []
    for verb, scripts in growth.all.items():
        cpu, wall = (
            _picks([getattr(script, clock) / 1000 for script in scripts])
            for clock in ("cpu_micros", "wall_micros")
        )
        per_task = statistics.median(script.per_task for script in scripts)
        size = statistics.median(script.tasks for script in scripts)
        lines.append(
            f"  ms per {verb:<12} {cpu} of processor, {wall} by the clock "
            f"({len(scripts):,} scripts of {size:.0f}; {per_task:.1f} µs a task)"
        )
    return [f"  p50 / p99 / p99.9 / max; goal: p99.9 at most {GOAL_SCRIPT_MILLIS:.0f} ms", *lines]


def _picks(values: Sequence[float]) -> str:
    ordered = sorted(values)
    return " / ".join(f"{_at(ordered, share):.2f}" for share in (0.5, 0.99, 0.999, 1.0))


def _at(ordered: Sequence[float], share: float) -> float:
    return ordered[round(share * (len(ordered) - 1))]


# -- the command


async def measure_load(load: Load, sizes: Sizes) -> Growth:
    with RedisServer() as server, ServerView(server) as view:
        return await Run(server, view, load, sizes).measure()


def loads(tenants: int) -> dict[str, Load]:
    return {
        "none": Load(name="no tenant, a key on each"),
        "many": Load(name=f"{tenants:,} tenants, a key on each", tenants=tenants),
        "one": Load(name="one tenant, a key on each", tenants=1),
        "plain": Load(name="no tenant, no key", keyed=False),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.redis_growth", description=__doc__)
    parser.add_argument("--tasks", type=int, default=1_000_000)
    parser.add_argument("--tenants", type=int, default=10_000)
    parser.add_argument("--loads", nargs="+", choices=loads(0), default=list(loads(0)))
    asked = parser.parse_args(arguments)
    logging.basicConfig(level=logging.ERROR)  # that these servers keep nothing is meant
    with RedisServer() as server, ServerView(server) as view:
        print(f"Redis {view.version()}; to a script {BATCH} submits or {MOVES} others")
    for name in asked.loads:
        growth = asyncio.run(measure_load(loads(asked.tenants)[name], Sizes.for_tasks(asked.tasks)))
        print("\n".join(report(growth)), flush=True)


if __name__ == "__main__":
    main()
