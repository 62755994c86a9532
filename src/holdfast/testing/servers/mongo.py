"""A real process that speaks MongoDB's wire protocol, to be killed and started again."""

from __future__ import annotations

import os
import random
import signal
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Self

from holdfast.testing.servers.binary import NoServer
from holdfast.testing.servers.lifeline import Lifeline
from holdfast.testing.servers.running import Running
from holdfast.testing.servers.server import (
    HOST,
    PORTS,
    PORTS_TRIED_MAX,
    NotStarted,
    is_free,
)
from holdfast.testing.servers.waiting import NotInTime, until

MODULE = "nx_27017"
READY_SECONDS = 30.0
GRACE_SECONDS = 5.0
BOUND = b"Listening on"
PORT_TAKEN = b"ddress already in use"


class MongoServer(Running):
    """``with MongoServer() as server: AsyncMongoClient(server.url)``

    It is nx-27017: a MongoDB for what it keeps, not for the counts it answers. Without a folder it
    works in a passing one.
    """

    def __init__(self, *, folder: Path | None = None) -> None:
        self._passing = None
        if folder is None:
            self._passing = tempfile.TemporaryDirectory(prefix="holdfast-mongo-")
            folder = Path(self._passing.name)
        self.folder = folder.absolute()
        self._port: int | None = None
        self._life: Lifeline | None = None
        self._log_from = 0

    def __repr__(self) -> str:
        return f"<MongoServer on {self._port} {'alive' if self.alive else 'down'}>"

    @property
    def port(self) -> int:
        if self._port is None:
            raise NotStarted("it was never started")
        return self._port

    @property
    def url(self) -> str:
        return f"mongodb://{HOST}:{self.port}"

    @property
    def pid(self) -> int:
        if self._life is None:
            raise NotStarted("it is not running")
        return self._life.pid

    @property
    def alive(self) -> bool:
        return self._life is not None and self._life.alive

    def start(self) -> Self:
        """Start, on a port of its own choice the first time, and wait until it listens."""
        if self.alive:
            raise RuntimeError("it is running")
        if self._port is not None:
            self._start_on(self._port)
            return self
        for port in filter(is_free, random.sample(PORTS, PORTS_TRIED_MAX)):
            try:
                self._start_on(port)
            except NotStarted:
                if PORT_TAKEN not in self._log():
                    raise
            else:
                self._port = port
                return self
        raise NotStarted(f"{PORTS_TRIED_MAX} ports were tried, and all were taken")

    def kill(self) -> None:
        """SIGKILL. ``start()`` brings it back on the same port, with what it had kept."""
        life, self._life = self._life, None
        if life is not None:
            life.signal(signal.SIGKILL)
            life.end(grace_seconds=GRACE_SECONDS)

    def close(self) -> None:
        """Kill it and remove its passing folder; what is closed is not started again."""
        self.kill()
        if self._passing is not None:
            self._passing.cleanup()

    @property
    def _log_file(self) -> Path:
        return self.folder / "mongo.log"

    def _start_on(self, port: int) -> None:
        with self._log_file.open("ab") as log:
            self._log_from = os.fstat(log.fileno()).st_size
            self._life = Lifeline(
                _command(port), folder=self.folder, log=log, leave_folder=self._passing is None
            )
        try:
            until(
                lambda: not self.alive or BOUND in self._log(), "it listens", seconds=READY_SECONDS
            )
        except NotInTime as error:
            raise self._failed(port) from error
        if not self.alive:
            raise self._failed(port)

    def _failed(self, port: int) -> NotStarted:
        self.kill()
        tail = self._log().decode(errors="replace").splitlines()[-8:]
        return NotStarted("\n".join([f"not ready on port {port}:", *tail]))

    def _log(self) -> bytes:
        """What it has logged since its last start."""
        with self._log_file.open("rb") as log:
            log.seek(self._log_from)
            return log.read()


def _command(port: int) -> list[str]:
    if find_spec(MODULE) is None:
        raise NoServer("nx-27017 is not installed here: `make venv` brings it")
    # Its own log and pid file would else be the same for all servers of the machine.
    place = ("--data-dir", "data", "--log-file", "nx.log", "--pid-file", "nx.pid")
    return [sys.executable, "-m", f"{MODULE}.{MODULE}", "--host", HOST, "-p", str(port), *place]
