"""The loss of answered submits when a server dies: `python -m bench.redis_durability`.

A server is killed (SIGKILL) under load at a random moment and started again, for each way of
keeping data; a primary is killed under load and its replica promoted by Sentinels, in step and cut
off. Then each answered submit is looked for. A power cut cannot be had this way: what the system
holds in memory survives the death of a process. Its cost follows from when the server calls fsync.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from functools import partial
from itertools import count

import msgspec

from bench.redis_load import NO_LIMIT, Load, RedisBatchWorker, open_store
from bench.redis_view import ServerView
from bench.slow_disk import SYNC_MILLIS, possible, slow_disk
from holdfast.domain.errors import StoreError
from holdfast.domain.task.transition import Inserted
from holdfast.stores.redis.keys import KeyNames
from holdfast.stores.redis.partition import BATCH
from holdfast.stores.redis.store import RedisStore
from verify.servers import Config, RedisServer, Sentinels

SUBMITTERS = 8
SUBMITTED_AT_ONCE = 5
LOAD_SECONDS = (1.5, 4.0)
CUT_OFF_SECONDS = 1.0
AGAIN_SECONDS = 0.05
BACK_TRIES = 600
META = KeyNames("executor")("meta")

RESTARTS: dict[str, Config] = {
    "appendonly no, no snapshots": {},
    'appendonly no, save "1 1"': {"save": "1 1"},
    "appendonly yes, appendfsync no": {"appendonly": True, "appendfsync": "no"},
    "appendonly yes, appendfsync everysec": {"appendonly": True, "appendfsync": "everysec"},
    "appendonly yes, appendfsync always": {"appendonly": True, "appendfsync": "always"},
}
SLOWED = ("appendonly yes, appendfsync no", "appendonly yes, appendfsync everysec")
REPLICATED: Config = {
    "appendonly": True,
    "acl": ["default on nopass ~* &* +@all", "replica on >link ~* &* +@all"],
    "lines": ["masteruser replica", "masterauth link"],
}
GUARDED: Config = {**REPLICATED, "lines": [*REPLICATED["lines"], "min-replicas-to-write 1"]}

FAILOVERS: list[tuple[str, Config, bool]] = [
    ("replica in step", REPLICATED, False),
    (f"replica cut off for {CUT_OFF_SECONDS:.0f} s", REPLICATED, True),
    ("the same, min-replicas-to-write 1", GUARDED, True),
]


class Loss(msgspec.Struct, frozen=True, kw_only=True):
    """The loss by one kill, or by several together."""

    answered: int  # submits
    gone: int  # of these
    reported: int  # writes that the store itself found missing

    def __add__(self, other: Loss) -> Loss:
        return Loss(
            answered=self.answered + other.answered,
            gone=self.gone + other.gone,
            reported=self.reported + other.reported,
        )


NOTHING = Loss(answered=0, gone=0, reported=0)


class Submitters:
    """Submit until told to stop, and remember what was answered."""

    def __init__(self, store: RedisStore) -> None:
        self._store = store
        self._hand = RedisBatchWorker(store, Load(name="durability", tenants=400), count())
        self._stopped = False
        self.answered: list[str] = []

    @asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as group:
            for _ in range(SUBMITTERS):
                group.create_task(self._submit())
            try:
                yield
            finally:
                self._stopped = True

    async def count_gone(self) -> int:
        missing = 0
        for start in range(0, len(self.answered), BATCH):
            found = await self._store.views.load(self.answered[start : start + BATCH])
            missing += found.count(None)
        return missing

    async def submit_once(self) -> None:
        """Submit one batch as soon as the store accepts it."""
        for _ in range(BACK_TRIES):
            if await self._try_submit():
                return
            await asyncio.sleep(AGAIN_SECONDS)
        raise RuntimeError("the store did not come back")

    async def _submit(self) -> None:
        while not self._stopped:
            if not await self._try_submit():
                await asyncio.sleep(AGAIN_SECONDS)

    async def _try_submit(self) -> bool:
        batch = self._hand.submissions(SUBMITTED_AT_ONCE)
        try:
            answers = await self._store.tasks.insert(batch, depth_limit=NO_LIMIT)
        except StoreError:
            return False
        self.answered += [one.task_id for one in answers if isinstance(one, Inserted)]
        return True


async def after_restart(config: Config, chance: random.Random) -> Loss:
    with RedisServer(**config) as server:
        async with open_store(server.url) as store:
            submitters = Submitters(store)
            async with submitters.at_work():
                await asyncio.sleep(chance.uniform(*LOAD_SECONDS))
                await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.start)
            return await _measure_loss(submitters, server)


async def after_failover(config: Config, chance: random.Random, *, cut_off: bool) -> Loss:
    with Sentinels(**config) as group:
        async with open_store(group.url) as store:
            submitters = Submitters(store)
            async with submitters.at_work():
                await asyncio.sleep(chance.uniform(*LOAD_SECONDS))
                if cut_off:
                    await asyncio.to_thread(_cut_off, group.primary)
                    await asyncio.sleep(CUT_OFF_SECONDS)
                await asyncio.to_thread(group.kill_primary)
            await asyncio.to_thread(group.wait_promoted)
            await asyncio.to_thread(group.replica.start)  # some primaries take nothing without one
            return await _measure_loss(submitters, group.primary)


def _cut_off(primary: RedisServer) -> None:
    """Disconnect the replica of this primary, which cannot log in again."""
    with ServerView(primary) as view:
        view.ask("ACL", "SETUSER", "replica", "off")
        view.ask("CLIENT", "KILL", "TYPE", "replica")


async def _measure_loss(submitters: Submitters, server: RedisServer) -> Loss:
    answered, gone = len(submitters.answered), await submitters.count_gone()
    await submitters.submit_once()  # the store finds out by the answer to its next write
    with ServerView(server) as view:
        reported = int(view.ask("HGET", META, "lostWrites") or 0)
    return Loss(answered=answered, gone=gone, reported=reported)


# -- the command


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.redis_durability", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--failovers", type=int, default=2)
    asked = parser.parse_args(arguments)
    logging.basicConfig(level=logging.CRITICAL)  # that these servers lose writes is the point
    with RedisServer() as server, ServerView(server) as view:
        print(f"Redis {view.version()}")
    chance = random.Random()
    for name, config in RESTARTS.items():
        _measure(f"killed, {name}", asked.rounds, partial(after_restart, config, chance))
    for name in SLOWED if possible() else ():
        with slow_disk():
            once = partial(after_restart, RESTARTS[name], chance)
            _measure(f"killed, {name}, an fsync takes {SYNC_MILLIS} ms", asked.rounds, once)
    for name, config, cut_off in FAILOVERS:
        once = partial(after_failover, config, chance, cut_off=cut_off)
        _measure(f"failover, {name}", asked.failovers, once)


def _measure(name: str, kills: int, once: Callable[[], Coroutine[None, None, Loss]]) -> None:
    losses = [asyncio.run(once()) for _ in range(kills)]
    total = sum(losses, NOTHING)
    print(
        f"{name}: {kills} kills, {total.answered:,} submits answered, {total.gone:,} of them gone "
        f"(by kill: {', '.join(str(loss.gone) for loss in losses)}); "
        f"{total.reported:,} lost writes reported",
        flush=True,
    )


if __name__ == "__main__":
    main()
