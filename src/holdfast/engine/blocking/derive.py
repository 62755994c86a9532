"""Blocking methods derived from async ones: the same parameters, documentation and types.

A handle that the async method returns comes back as its blocking face. The face is declared by
`BlockingHandle(Face[Handle[R]])` and the like, which enter themselves here.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import AsyncIterator, Callable, Coroutine
from functools import wraps
from typing import TYPE_CHECKING, Any, ClassVar, Concatenate, Generic, ParamSpec, TypeVar

from holdfast.engine.blocking.loop_thread import LoopThread
from holdfast.engine.bulk.bulks import BulkHandle
from holdfast.engine.handle import Handle
from holdfast.engine.plans.handle import PlanHandle
from holdfast.engine.triggers.control import TriggerHandle

if TYPE_CHECKING:
    from holdfast.engine.blocking.faces import (
        BlockingBulkHandle,
        BlockingHandle,
        BlockingPlanHandle,
        BlockingTrigger,
    )

T = TypeVar("T")
R = TypeVar("R")
A = ParamSpec("A")


class Face(Generic[T]):
    """One part of the app, as code outside its loop uses it."""

    faces: ClassVar[dict[type, type[Face[Any]]]] = {}  # by the type that an async method returns

    def __init__(self, thread: LoopThread, part: T) -> None:
        self._thread = thread
        self._part = part

    def __init_subclass__(cls, of: type | None = None) -> None:
        if of is not None:
            Face.faces[of] = cls


def blocking(
    method: Callable[Concatenate[T, A], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[Face[T], A], R]:
    """Derive a method that waits for the async one."""
    return _derive(method)


def blocking_task(
    method: Callable[Concatenate[T, A], Coroutine[Any, Any, Handle[R]]],
) -> Callable[Concatenate[Face[T], A], BlockingHandle[R]]:
    return _derive(method)


def blocking_tasks(
    method: Callable[Concatenate[T, A], Coroutine[Any, Any, list[Handle[R]]]],
) -> Callable[Concatenate[Face[T], A], list[BlockingHandle[R]]]:
    return _derive(method)


def blocking_plan(
    method: Callable[Concatenate[T, A], Coroutine[Any, Any, PlanHandle]],
) -> Callable[Concatenate[Face[T], A], BlockingPlanHandle]:
    return _derive(method)


def blocking_trigger(
    method: Callable[Concatenate[T, A], Coroutine[Any, Any, TriggerHandle[R]]],
) -> Callable[Concatenate[Face[T], A], BlockingTrigger[R]]:
    return _derive(method)


def blocking_bulk(
    method: Callable[Concatenate[T, A], Coroutine[Any, Any, BulkHandle]],
) -> Callable[Concatenate[Face[T], A], BlockingBulkHandle]:
    return _derive(method)


def blocking_list(
    method: Callable[Concatenate[T, A], AsyncIterator[R]],
) -> Callable[Concatenate[Face[T], A], list[R]]:
    """Derive a method that waits for all that the async one yields."""

    async def collect(part: T, *arguments: A.args, **options: A.kwargs) -> list[R]:
        return [item async for item in method(part, *arguments, **options)]

    return _derive(wraps(method)(collect))


def _derive(method: Callable[..., Coroutine[Any, Any, Any]]) -> Callable[..., Any]:
    @wraps(method)
    def call(self: Face[Any], /, *arguments: Any, **options: Any) -> Any:
        answer = self._thread.call(method(self._part, *arguments, **options))
        return face_of(self._thread, answer)

    vars(call)["__signature__"] = blocking_signature(method)
    return call


def blocking_signature(method: Callable[..., Any]) -> inspect.Signature:
    """Return the signature of an async method, with the return type of its blocking form."""
    signature = inspect.signature(method)
    returned = re.sub(r"^Coroutine\[Any, Any, (.+)\]$", r"\1", str(signature.return_annotation))
    returned = re.sub(r"^AsyncIterator\[", "list[", returned)
    faces = {part.__name__: face.__name__ for part, face in Face.faces.items()}
    returned = re.sub(r"\w+", lambda name: faces.get(name[0], name[0]), returned)
    return signature.replace(return_annotation=returned)


def face_of(thread: LoopThread, answer: Any) -> Any:
    """Return the blocking face of a handle, or of each in a list; anything else as it is."""
    if isinstance(answer, list):
        return [face_of(thread, item) for item in answer]
    face = Face.faces.get(type(answer))
    return answer if face is None else face(thread, answer)
