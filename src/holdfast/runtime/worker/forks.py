"""A process that a stage has forked is no worker: it ends when it comes back out of the stage.

A forked child has a copy of the worker: its event loop, its leases, its connections to the store.
What the stage does in the child is the user's business. The child ends as soon as it would go on
with anything of the engine.
"""

from __future__ import annotations

import asyncio
import os
import weakref
from typing import ClassVar, NoReturn

_MESSAGE = (
    b"holdfast: a process that was forked in a stage came back out of the stage; it ends here\n"
)


class Forks:
    generation = 0  # one more in each forked child: what was begun in its parent is not its own
    loops: ClassVar[weakref.WeakSet[asyncio.AbstractEventLoop]] = weakref.WeakSet()


def watch(loop: asyncio.AbstractEventLoop) -> None:
    """Note the loop of a worker: in a forked child it does nothing more."""
    Forks.loops.add(loop)


def end_child(error: BaseException | None = None) -> NoReturn:
    """End this process at once, with the code of a SystemExit: what is open is its parent's."""
    code = 0 if error is None else 1
    if isinstance(error, SystemExit):
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    else:
        os.write(2, _MESSAGE)
    os._exit(code)


def _in_child() -> None:
    Forks.generation += 1
    for loop in Forks.loops:
        # The stage may have forked in a task of its own, or in a thread of a pool: whatever comes
        # back from there calls one of these.
        loop.call_soon = loop.call_soon_threadsafe = _end  # type: ignore[method-assign]
        ready = getattr(loop, "_ready", None)
        if ready is not None:  # asyncio's own loop: before anything that was ready already
            ready.appendleft(asyncio.Handle(_end, (), loop))
    Forks.loops.clear()


def _end(*_: object, **__: object) -> NoReturn:
    end_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
