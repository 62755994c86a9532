"""A process of `worker` or `serve` starts, stops on signals, and ends here."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, NoReturn

from holdfast.cli.exit_codes import Exit
from holdfast.cli.output import redaction
from holdfast.cli.process.logs import log_everything
from holdfast.engine import Holdfast
from holdfast.runtime.worker.failure_records import summary
from holdfast.runtime.worker.interrupts import is_from_signal

FILES_MAX = 65_536  # as many as connections and stages can use; more would only hide a leak
LAST_WORD_SECONDS = 1.0
STDIN = 0
READ_BYTES = 1024

cli_log = logging.getLogger("holdfast.cli")
log = logging.getLogger("holdfast.cli.worker")


def log_for(app: Holdfast) -> None:
    redaction.use(app.redactor)
    log_everything(app.settings.log)


def raise_file_limit() -> None:
    """Raise the soft limit on open files to the hard one, or to FILES_MAX if that is lower."""
    try:
        import resource
    except ModuleNotFoundError:  # Windows has no such limit
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES_MAX if hard == resource.RLIM_INFINITY else min(FILES_MAX, hard)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (OSError, ValueError) as error:  # macOS allows less than it says
        cli_log.warning("cannot raise the limit of %d open files to %d: %s", soft, wanted, error)


def end(code: int) -> NoReturn:
    end_soon(code)
    logging.shutdown()
    sys.stdout.flush()
    os._exit(code)


def end_soon(code: int, seconds: float = LAST_WORD_SECONDS) -> None:
    """End the process after some seconds, even if a last log line blocks on a pipe that nobody
    reads.
    """
    timer = threading.Timer(seconds, os._exit, (code,))
    timer.daemon = True
    timer.start()


def tie_to_parent(stop: asyncio.Event, *, within_seconds: float) -> None:
    """Set ``stop`` when the pipe on standard input ends, because the process that started this one
    is gone; end this process ``within_seconds`` after that.

    PR_SET_PDEATHSIG exists on Linux only, and fires when the *thread* ends that started the
    process.
    """
    loop = asyncio.get_running_loop()

    def watch() -> None:
        while os.read(STDIN, READ_BYTES):
            pass
        end_soon(Exit.FAILED, within_seconds)
        if not stop.is_set():
            log.warning("the process that started this one is gone; this one drains and exits")
        with suppress(RuntimeError):  # the loop is closed: it ends already
            loop.call_soon_threadsafe(stop.set)

    threading.Thread(target=watch, name="tether", daemon=True).start()


def on_signals(*, at_once: bool) -> tuple[asyncio.Event, asyncio.Event, asyncio.Event]:
    """Return three events, set by the first SIGTERM, by the second signal, and by the third: the
    stop is announced, then requested, then urgent.

    The first SIGINT counts as two signals, and so does the first SIGTERM with ``at_once``.
    """
    announced, requested, urgent = (asyncio.Event() for _ in range(3))

    def stop(number: int) -> None:
        if requested.is_set():
            urgent.set()
        elif announced.is_set() or at_once or number == signal.SIGINT:
            requested.set()
        announced.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop, number)
    return announced, requested, urgent


def run(work: Coroutine[Any, Any, None]) -> None:
    """Run until the work is done.

    An exit or interrupt that a task of a stage raises would end the loop. It is that stage's
    failure, and the loop continues.
    """
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        loop = runner.get_loop()
        main = loop.create_task(work)
        while not main.done():
            try:
                loop.run_until_complete(main)
            except (SystemExit, KeyboardInterrupt) as error:
                if main.done() or is_from_signal(error):
                    raise
                log.error("a task that a stage started raised %s", summary(error))


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
