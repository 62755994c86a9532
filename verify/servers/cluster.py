"""A Cluster of three masters, each with a replica; it is formed without redis-cli."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any, Self, Unpack

from verify.servers.config import Config
from verify.servers.context import Running
from verify.servers.poll import until
from verify.servers.process import HOST
from verify.servers.server import RedisServer

MASTERS = 3
SLOTS = 16384
# No node is given up for standing still: a replica takes over only on command.
NODE_TIMEOUT_MS = 60_000
FORMED_SECONDS = 120.0

LINES = (
    "cluster-enabled yes",
    "cluster-config-file nodes.conf",
    f"cluster-node-timeout {NODE_TIMEOUT_MS}",
    "cluster-replica-validity-factor 0",  # however long a replica was alone, it stands in
)


class Cluster(Running):
    """``with Cluster() as cluster: cluster.kill(cluster.master_of("k")); cluster.wait_ok()``"""

    def __init__(self, *, replicas: bool = True, **config: Unpack[Config]) -> None:
        self.config: Config = {**config, "lines": (*LINES, *config.get("lines", ()))}
        self.servers: list[RedisServer] = []
        self._size = MASTERS * 2 if replicas else MASTERS
        self._running = ExitStack()

    @property
    def url(self) -> str:
        """Return a URL that names the three first masters, dead or alive."""
        hosts = ",".join(f"{HOST}:{server.port}" for server in self.servers[:MASTERS])
        return f"redis+cluster://{self.servers[0].credentials}{hosts}"

    def start(self) -> Self:
        """Start the nodes, make them one, and wait until all are well and in step."""
        for _ in range(self._size):
            self.servers.append(self._running.enter_context(RedisServer(**self.config)))
        self._share_slots()
        self._meet()
        self._replicate()
        self.wait_ok()
        return self

    def close(self) -> None:
        self._running.close()

    def kill(self, server: RedisServer) -> None:
        """Kill one node (SIGKILL); until ``wait_ok()`` no replica takes over.

        ``server.start()`` brings it back, and it learns its new role from the others.
        """
        server.kill()

    def master_of(self, key: str) -> RedisServer:
        """Return the node that has the key's slot, by the answer of a living node."""
        asked = self._alive()[0]
        slot = int(_ask(asked, "CLUSTER", "KEYSLOT", key))
        ports = [port for first, last, port in _shares(asked) if first <= slot <= last]
        return next(server for server in self.servers if server.port in ports)

    def wait_ok(self, *, seconds: float = FORMED_SECONDS) -> None:
        """Let replicas take over for dead masters, and wait until each living node is well and in
        step and all of them see every slot at a living master."""
        self._stand_in()
        until(self._is_ok, "the Cluster is ok", seconds=seconds)

    def _alive(self) -> list[RedisServer]:
        return [server for server in self.servers if server.alive]

    def _is_ok(self) -> bool:
        alive = self._alive()
        return all(map(self._is_well, alive)) and len({tuple(_shares(one)) for one in alive}) == 1

    def _is_well(self, server: RedisServer) -> bool:
        if "cluster_state:ok" not in _ask(server, "CLUSTER", "INFO"):
            return False
        shares = _shares(server)
        served = sum(last - first + 1 for first, last, _ in shares)
        living = {one.port for one in self._alive()}
        return served == SLOTS and all(port in living for *_, port in shares) and server.is_synced()

    def _stand_in(self) -> None:
        """Let replicas take over at once, without a vote, for which all nodes must be awake."""
        dead = {server.port for server in self.servers if not server.alive}
        for server in self._alive():
            if _master_port(server) in dead:
                _ask(server, "CLUSTER", "FAILOVER", "TAKEOVER")

    def _meet(self) -> None:
        for epoch, server in enumerate(self.servers, start=1):
            _ask(server, "CLUSTER", "SET-CONFIG-EPOCH", epoch)  # else they quarrel over it first
        for server in self.servers:
            self._introduce(server)
        until(lambda: all(map(self._knows_all, self.servers)), "all met", seconds=FORMED_SECONDS)

    def _introduce(self, server: RedisServer) -> None:
        """Introduce the server to all others, also again: hearsay takes its time."""
        for other in self.servers:
            if other is not server:
                _ask(server, "CLUSTER", "MEET", HOST, other.port)

    def _knows_all(self, server: RedisServer) -> bool:
        lines = _nodes(server)
        return len(lines) == self._size and not any("handshake" in line for line in lines)

    def _share_slots(self) -> None:
        for n, server in enumerate(self.servers[:MASTERS]):
            share = range(n * SLOTS // MASTERS, (n + 1) * SLOTS // MASTERS)
            _ask(server, "CLUSTER", "ADDSLOTS", *share)

    def _replicate(self) -> None:
        pairs = list(zip(self.servers[MASTERS:], self.servers[:MASTERS], strict=False))
        for replica, master in pairs:
            _ask(replica, "CLUSTER", "REPLICATE", _ask(master, "CLUSTER", "MYID"))
        for server in self.servers:
            self._introduce(server)
        until(
            lambda: all(self._sees_replicas(server, len(pairs)) for server in self.servers),
            "all know the replicas",
            seconds=FORMED_SECONDS,
        )

    def _sees_replicas(self, server: RedisServer, count: int) -> bool:
        return sum("slave" in line.split()[2] for line in _nodes(server)) == count


def _ask(server: RedisServer, *command: str | int) -> Any:
    """Return the raw answer, which the client would otherwise convert."""
    with server.client() as client:
        client.response_callbacks.clear()
        return client.execute_command(*command)


def _nodes(server: RedisServer) -> list[str]:
    return [line for line in _ask(server, "CLUSTER", "NODES").splitlines() if line]


def _shares(server: RedisServer) -> list[tuple[int, int, int]]:
    """Return first slot, last slot and port of each master."""
    slots = _ask(server, "CLUSTER", "SLOTS")
    return sorted((first, last, master[1]) for first, last, master, *_ in slots)


def _master_port(server: RedisServer) -> int | None:
    """Return the port of a replica's master."""
    nodes = {words[0]: words for words in map(str.split, _nodes(server))}
    (mine,) = [words for words in nodes.values() if "myself" in words[2]]
    master = nodes.get(mine[3])
    return int(master[1].partition("@")[0].rpartition(":")[2]) if master else None
