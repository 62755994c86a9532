"""Golden stores, opened by today's code two hours after an earlier version left them."""

import gzip
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import redis

from holdfast.ports import Store
from holdfast.stores.redis.store import RedisStore
from holdfast.stores.sqlite import SqliteStore
from holdfast.testing import ManualClock
from holdfast.testing.engine import Engine
from tests.support.redis.redis_servers import StartRedis
from tests.support.sinks.receiver import Receiver
from verify.golden import redis_text
from verify.golden.tasks import SLOW_QUEUE, GoldenWork

FOLDER = Path(__file__).parents[2] / "stores" / "golden"
VERSIONS = sorted(folder.name for folder in FOLDER.iterdir())
SUSPENDED = ("permanent-1", "permanent-2", "refused-1", "refused-2", "time-1", "time-2")
AWAY_SECONDS = 105 * 60.0  # longer than any lease; what fell due meanwhile is overdue


class GoldenStore:
    """One store with its facts: what the version that wrote it saw in it at its end."""

    def __init__(
        self, store: Store, clock: ManualClock, facts: dict[str, Any], work: GoldenWork
    ) -> None:
        self.store, self.clock, self.facts, self.work = store, clock, facts, work
        self.engine = Engine(self.work.app, store=store, clock=clock)
        self.app = self.work.app

    def id_of(self, label: str) -> str:
        return str(self.facts["tasks"][label]["id"])

    async def statuses(self) -> dict[str, str]:
        """Return the status of each task by its label."""
        ids = {label: self.id_of(label) for label in self.facts["tasks"]}
        peeks = await self.store.views.peek(list(ids.values()))
        return {
            label: str(peek.status) if peek else "gone"
            for label, peek in zip(ids, peeks, strict=True)
        }

    async def error_groups(self) -> list[dict[str, Any]]:
        """Return the causes of the suspended tasks, as the facts have them."""
        groups = [
            {
                "fingerprint": group.fingerprint,
                "error": group.newest.failure.error if group.newest.failure else None,
                "count": group.count,
            }
            for group in await self.store.views.error_groups(limit=100)
        ]
        return sorted(groups, key=lambda group: str(group["fingerprint"]))

    async def set_going(self) -> None:
        """Ask for everything that waits for a person to go on, but for plans and triggers."""
        for label in SUSPENDED:
            await self.app.handle(self.id_of(label)).retry("the schema is free")
        await self.app.handle(self.id_of("paused")).resume("the migration is over")
        await self.app.handle(self.id_of("undo-broken")).rollback("the snapshot is free")
        await self.app.tenants.release("t-held")
        await self.app.queues.resume(SLOW_QUEUE, claiming=True)

    def mend(self) -> None:
        """Let everything succeed from now on."""
        self.work.broken = self.work.mail_is_down = self.work.healing = False


@pytest.fixture(params=[f"{kind} {v}" for v in VERSIONS for kind in ("sqlite", "redis")])
async def golden(
    request: pytest.FixtureRequest, tmp_path: Path, start_redis: StartRedis, receiver: Receiver
) -> AsyncIterator[GoldenStore]:
    """A store that an earlier version wrote; the machine has been started again since."""
    kind, version = str(request.param).split()
    folder = FOLDER / version
    facts = json.loads((folder / f"{kind}.json").read_text(encoding="utf-8"))
    clock = ManualClock(now=facts["now"] + AWAY_SECONDS)
    store: Store
    if kind == "sqlite":
        path = tmp_path / "holdfast.db"
        path.write_bytes(gzip.decompress((folder / "sqlite.db.gz").read_bytes()))
        store = SqliteStore(path, clock, boot_id="another start")
    else:
        server = start_redis(appendonly=True, appendfsync="everysec")
        lines = gzip.decompress((folder / "redis.jsonl.gz").read_bytes()).splitlines()
        with redis.Redis.from_url(server.url) as client:
            redis_text.restore(client, [json.loads(line) for line in lines])
        store = RedisStore(server.url, clock, time=clock.times)
    await store.open()
    opened = GoldenStore(store, clock, facts, GoldenWork(tmp_path, receiver.url("/golden")))
    yield opened
    opened.engine.close()
    await store.close()
