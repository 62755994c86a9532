"""One real redis-server, to be stopped, killed, frozen and started again."""

from __future__ import annotations

import os
import random
import signal
import socket
import tempfile
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Self, Unpack
from urllib.parse import quote

from holdfast.testing.servers.binary import find_server
from holdfast.testing.servers.config import Config, config_text
from holdfast.testing.servers.lifeline import Lifeline
from holdfast.testing.servers.running import Running
from holdfast.testing.servers.waiting import NotInTime, until

if TYPE_CHECKING:
    import redis

HOST = "127.0.0.1"
# Below the ports that systems lend to clients: a stopped server finds its own still free. And low
# enough that a Cluster's second port, 10 000 above, is free for the same reason.
PORTS = range(12_000, 22_000)
PORTS_TRIED_MAX = 20
READY_SECONDS = 15.0
GRACE_SECONDS = 15.0  # a primary waits 10 s for its replicas before it stops

# Logged once the ports are bound. Until then, what answers on them may be somebody else.
BOUND = (b"Ready to accept connections", b"Sentinel ID is")
PORT_TAKEN = b"ddress already in use"
BUSY = (b"-LOADING", b"-MASTERDOWN")  # any other answer to a PING, be it a refusal, is a live one


class NotStarted(RuntimeError):
    """The server ended or did not get ready; the message ends as its log does."""


class RedisServer(Running):
    """``with RedisServer(appendonly=True) as server: ...``

    Outside of ``with``: ``start()``, and ``close()`` in the end. Without a folder it works in a
    passing one. The configuration is written at the first start and then the server's to change.
    """

    def __init__(
        self, *, folder: Path | None = None, sentinel: bool = False, **config: Unpack[Config]
    ) -> None:
        self._passing = None
        if folder is None:
            self._passing = tempfile.TemporaryDirectory(prefix="holdfast-redis-")
            folder = Path(self._passing.name)
        self.folder = folder
        self.config = config
        self._sentinel = sentinel
        self._port: int | None = None
        self._life: Lifeline | None = None
        self._log_from = 0

    def __repr__(self) -> str:
        return f"<RedisServer on {self._port} {'alive' if self.alive else 'down'}>"

    @property
    def port(self) -> int:
        if self._port is None:
            raise NotStarted("it was never started")
        return self._port

    @property
    def pid(self) -> int:
        return self._running().pid

    @property
    def alive(self) -> bool:
        return self._life is not None and self._life.alive

    @property
    def url(self) -> str:
        return f"redis://{self.credentials}{HOST}:{self.port}"

    @property
    def credentials(self) -> str:
        """What stands before the host in a URL."""
        password = self.config.get("password")
        return f":{quote(password, safe='')}@" if password else ""

    def client(self, *, timeout_seconds: float = 5.0) -> redis.Redis:
        """A client that answers in text and tries once; close it, or use it in ``with``."""
        import redis
        from redis.backoff import NoBackoff
        from redis.retry import Retry

        return redis.Redis(
            host=HOST,
            port=self.port,
            password=self.config.get("password"),
            decode_responses=True,
            socket_timeout=timeout_seconds,
            socket_connect_timeout=timeout_seconds,
            retry=Retry(NoBackoff(), 0),
        )

    def role(self) -> str:
        """master or slave, in the server's own words; nothing if it does not answer."""
        return str(self._replication().get("role", ""))

    def is_synced(self) -> bool:
        """A replica that has all of its primary, or no replica."""
        seen = self._replication()
        return bool(seen) and seen.get("master_link_status", "up") == "up"

    def start(self) -> Self:
        """Start, on a port of its own choice the first time, and wait until it answers."""
        if self.alive:
            raise RuntimeError("it is running")
        if self._port is not None:
            self._start_on(self._port)
            return self
        for port in random.sample(PORTS, PORTS_TRIED_MAX):
            if not is_free(port):
                continue
            self._config_file.write_text(config_text(self.config, port=port, folder=self.folder))
            try:
                self._start_on(port)
            except NotStarted:
                if PORT_TAKEN not in self._log():
                    raise
            else:
                self._port = port
                return self
        raise NotStarted(f"{PORTS_TRIED_MAX} ports were tried, and all were taken")

    def stop(self) -> None:
        """SIGTERM: it may finish its files."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL: it hears nothing of it."""
        self._end(signal.SIGKILL)

    def restart(self) -> Self:
        """Start again on the same port and folder; stop it first if it runs."""
        self.stop()
        return self.start()

    def pause(self) -> None:
        """SIGSTOP: it keeps its connections and answers nobody."""
        life = self._running()
        life.signal(signal.SIGSTOP)
        life.wait_stopped()

    def resume(self) -> None:
        self._running().signal(signal.SIGCONT)

    def close(self) -> None:
        """Kill it and remove its passing folder; what is closed is not started again."""
        self.kill()
        if self._passing is not None:
            self._passing.cleanup()

    @property
    def _config_file(self) -> Path:
        return self.folder / "redis.conf"

    @property
    def _log_file(self) -> Path:
        return self.folder / "redis.log"

    def _replication(self) -> dict[str, str]:
        import redis

        try:
            with self.client() as client:
                seen: dict[str, str] = client.info("replication")
        except redis.ConnectionError:  # one that takes another role cuts all its clients off
            return {}
        return seen

    def _running(self) -> Lifeline:
        if self._life is None:
            raise NotStarted("it is not running")
        return self._life

    def _start_on(self, port: int) -> None:
        mode = ["--sentinel"] if self._sentinel else []
        command = [str(find_server()), str(self._config_file), *mode]
        with self._log_file.open("ab") as log:
            self._log_from = os.fstat(log.fileno()).st_size
            self._life = Lifeline(
                command, folder=self.folder, log=log, leave_folder=self._passing is None
            )
        try:
            until(lambda: self._is_ready(port), f"{self!r} is ready", seconds=READY_SECONDS)
        except NotInTime as error:
            self.kill()
            raise NotStarted(f"not ready on port {port}:\n{self._log_tail()}") from error
        if not self.alive:
            self.kill()
            raise NotStarted(f"ended at once on port {port}:\n{self._log_tail()}")

    def _is_ready(self, port: int) -> bool:
        """Or gone, which is not worth waiting for either."""
        if not self.alive:
            return True
        return any(line in self._log() for line in BOUND) and _answers(port)

    def _end(self, number: int) -> None:
        life, self._life = self._life, None
        if life is None:
            return
        life.signal(number)
        life.signal(signal.SIGCONT)  # a frozen server hears SIGTERM only when it thaws
        life.end(grace_seconds=GRACE_SECONDS)

    def _log(self) -> bytes:
        """What it has logged since its last start."""
        with self._log_file.open("rb") as log:
            log.seek(self._log_from)
            return log.read()

    def _log_tail(self) -> str:
        return "\n".join(self._log().decode(errors="replace").splitlines()[-8:])


def is_free(port: int) -> bool:
    with closing(socket.socket()) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def _answers(port: int) -> bool:
    """By hand: this PING asks for no password, and a refusal is as good as a PONG."""
    try:
        with socket.create_connection((HOST, port), timeout=1.0) as connection:
            connection.sendall(b"PING\r\n")
            answer = connection.recv(256)
    except OSError:
        return False
    return bool(answer) and not answer.startswith(BUSY)
