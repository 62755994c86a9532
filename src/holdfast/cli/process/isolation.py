"""A suspect task runs in a process of its own, which `holdfast worker` starts and waits for.

The worker hands over the task with its lease. The process renews the lease, writes the end of the
task, and dies alone: then only a lease is left, with the note that nothing else ran. The pipe on
its standard input brings the task and ties the process to the worker.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress

import msgspec

from holdfast.cli.process.lifecycle import STDIN, tie_to_parent
from holdfast.cli.process.worker_group import WorkerGroup
from holdfast.engine import Holdfast
from holdfast.ports import Claimed

log = logging.getLogger("holdfast.cli.worker")

ISOLATED = "--isolated"
STDERR = 2
TASK_LIMIT_BYTES = 256 * 1024 * 1024  # its payload, results and data, as text


class Handover(msgspec.Struct, frozen=True, kw_only=True):
    """The claimed task that a worker hands to the process."""

    claimed: Claimed
    safe_until: float  # by the steady clock of the machine


class Isolation:
    """Starts the processes, one at a time."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = (sys.executable, "-m", "holdfast", *command, ISOLATED)
        self._process: asyncio.subprocess.Process | None = None

    async def run(self, claimed: Claimed, safe_until: float) -> None:
        """Run a claimed task in a process of its own, until that has ended."""
        process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=asyncio.subprocess.PIPE,
            stdout=STDERR,
            start_new_session=True,  # Ctrl-C is for the worker, which passes on one signal
        )
        self._process = process
        log.warning(
            "task %s crashed %d times in a row: it runs in a process of its own, pid %d",
            claimed.task.id,
            claimed.task.crashes,
            process.pid,
        )
        try:
            await self._hand_over(process, Handover(claimed=claimed, safe_until=safe_until))
            code = await process.wait()
        except asyncio.CancelledError:
            self.stop()
            await process.wait()
            raise
        finally:
            self._process = None
        if code != 0:
            log.error("task %s: its own process died (exit code %d)", claimed.task.id, code)

    def stop(self) -> None:
        """Let the process drain: it ends its stage, or gives the task back."""
        if self._process is not None:
            with suppress(ProcessLookupError):  # it has just ended
                self._process.send_signal(signal.SIGTERM)

    async def _hand_over(self, process: asyncio.subprocess.Process, what: Handover) -> None:
        assert process.stdin is not None
        with suppress(ConnectionError):  # it has ended already
            process.stdin.write(base64.b64encode(msgspec.json.encode(what)) + b"\n")
            await process.stdin.drain()


def read_handover() -> Handover:
    """Read the task from the pipe; the pipe's end, later, means that the worker is gone."""
    line = bytearray()
    while not line.endswith(b"\n"):
        read = os.read(STDIN, 65_536)
        if not read or len(line) > TASK_LIMIT_BYTES:
            raise EOFError("no task was handed over: only `holdfast worker` may start this")
        line += read
    return msgspec.json.decode(base64.b64decode(line), type=Handover)


async def run_handover(
    app: Holdfast, what: Handover, stop: asyncio.Event, workers: WorkerGroup
) -> None:
    """Run the task that was handed over, or give it back when the process has to stop."""
    tie_to_parent(stop, within_seconds=app.settings.drain + app.settings.lease)
    running = await workers.take(what.claimed, safe_until=what.safe_until)
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait((running, stopping), return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
