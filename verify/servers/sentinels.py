"""A primary, its replica, and three Sentinels that watch over them."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Self, Unpack

from verify.servers.config import Config
from verify.servers.context import Running
from verify.servers.poll import until
from verify.servers.process import HOST
from verify.servers.server import RedisServer

SENTINELS = 3
QUORUM = 2
DOWN_AFTER_MS = 600_000  # nobody is given up for standing still
# A primary that is dead. Sentinels connect anew once a second: sooner, and they would take a new
# one for dead as well.
DEAD_AFTER_MS = 1500
FAILOVER_TIMEOUT_MS = 2000
FORMED_SECONDS = 120.0
PROMOTED_SECONDS = 180.0  # a Sentinel that stood still looks on for half a minute


class Sentinels(Running):
    """``with Sentinels() as group: group.kill_primary(); group.wait_promoted()``

    What is asked for goes to primary and replica, not to the Sentinels.
    """

    def __init__(self, *, name: str = "holdfast", **config: Unpack[Config]) -> None:
        self.name = name
        self.config = config
        self.sentinels: list[RedisServer] = []
        self.primary: RedisServer
        self.replica: RedisServer
        self._running = ExitStack()

    @property
    def url(self) -> str:
        hosts = ",".join(f"{HOST}:{sentinel.port}" for sentinel in self.sentinels)
        return f"redis+sentinel://{self.primary.credentials}{hosts}/{self.name}"

    def start(self) -> Self:
        """Start all, and wait until every Sentinel knows the replica and the other Sentinels."""
        start = self._running.enter_context
        self.primary = start(RedisServer(**self.config))
        replica: Config = {**self.config, "replicaof": self.primary.port}
        self.replica = start(RedisServer(**replica))
        # A Sentinel asks for replicas every ten seconds: let the first answer be complete.
        until(self.replica.is_synced, "the replica is in step", seconds=FORMED_SECONDS)
        lines = self._sentinel_lines()
        for _ in range(SENTINELS):
            self.sentinels.append(start(RedisServer(sentinel=True, lines=lines)))
        until(lambda: all(map(self._is_aware, self.sentinels)), "formed", seconds=FORMED_SECONDS)
        return self

    def close(self) -> None:
        self._running.close()

    def kill_primary(self) -> RedisServer:
        """Kill the primary (SIGKILL) and return it; it may be started again as a replica.

        Until ``wait_promoted()`` nobody takes its place.
        """
        self.primary.kill()
        return self.primary

    def wait_promoted(self) -> RedisServer:
        """Wait until all Sentinels name the replica as primary; it and the old one change names."""
        next_primary = self.replica
        if not self.primary.alive:
            self._give_up_after(DEAD_AFTER_MS)
        until(
            lambda: (
                all(self._named_by(sentinel) == next_primary.port for sentinel in self._watching())
                and next_primary.role() == "master"
            ),
            f"the Sentinels name {next_primary!r}",
            seconds=PROMOTED_SECONDS,
        )
        self._give_up_after(DOWN_AFTER_MS)
        self.primary, self.replica = self.replica, self.primary
        return self.primary

    def _give_up_after(self, milliseconds: int) -> None:
        for sentinel in self._watching():
            with sentinel.client() as client:
                client.sentinel_set(self.name, "down-after-milliseconds", milliseconds)

    def _watching(self) -> list[RedisServer]:
        return [sentinel for sentinel in self.sentinels if sentinel.alive]

    def _sentinel_lines(self) -> list[str]:
        name, password = self.name, self.config.get("password")
        return [
            f"sentinel monitor {name} {HOST} {self.primary.port} {QUORUM}",
            *([f'sentinel auth-pass {name} "{password}"'] if password else []),
            f"sentinel down-after-milliseconds {name} {DOWN_AFTER_MS}",
            f"sentinel failover-timeout {name} {FAILOVER_TIMEOUT_MS}",
            f"sentinel parallel-syncs {name} 1",
        ]

    def _is_aware(self, sentinel: RedisServer) -> bool:
        with sentinel.client() as client:
            seen = client.sentinel_master(self.name)
        return (seen["num-slaves"], seen["num-other-sentinels"]) == (1, SENTINELS - 1)

    def _named_by(self, sentinel: RedisServer) -> int:
        with sentinel.client() as client:
            return int(client.sentinel_get_master_addr_by_name(self.name)[1])
