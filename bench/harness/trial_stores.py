"""Stores to run on: each trial gets an empty one."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Self

import msgspec

from bench.harness.cpu import CpuReading, tree_cpu_seconds
from bench.harness.environments import python_for
from bench.harness.paths import ENVIRONMENTS
from verify.servers import Cluster, Config, RedisServer
from verify.servers.postgres import SETTINGS, PostgresServer
from verify.servers.postgres_programs import find_binaries, machine_binaries

REDIS_CONFIG: Config = {
    "appendonly": True,
    "appendfsync": "everysec",
    "lines": ("auto-aof-rewrite-percentage 0",),  # no rewrite in the middle of a run of seconds
}
POSTGRES_DEFAULTS = ("fsync=on", "synchronous_commit=on")  # nobody sets them otherwise


def redis_settings() -> str:
    """Return the settings of the Redis servers for the report."""
    kept = "yes" if REDIS_CONFIG["appendonly"] else "no"
    first = [f"appendonly {kept}", f"appendfsync {REDIS_CONFIG['appendfsync']}", 'save ""']
    return ", ".join([*first, *REDIS_CONFIG["lines"]])


def postgres_settings() -> str:
    said = [one for one in SETTINGS if not one.startswith(("listen", "unix_socket"))]
    return ", ".join(one.replace("=", " ") for one in (*POSTGRES_DEFAULTS, *said))


class TrialStore(msgspec.Struct, frozen=True, kw_only=True):
    store: str
    url: str
    redis: RedisServer | None = None
    servers: tuple[int, ...] = ()  # processes; on SQLite there is none

    def server_cpu_seconds(self) -> float:
        """Return the CPU time of the servers and of all that they have started."""
        return tree_cpu_seconds(self.servers) if self.servers else 0.0

    def read_own_cpu(self, tasks: int = 0) -> CpuReading:
        """Read what this process, as the client, and the servers have used by so many tasks."""
        return CpuReading(time.process_time(), self.server_cpu_seconds(), tasks)


class TrialStores:
    """Open the empty stores of trials: ``trial_stores.open("redis")`` yields one with its URL."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._postgres: PostgresServer | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._stack.close()

    @contextmanager
    def open(self, store: str, *, apart: bool = False) -> Iterator[TrialStore]:
        """Open an empty store; with ``apart`` it shares no server with another trial."""
        with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
            if store == "redis":
                with redis_server() as server:
                    url = f"{server.url}/0"
                    yield TrialStore(store=store, url=url, redis=server, servers=(server.pid,))
            elif store == "sqlite":
                yield TrialStore(store=store, url=f"sqlite:///{folder}/tasks.db")
            elif apart:
                with PostgresServer(Path(folder), binaries=ready_binaries()) as postgres:
                    yield _on_postgres(postgres)
            else:
                yield _on_postgres(self.postgres())

    @contextmanager
    def open_cluster(self, partitions: int) -> Iterator[TrialStore]:
        """Open an empty namespace on a Cluster of three masters; each partition lies on one."""
        with Cluster(replicas=False, **REDIS_CONFIG) as cluster:
            pids = tuple(server.pid for server in cluster.servers)
            url = f"{cluster.url}?partitions={partitions}"
            yield TrialStore(store="redis", url=url, servers=pids)

    def folder(self, prefix: str) -> Path:
        """Return a new folder that exists as long as these stores do."""
        return Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix=prefix)))

    def postgres(self) -> PostgresServer:
        """One server for all trials; each has a database of its own."""
        if self._postgres is None:
            folder = tempfile.TemporaryDirectory(prefix="holdfast-bench-postgres-")
            path = Path(self._stack.enter_context(folder))
            path.chmod(0o755)
            server = PostgresServer(path / "server", binaries=ready_binaries())
            self._postgres = self._stack.enter_context(server)
        return self._postgres


def _on_postgres(server: PostgresServer) -> TrialStore:
    return TrialStore(store="postgres", url=server.fresh_url(), servers=(server.pid,))


def redis_server() -> RedisServer:
    return RedisServer(**REDIS_CONFIG)


def ready_binaries() -> Path:
    """The programs of PostgreSQL: the machine's, or else out of a wheel."""
    if machine_binaries() is None:
        python_for("postgres")
    return find_binaries(ENVIRONMENTS / "postgres")
