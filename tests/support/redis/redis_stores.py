"""A store of a test's own on the shared server, and the server's own view of it."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import redis

from holdfast.stores.redis.keys import GROUP
from holdfast.stores.redis.store import RedisStore
from holdfast.testing.clock import ManualClock
from holdfast.testing.contract.drivers.store_driver import StoreDriver
from verify.servers import Cluster, RedisServer


class Bench:
    """A store, hands on it, and plain commands beneath it: ``bench.ask("GET", "line:t")``."""

    def __init__(
        self, store: RedisStore, clock: ManualClock, client: redis.Redis, namespace: str
    ) -> None:
        self.store, self.clock, self.namespace = store, clock, namespace
        self.driver = StoreDriver(store, clock)
        self._client = client
        self._ask: Callable[..., Any] = client.execute_command

    def ask(self, command: str, name: str, *args: object) -> Any:
        """``name`` without the namespace."""
        return self._ask(*command.split(), self.name(name), *args)

    def raw(self, command: str, name: str, *args: object) -> Any:
        """The same, with an answer that need not be text."""
        return self._ask(command, self.name(name), *args, NEVER_DECODE=True)

    def consumers(self, stream: str) -> Any:
        return self._client.xinfo_consumers(self.name(stream), GROUP)

    def read(self, stream: str, number: int) -> Any:
        """Read from the stream as a member of its group would that takes no lease."""
        return self._client.xreadgroup(GROUP, "rogue", {self.name(stream): ">"}, count=number)

    def name(self, name: str) -> str:
        return f"{self.namespace}:{name}"

    def names(self) -> set[str]:
        start = len(self.namespace) + 1
        return {name[start:] for name in self._client.scan_iter(f"{self.namespace}:*")}


@asynccontextmanager
async def benched(server: RedisServer, namespace: str) -> AsyncIterator[Bench]:
    clock = ManualClock()
    store = RedisStore(server.url, clock, namespace, time=clock.times)
    await store.open()
    try:
        with server.client() as client:
            yield Bench(store, clock, client, namespace)
    finally:
        await store.close()


@contextmanager
def partitioned_cluster() -> Iterator[Cluster]:
    """One that goes on answering for the slots that it has, and forgets nothing when killed."""
    lines = ["cluster-require-full-coverage no", "appendfsync always"]
    with Cluster(replicas=False, appendonly=True, lines=lines) as started:
        yield started


@asynccontextmanager
async def on_partitions(
    cluster: Cluster, namespace: str, partitions: int
) -> AsyncIterator[tuple[RedisStore, ManualClock]]:
    """A store on many partitions; in the end everything agrees."""
    clock = ManualClock()
    url = f"{cluster.url}?partitions={partitions}"
    store = RedisStore(url, clock, namespace, time=clock.times)
    await store.open()
    try:
        yield store, clock
        assert not await store.admin.doctor(fix=False, limit=100)
    finally:
        await store.close()
