"""Processes that a stage has forked: a child that comes back out of the stage is no worker.

A forked child has a copy of the worker: its event loop, its leases, its connections to the store.
What the stage does in the child is the user's business. The child ends as soon as it would go on
with anything of the engine.
"""

from __future__ import annotations

import asyncio
import os
import weakref
from collections.abc import Coroutine, Generator
from typing import Any, ClassVar, NoReturn

_SAID = b"holdfast: a process that was forked in a stage came back out of the stage; it ends here\n"


class _Forks:
    generation = 0  # one more in each forked child: what was begun in its parent is not its own
    loops: ClassVar[weakref.WeakSet[asyncio.AbstractEventLoop]] = weakref.WeakSet()


def watch(loop: asyncio.AbstractEventLoop) -> None:
    """Note the loop of a worker: in a forked child it does nothing more."""
    _Forks.loops.add(loop)


def generation() -> int:
    """Return a number that differs from that of the process which forked this one."""
    return _Forks.generation


def end_child(error: BaseException | None = None) -> NoReturn:
    """End this process at once, with the code of a SystemExit: what is open is its parent's."""
    code = 0 if error is None else 1
    if isinstance(error, SystemExit):
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    else:
        os.write(2, _SAID)
    os._exit(code)


class Guarded:
    """Awaits a stage's coroutine, and ends a forked child where it would return to the loop."""

    __slots__ = ("_call",)

    def __init__(self, call: Coroutine[Any, Any, Any]) -> None:
        self._call = call

    def __await__(self) -> Generator[Any, Any, Any]:
        began_in, send = _Forks.generation, self._call.send
        try:
            waits_for = send(None)
            while _Forks.generation == began_in:
                try:
                    sent = yield waits_for
                except GeneratorExit:
                    self._call.close()
                    raise
                except BaseException as error:
                    waits_for = self._call.throw(error)
                else:
                    waits_for = send(sent)
        except StopIteration as returned:
            if _Forks.generation == began_in:
                return returned.value
        except BaseException as error:
            if _Forks.generation == began_in:
                raise
            end_child(error)
        end_child()


def _in_child() -> None:
    _Forks.generation += 1
    for loop in _Forks.loops:
        # The stage may have forked in a task of its own, or in a thread of a pool: whatever comes
        # back from there calls one of these.
        loop.call_soon = loop.call_soon_threadsafe = _end  # type: ignore[method-assign]
        ready = getattr(loop, "_ready", None)
        if ready is not None:  # asyncio's own loop: before anything that was ready already
            ready.appendleft(asyncio.Handle(_end, (), loop))
    _Forks.loops.clear()


def _end(*_: object, **__: object) -> NoReturn:
    end_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
