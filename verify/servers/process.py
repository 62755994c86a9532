"""A server that is one process, listens on loopback, and is killed and started again by tests."""

from __future__ import annotations

import os
import random
import signal
import socket
import tempfile
from abc import abstractmethod
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import ClassVar, Self

from verify.servers.context import Running
from verify.servers.lifeline import Lifeline
from verify.servers.poll import NotInTime, until

HOST = "127.0.0.1"
# Below the ports that systems lend to clients: a stopped server finds its own still free. And low
# enough that a Cluster's second port, 10 000 above, is free for the same reason.
PORTS = range(12_000, 22_000)
PORTS_TRIED_MAX = 20
PORT_TAKEN = b"ddress already in use"


class NotStarted(RuntimeError):
    """The server ended or did not get ready; the message ends as its log does."""


class Listening(Running):
    """A server that is used by ``with``, or by ``start()`` and, in the end, ``close()``.

    Without a folder it works in a temporary one. A closed server is not started again.
    """

    NAME: ClassVar[str]  # of its log and of a passing folder
    # Logged once the port is bound. Until then, what answers on it may be somebody else.
    BOUND: ClassVar[tuple[bytes, ...]]
    READY_SECONDS: ClassVar[float]
    GRACE_SECONDS: ClassVar[float]

    def __init__(self, folder: Path | None) -> None:
        self._passing: tempfile.TemporaryDirectory[str] | None = None
        self.folder = self._passing_folder() if folder is None else folder.absolute()
        self._home = self.folder  # where the process is
        self._port: int | None = None
        self._claim: socket.socket | None = None
        self._life: Lifeline | None = None
        self._log_from = 0

    def __repr__(self) -> str:
        state = "alive" if self.alive else "down"
        return f"<{type(self).__name__} on {self._port} {state}>"

    @abstractmethod
    def _command(self, port: int, /) -> Sequence[str]: ...

    def _is_listening(self, _port: int, /) -> bool:
        """Return whether the port is bound; polled while the process lives."""
        return any(words in self._log() for words in self.BOUND)

    def _configure(self, port: int, /) -> None:
        """Write the configuration before the program is tried on a port that is not its own yet."""

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
    def log_file(self) -> Path:
        return self._home / f"{self.NAME}.log"

    def start(self) -> Self:
        """Start, on a port of its own choice the first time, and wait until it is ready."""
        if self.alive:
            raise RuntimeError("it is running")
        if self._port is None:
            self._port = self._start_on_free_port()
        else:
            self._start_again(self._port)
        return self

    def pause(self) -> None:
        """Stop the server (SIGSTOP): it keeps its connections and answers nobody."""
        life = self._running()
        life.signal(signal.SIGSTOP)
        life.wait_stopped()

    def resume(self) -> None:
        self._running().signal(signal.SIGCONT)

    def kill(self) -> None:
        """Kill the server (SIGKILL). ``start()`` brings it back on the same port."""
        self._end(signal.SIGKILL)

    def close(self) -> None:
        """End the server, and remove its temporary folder."""
        self.kill()
        if self._claim is not None:
            self._claim.close()
        if self._passing is not None:
            self._passing.cleanup()

    def _passing_folder(self) -> Path:
        self._passing = tempfile.TemporaryDirectory(prefix=f"holdfast-{self.NAME}-")
        return Path(self._passing.name)

    def _running(self) -> Lifeline:
        if self._life is None:
            raise NotStarted("it is not running")
        return self._life

    def _start_on_free_port(self) -> int:
        """Start on a free port, and return the port."""
        for port in filter(is_free, random.sample(PORTS, PORTS_TRIED_MAX)):
            claim = claim_port(port)
            if claim is None:
                continue
            try:
                self._configure(port)
                self._start_on(port)
            except BaseException as error:
                claim.close()
                if not isinstance(error, NotStarted) or PORT_TAKEN not in self._log():
                    raise
            else:
                self._claim = claim
                return port
        raise NotStarted(f"{PORTS_TRIED_MAX} ports were tried, and all were taken")

    def _start_again(self, port: int) -> None:
        self._start_on(port)

    def _start_on(self, port: int) -> None:
        leave = self._passing is None
        command = self._command(port)
        with self.log_file.open("ab") as log:
            self._log_from = os.fstat(log.fileno()).st_size
            self._life = Lifeline(command, folder=self._home, log=log, leave_folder=leave)
        try:
            until(lambda: self._is_settled(port), "it is ready", seconds=self.READY_SECONDS)
        except NotInTime as error:
            raise self._end_as_failed(f"is not ready on port {port}") from error
        if not self.alive:
            raise self._end_as_failed(f"ended at once on port {port}")

    def _is_settled(self, port: int) -> bool:
        """Ready, or gone, which is not worth waiting for either."""
        return not self.alive or self._is_listening(port)

    def _end_as_failed(self, how: str) -> NotStarted:
        self._end(signal.SIGKILL)
        tail = self._log().decode(errors="replace").splitlines()[-8:]
        return NotStarted("\n".join([f"{type(self).__name__} {how}:", *tail]))

    def _end(self, number: int) -> None:
        life, self._life = self._life, None
        if life is None:
            return
        life.signal(number)
        life.signal(signal.SIGCONT)  # a frozen server hears SIGTERM only when it thaws
        life.end(grace_seconds=self.GRACE_SECONDS)

    def _log(self) -> bytes:
        """Return the log since the last start."""
        with self.log_file.open("rb") as log:
            log.seek(self._log_from)
            return log.read()


def is_free(port: int) -> bool:
    with closing(socket.socket()) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def claim_port(port: int) -> socket.socket | None:
    """Keep a port from our other processes as long as its server may come back: bind the UDP port
    of the same number, which nobody uses and the system frees if this process is killed."""
    claim = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        claim.bind((HOST, port))
    except OSError:
        claim.close()
        return None
    return claim
