"""One real redis-server, to be stopped, killed, frozen and started again."""

from __future__ import annotations

import signal
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Self, Unpack
from urllib.parse import quote

from verify.servers.binary import find_server
from verify.servers.config import Config, config_text
from verify.servers.process import HOST, Listening

if TYPE_CHECKING:
    import redis

BUSY = (b"-LOADING", b"-MASTERDOWN")  # any other answer to a PING, be it a refusal, is a live one


class RedisServer(Listening):
    """``with RedisServer(appendonly=True) as server: ...``

    The configuration is written at the first start and then the server's to change.
    """

    NAME = "redis"
    BOUND = (b"Ready to accept connections", b"Sentinel ID is")
    READY_SECONDS = 60.0
    GRACE_SECONDS = 60.0  # a primary waits 10 s for its replicas before it stops

    def __init__(
        self, *, folder: Path | None = None, sentinel: bool = False, **config: Unpack[Config]
    ) -> None:
        super().__init__(folder)
        self.config = config
        self._sentinel = sentinel

    @property
    def url(self) -> str:
        return f"redis://{self.credentials}{HOST}:{self.port}"

    @property
    def credentials(self) -> str:
        """Return the part of a URL before the host."""
        password = self.config.get("password")
        return f":{quote(password, safe='')}@" if password else ""

    def client(self, *, timeout_seconds: float = 60.0) -> redis.Redis:
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

    def stop(self) -> None:
        """SIGTERM: it may finish its files."""
        self._end(signal.SIGTERM)

    def restart(self) -> Self:
        """Start again on the same port and folder; stop it first if it runs."""
        self.stop()
        return self.start()

    @property
    def _config_file(self) -> Path:
        return self.folder / "redis.conf"

    def _replication(self) -> dict[str, str]:
        import redis

        try:
            with self.client() as client:
                seen: dict[str, str] = client.info("replication")
        except redis.ConnectionError:  # one that takes another role cuts all its clients off
            return {}
        return seen

    def _configure(self, port: int, /) -> None:
        self._config_file.write_text(config_text(self.config, port=port, folder=self.folder))

    def _command(self, _port: int, /) -> list[str]:
        mode = ["--sentinel"] if self._sentinel else []
        return [str(find_server()), str(self._config_file), *mode]

    def _is_listening(self, port: int, /) -> bool:
        return super()._is_listening(port) and _answers(port)


def _answers(port: int) -> bool:
    """Ping by hand: this PING asks for no password, and a refusal is as good as a PONG."""
    try:
        with socket.create_connection((HOST, port), timeout=10.0) as connection:
            connection.sendall(b"PING\r\n")
            answer = connection.recv(256)
    except OSError:
        return False
    return bool(answer) and not answer.startswith(BUSY)
