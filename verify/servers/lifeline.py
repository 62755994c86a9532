"""A process that does not outlive us, even if we are killed.

A shell reads from a pipe that only we hold open: when we are gone, it reads the end and kills.
PR_SET_PDEATHSIG would do without the shell, but on Linux only, and it fires as soon as the *thread*
ends that started the process.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import IO

_WATCH = 'read -r _; kill -9 "$1"; [ -z "$2" ] || rm -rf -- "$2"'


class Lifeline:
    """A running process and its watcher, both outside our process group: Ctrl-C is ours alone."""

    def __init__(
        self, command: Sequence[str], *, folder: Path, log: IO[bytes], leave_folder: bool
    ) -> None:
        self._process = subprocess.Popen(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        litter = "" if leave_folder else str(folder)
        self._watcher = subprocess.Popen(
            ["/bin/sh", "-c", _WATCH, "watch", str(self.pid), litter],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def wait_stopped(self) -> None:
        """Wait until a SIGSTOP has taken effect."""
        os.waitpid(self.pid, os.WUNTRACED)

    def end(self, *, grace_seconds: float) -> None:
        """Wait for the end that was asked for; after the grace, force it."""
        try:
            self._process.wait(grace_seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._watcher.kill()
        self._watcher.communicate()
        self._process.wait()
