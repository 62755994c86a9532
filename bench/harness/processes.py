"""Processes with an end: each in a group of its own, each call with a limit.

A group is ended by the id of the process that was started here, whatever it started in turn.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO, Any, Self

from bench.harness.paths import PEERS, ROOT

STOP_SECONDS = 12.0  # adapters have ten
TAIL_LINES = 6
_FOLDERS = re.compile(r"(?:/[\w.@+-]+){2,}/")
_HOSTS = re.compile(r"https?://\S+|(?<=host=)[\"'][^\"']+[\"']")
_WATCH = 'read -r _; kill -9 -- "-$1"'  # our end of the pipe closes even if we are killed
_LEFT_OUT = ("HOLDFAST_", "PYTHON", "VIRTUAL_ENV", "PIP_")


class CaseFailed(RuntimeError):
    """A call did not come to a good end; the message says how it ended."""


def environment() -> dict[str, str]:
    """Return our environment without the variables that would change how an engine behaves."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_LEFT_OUT)}
    return {**kept, "PYTHONPATH": str(PEERS), "PYTHONUNBUFFERED": "1"}


def without_places(text: str) -> str:
    """Remove folders and host names of this machine from a text for the report."""
    return _FOLDERS.sub("…/", _HOSTS.sub("…", text))


class ChildProcess:
    """A process in a group of its own; the whole group is gone when the ``with`` block ends."""

    def __init__(
        self, command: Sequence[str | Path], *, extra: Mapping[str, str] | None = None
    ) -> None:
        if _ENDED.is_set():
            raise CaseFailed("the run is being ended")
        self._files = ExitStack()
        self._out = self._files.enter_context(tempfile.TemporaryFile())  # noqa: SIM115
        self._err = self._files.enter_context(tempfile.TemporaryFile())  # noqa: SIM115
        self._process = subprocess.Popen(
            [str(word) for word in command],
            cwd=ROOT,
            env={**environment(), **(extra or {})},
            stdin=subprocess.DEVNULL,
            stdout=self._out,
            stderr=self._err,
            start_new_session=True,
        )
        self._watcher = subprocess.Popen(
            ["/bin/sh", "-c", _WATCH, "watch", str(self.pid)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._asked = False
        _LIVE.add(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.kill()
        self._watcher.kill()
        self._watcher.communicate()
        self._files.close()
        _LIVE.discard(self)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def wait(self, seconds: float) -> int | None:
        """Return the exit code, or None while the process runs."""
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def kill(self) -> None:
        """Kill the whole group (SIGKILL)."""
        self._signal(signal.SIGKILL)
        self._process.wait()

    def end_group(self) -> None:
        """Kill the group, unless the process was waited for: then its id may be another's."""
        if self._process.returncode is None:
            self._signal(signal.SIGKILL)

    def ask_to_stop(self) -> None:
        """Send SIGTERM once: some programs end at once on a second one."""
        if self.alive and not self._asked:
            self._asked = True
            self._process.terminate()

    def stop(self) -> None:
        """Ask the process to stop, and kill its group after the grace."""
        self.ask_to_stop()
        self.wait(STOP_SECONDS)
        self.kill()

    def answer(self) -> dict[str, Any]:
        """Return the last line of the output that is a JSON object."""
        for line in reversed(_text(self._out).splitlines()):
            if line.startswith("{"):
                found: dict[str, Any] = json.loads(line)
                return found
        raise CaseFailed(f"no answer; {self.complaint()}")

    def complaint(self) -> str:
        """Return the end of the log, in one line."""
        lines = [line.strip() for line in _text(self._err).splitlines() if line.strip()]
        said = without_places(" | ".join(lines[-TAIL_LINES:])[-600:])
        return f"it said: {said}" if said else "it said nothing"

    def _signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.pid, number)


_LIVE: set[ChildProcess] = set()
_ENDED = threading.Event()


def end_all() -> None:
    """End the groups of all running processes, and start none any more."""
    _ENDED.set()
    for process in list(_LIVE):
        process.end_group()


def call(
    command: Sequence[str | Path], *, seconds: float, extra: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Run the command and return its answer; raise if it ends badly or not in time."""
    with ChildProcess(command, extra=extra) as process:
        ended = process.wait(seconds)
        if ended is None:
            raise CaseFailed(f"not done within {seconds:g} s, stopped; {process.complaint()}")
        if ended != 0:
            raise CaseFailed(f"exit code {ended}; {process.complaint()}")
        return process.answer()


def resident_kb(group: int) -> int:
    """Return the memory of all processes of a group; 0 where the system does not report it."""
    total = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            if int(stat.read_text().rpartition(")")[2].split()[2]) == group:
                total += _resident(stat.with_name("status"))
        except (OSError, IndexError, ValueError):
            continue
    return total


def _resident(status: Path) -> int:
    lines = (line.split() for line in status.read_text().splitlines())
    return next((int(words[1]) for words in lines if words[0] == "VmRSS:"), 0)


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")
