"""A profiler in every thread records the Python calls of this process."""

from __future__ import annotations

import dis
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

import holdfast

PACKAGE = Path(holdfast.__file__).parent
NOT_ENGINE = "testing/"  # clocks and servers for tests are no part of a road


class PythonCall(NamedTuple):
    file: str | None  # below src/holdfast; None: another library's
    function: str


class CallRecorder:
    """A recorder notes the calls of all threads that were started after `install`, while it is on.

    A coroutine or generator counts once, when it first runs; that it goes on is no call.
    """

    def __init__(self) -> None:
        self._on = False
        self._seen: list[tuple[CodeType, int]] = []

    def install(self) -> None:
        threading.setprofile(self._note)
        sys.setprofile(self._note)

    def remove(self) -> None:
        threading.setprofile(None)
        sys.setprofile(None)

    @contextmanager
    def unseen(self) -> Iterator[None]:
        """Threads that are started meanwhile carry no profiler."""
        threading.setprofile(None)
        try:
            yield
        finally:
            threading.setprofile(self._note)

    def start(self) -> None:
        self._seen.clear()
        self._on = True

    def stop(self) -> list[PythonCall]:
        self._on = False
        return [_call(code) for code, at in self._seen if at == _first(code)]

    @property
    def number(self) -> int:
        """Return how many events were seen since `start`: it stands still when nothing runs."""
        return len(self._seen)

    def _note(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and self._on:
            self._seen.append((frame.f_code, frame.f_lasti))


@cache
def _first(code: CodeType) -> int:
    """Return where a call of this code begins; a coroutine that goes on begins further down."""
    return next(one.offset for one in dis.get_instructions(code) if one.opname == "RESUME")


@cache
def _call(code: CodeType) -> PythonCall:
    path = Path(code.co_filename)
    if not path.is_relative_to(PACKAGE):
        return PythonCall(None, code.co_qualname)
    file = path.relative_to(PACKAGE).as_posix()
    return PythonCall(None if file.startswith(NOT_ENGINE) else file, code.co_qualname)
