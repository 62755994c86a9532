"""A pipe on its standard input ties a process to the one that started it.

PR_SET_PDEATHSIG exists on Linux only, and fires when the *thread* ends that started the process.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from contextlib import suppress

from holdfast.cli.exit_codes import Exit
from holdfast.cli.process.worker_group import end_soon

STDIN = 0
READ_BYTES = 1024

log = logging.getLogger("holdfast.cli.worker")


def tie(asked: asyncio.Event, *, within_seconds: float) -> None:
    """Set ``asked`` when the pipe ends, and end the process ``within_seconds`` after that."""
    loop = asyncio.get_running_loop()

    def watch() -> None:
        while os.read(STDIN, READ_BYTES):
            pass
        end_soon(Exit.FAILED, within_seconds)
        if not asked.is_set():
            log.warning("the process that started this one is gone; this one drains and exits")
        with suppress(RuntimeError):  # the loop is closed: it ends already
            loop.call_soon_threadsafe(asked.set)

    threading.Thread(target=watch, name="tether", daemon=True).start()
