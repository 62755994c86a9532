"""The interrupts of Ctrl-C, told from a KeyboardInterrupt that a stage's own code has raised."""

from __future__ import annotations

import asyncio
import dis
import signal
import threading
from types import TracebackType

_RAISES = frozenset(dis.opmap[name] for name in ("RAISE_VARARGS", "RERAISE") if name in dis.opmap)
_RUNNER = asyncio.Runner.__module__  # its handler lets the second Ctrl-C raise


def is_from_signal(error: BaseException) -> bool:
    """Return whether a signal's handler raised it, in the main thread and at no raise."""
    if type(error) is not KeyboardInterrupt or error.__traceback__ is None:
        return False
    if threading.current_thread() is not threading.main_thread():
        return False
    last = _innermost(error.__traceback__)
    if last.tb_frame.f_globals.get("__name__") == _RUNNER:
        return True
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return False
    return last.tb_frame.f_code.co_code[last.tb_lasti] not in _RAISES


def pass_on(error: BaseException) -> None:
    """Let the event loop end by the interrupt, once the stage that it struck has been stopped."""

    def interrupt() -> None:
        raise error

    asyncio.get_running_loop().call_soon(interrupt)


def _innermost(where: TracebackType) -> TracebackType:
    while where.tb_next is not None:
        where = where.tb_next
    return where
