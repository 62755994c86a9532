"""Write a golden store of each kind with the version of Holdfast that is on the path.

    git worktree add /tmp/before 6a41573
    PYTHONPATH=/tmp/before/src:. python -m verify.golden.write tests/stores/golden/6a41573

The folder of the version must be new: a golden store is written once, by its own version.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import sqlite3
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import redis

from holdfast import Filter
from holdfast.domain.bulk import Canary
from holdfast.stores.redis.store import RedisStore
from holdfast.stores.sqlite import SqliteStore
from holdfast.testing import ManualClock
from holdfast.testing.engine import Engine
from verify.golden import redis_text
from verify.golden.tasks import SLOW_QUEUE, GoldenWork
from verify.servers import RedisServer

WRITTEN_AT = 1_767_632_400.0  # 5 January 2026, 17:00 UTC: two hours before the cron trigger's time
BOOT = "the machine that wrote"
FAILURES = ("permanent", "refused", "time", "value")
MAILS = 12


class GoldenWriter:
    """Fills one store step by step; ``facts`` is what the reader must find in it."""

    def __init__(self, store: Any, clock: ManualClock, folder: Path) -> None:
        self.store, self.clock, self.work = store, clock, GoldenWork(folder)
        self.engine = Engine(self.work.app, store=store, clock=clock)
        self.tasks = dict[str, str]()
        self.bulks = dict[str, str]()

    async def write(self) -> dict[str, Any]:
        try:
            await self._write_parked_tasks()
            await self._write_pruned_task()
            await self._write_triggers()
            await self._write_switches()
            await self._write_plans()
            await self._write_running_work()
            return await self._facts()
        finally:
            self.engine.close()

    async def _submit(self, label: str, submittable: Any, payload: Any, **terms: Any) -> Any:
        handle = await submittable.submit(payload, key=f"key-{label}", **terms)
        self.tasks[label] = handle.id
        return handle

    async def _write_parked_tasks(self) -> None:
        """Write tasks that are settled, failed, paused, half rolled back or due for a retry."""
        work, upgrade = self.work, self.work.upgrade
        await self._submit("done", upgrade, "ok", tenant="t-done")
        for mode in FAILURES:
            for number in (1, 2):
                label = f"{mode}-{number}"
                await self._submit(label, upgrade, mode, tenant=f"t-{label}")
        await self._submit("waits-in-line", upgrade, "ok", tenant="t-value-1")
        await self._submit("later", upgrade, "later", tenant="t-later")
        await self._submit("outage", upgrade, "sink", tenant="t-outage")
        for number in range(1, MAILS + 1):
            await self._submit(f"mail-{number}", work.mail, f"down-{number}", tenant=f"m-{number}")
        paused = await self._submit("paused", upgrade, "ok", tenant="t-paused")
        await paused.pause("until the migration is over")
        undone = [
            await self._submit(label, upgrade, label.replace("-", " "), tenant=f"t-{label}")
            for label in ("undo-later", "undo-broken")
        ]
        await self.engine.advance("6m")
        for handle in undone:
            await handle.rollback("the customer has withdrawn")
        await self.engine.advance("1s")

    async def _write_pruned_task(self) -> None:
        """Write a task that is deleted and whose key is still known."""
        await self._submit("pruned", self.work.brief, 41)
        await self.engine.advance("5m")
        await self.work.app.prune("tasks")

    async def _write_triggers(self) -> None:
        schedule, mail = self.work.app.schedule, self.work.mail
        await schedule.cron("0 3 * * *", mail, "nightly", tz="Asia/Shanghai", name="golden-cron")
        await schedule.every("15m", mail, "often", name="golden-every", overlap="skip")
        await schedule.at(self.clock.now() + 2 * 3600, mail, "once", name="golden-once")
        resting = await schedule.every("10m", mail, "resting", name="golden-paused")
        await resting.pause("not now")
        await self.engine.advance("16m")

    async def _write_switches(self) -> None:
        app = self.work.app
        await app.tenants.acting_as("ann", "cli").hold("t-held", reason="moving its data")
        await self._submit("held", self.work.upgrade, "ok", tenant="t-held")
        await app.queues.pause(SLOW_QUEUE, claiming=True, reason="too slow", force=True)
        await self._submit("slow", self.work.slow, None)

    async def _write_plans(self) -> None:
        """Write a plan in its second wave, one that soaks, and one halted by a failure."""
        plan, on = self.work.app.plan, self.work.upgrade.on
        modes = ("ok", "ok", "ok", "later", "hang", "ok")
        members = [on(mode, tenant=f"r-{number}") for number, mode in enumerate(modes)]
        await plan("golden-running", members, waves=("2", "100%"), max_concurrency=2)
        soaking = [on("ok", tenant=f"s-{number}") for number in range(3)]
        await plan("golden-soaking", soaking, waves=("1", "100%"), soak="90m")
        halted = [on("permanent", tenant="h-0"), *(on("ok", tenant=f"h-{n}") for n in (1, 2))]
        await plan("golden-halted", halted, waves=("1", "100%"))
        await self.engine.advance("40s")

    async def _write_running_work(self) -> None:
        """Write two bulk actions and a task that run when the writer's machine goes down."""
        work, bulk = self.work, self.work.app.bulk.acting_as("ann", "cli")
        work.mail_is_down, work.healing = False, True
        rest = await bulk.start("retry", Filter(type="golden.mail"), rate=1, reason="mail is back")
        value = next(g for g in await self._errors() if "ValueError" in g["error"])
        first = await bulk.start(
            "resume",
            Filter(error=value["fingerprint"]),
            canary=Canary(steps=(1,), wait_seconds=24 * 3600.0),
            key="canary",
        )
        self.bulks = {"rest": rest.id, "canary": first.id}
        await self._submit("leased", work.upgrade, "hang", tenant="t-leased")
        await self.engine.advance("8s")

    # -- what the reader must find

    async def _errors(self) -> list[dict[str, Any]]:
        store = self.store
        groups = await (store.views.error_groups if hasattr(store, "views") else store.errors)(
            limit=100
        )
        return sorted(
            (
                {
                    "fingerprint": group.fingerprint,
                    "error": group.newest.failure.error,
                    "count": group.count,
                }
                for group in groups
            ),
            key=lambda group: str(group["fingerprint"]),
        )

    async def _facts(self) -> dict[str, Any]:
        app, store = self.work.app, self.store
        chain = await getattr(store, "admin", store).chain(limit=1)
        plans = ("golden-running", "golden-soaking", "golden-halted")
        return {
            "now": self.clock.now(),
            "tasks": {
                label: {"id": id_, "status": await self._status(id_)}
                for label, id_ in self.tasks.items()
            },
            "bulks": {
                label: {"id": id_, "phase": (await (await app.bulk.get(id_)).info()).phase}
                for label, id_ in self.bulks.items()
            },
            "plans": {one: (await app.plan.get(one).info()).status for one in plans},
            "triggers": {one.id: one.status async for one in app.schedule.find()},
            "errors": await self._errors(),
            "audit": {"seq": chain.head.seq, "hash": chain.head.hash},
        }

    async def _status(self, task_id: str) -> str:
        return str((await self.store.peek([task_id]))[0].status)


async def write_sqlite(folder: Path) -> None:
    path, clock = folder / "sqlite.db", ManualClock(now=WRITTEN_AT)
    store = SqliteStore(path, clock, boot_id=BOOT)
    await store.open()
    with TemporaryDirectory() as hooks:
        facts = await GoldenWriter(store, clock, Path(hooks)).write()
    await store.close()
    with sqlite3.connect(path) as db:
        db.execute("pragma wal_checkpoint(truncate)")
    db.close()
    _pack(path)
    _put(folder / "sqlite.json", facts)


async def write_redis(folder: Path) -> None:
    clock = ManualClock(now=WRITTEN_AT)
    with RedisServer() as server, TemporaryDirectory() as hooks:
        store = RedisStore(server.url, clock, time=clock.times)
        await store.open()
        facts = await GoldenWriter(store, clock, Path(hooks)).write()
        await store.close()
        with redis.Redis.from_url(server.url) as client:
            keys = redis_text.dump(client)
    _put(folder / "redis.json", facts)
    lines = (json.dumps(key) for key in keys)
    text = "\n".join(lines) + "\n"
    (folder / "redis.jsonl.gz").write_bytes(gzip.compress(text.encode(), mtime=0))


def _pack(path: Path) -> None:
    """Keep the file compressed, and nothing else of the store."""
    packed = gzip.compress(path.read_bytes(), mtime=0)
    for left in path.parent.glob(f"{path.name}*"):
        left.unlink()
    path.with_suffix(".db.gz").write_bytes(packed)


def _put(path: Path, facts: dict[str, Any]) -> None:
    path.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=Path)
    folder: Path = parser.parse_args().folder
    if folder.exists():
        sys.exit(f"{folder} is there already: a golden store is written once")
    folder.mkdir(parents=True)
    asyncio.run(write_sqlite(folder))
    asyncio.run(write_redis(folder))


if __name__ == "__main__":
    main()
