"""`holdfast worker --reload` drains and restarts its worker process when a file changes."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from types import FrameType

POLL_SECONDS = 0.5
FILES_MAX = 5000  # in a larger tree, only as many are watched
NOT_WATCHED = {"__pycache__", "node_modules", "site-packages", "build", "dist"}

log = logging.getLogger("holdfast.cli.reload")


class Reloader:
    """Runs `holdfast` with these arguments, and again after each change in this directory."""

    def __init__(self, args: Sequence[str]) -> None:
        self._command = [sys.executable, "-m", "holdfast", *args]
        self._folder = Path.cwd()
        self._stopping = False
        self._signalled = False  # the present worker has received a signal
        self._child: subprocess.Popen[bytes] | None = None

    def run(self) -> int:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        while True:
            seen, self._signalled = snapshot(self._folder), False
            # A session of its own: Ctrl-C reaches only us, and we pass on one signal, not two.
            self._child = subprocess.Popen(self._command, start_new_session=True)
            self._until_changed(self._child, seen)
            if not self._signalled:
                self._child.terminate()
            code = self._child.wait()
            if self._stopping:
                return code

    def _until_changed(self, child: subprocess.Popen[bytes], seen: dict[Path, int]) -> None:
        reported = False
        while not self._stopping and not _has_changed(seen, snapshot(self._folder)):
            if child.poll() is not None and not reported:
                log.warning("the worker exited (%d); a change starts it again", child.returncode)
                reported = True
            time.sleep(POLL_SECONDS)

    def _stop(self, _: int, __: FrameType | None) -> None:
        self._stopping = True
        if self._child is not None and self._child.poll() is None:
            self._child.terminate()
            self._signalled = True


def _has_changed(seen: dict[Path, int], now: dict[Path, int]) -> bool:
    changed = [path for path in seen.keys() | now.keys() if seen.get(path) != now.get(path)]
    if changed:
        log.info("%s changed: the worker drains and starts again", changed[0].name)
    return bool(changed)


def snapshot(folder: Path) -> dict[Path, int]:
    """Return when each watched file was last written."""
    written = {}
    for path in islice(_python_files(folder), FILES_MAX):
        try:
            written[path] = path.stat().st_mtime_ns
        except OSError:
            continue  # it was deleted meanwhile
    return written


def _python_files(folder: Path) -> Iterator[Path]:
    for root, folders, files in os.walk(folder):
        folders[:] = sorted(f for f in folders if f not in NOT_WATCHED and not f.startswith("."))
        yield from (Path(root, name) for name in files if name.endswith(".py"))
