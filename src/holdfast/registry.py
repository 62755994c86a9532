"""The registry of declared task types, their stages and triggers, as the runtime uses them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from holdfast.domain import bulk, names, notification
from holdfast.domain.errors import DeclarationError
from holdfast.domain.task.checkpoint import DEFAULT, Policy
from holdfast.domain.task.retry import Retry
from holdfast.domain.trigger.trigger import Definition
from holdfast.encoding.codec import Codec

INTERNAL = notification.OWN  # the prefix of the engine's own task types
OWN_QUEUES = (bulk.QUEUE, notification.QUEUE)


@dataclass(slots=True)
class StageDef:
    name: str
    call: Callable[..., Any]
    is_async: bool
    takes_payload: bool
    retry: Retry
    timeout_seconds: float
    result: Codec[Any]
    undo: UndoDef | None = None
    read_as: Codec[Any] | None = None  # of a last stage, if its workflow has another result type

    def encode_result(self, value: Any) -> bytes:
        """Encode a result; refuse one that its readers would not get unchanged."""
        body = self.result.encode(value)
        if self.read_as is not None:
            self.read_as.check_copy(value, body, what=self.result.what)
        return body


@dataclass(frozen=True, slots=True)
class UndoDef:
    call: Callable[..., Any]
    is_async: bool
    takes_payload: bool


@dataclass(slots=True)
class TaskType:
    name: str
    payload: Codec[Any]
    result: Codec[Any]
    queue: str
    hold: bool
    workflow: bool
    keep_seconds: float
    checkpoints: Policy = DEFAULT
    effects_namespace: str | None = None  # effects="key": the scope in which keys are unique
    stages: list[StageDef] = field(default_factory=list)
    stage_names: tuple[str, ...] = ()  # of ``stages``, as in every task

    def add(self, stage: StageDef) -> None:
        stage.name = names.check("stage", stage.name)
        if stage.name in self.stage_names:
            raise DeclarationError(f"{self.name} has two stages named {stage.name!r}")
        if self.stages:
            self.stages[-1].read_as = None
        if self.result.declared not in (Any, stage.result.declared):
            stage.read_as = self.result
        self.stages.append(stage)
        self.stage_names += (stage.name,)

    def stage(self, name: str) -> StageDef | None:
        return next((stage for stage in self.stages if stage.name == name), None)


def own_type(
    name: str,
    queue: str,
    stage: str,
    call: Callable[..., Any],
    *,
    payload: Codec[Any],
    retry: Retry,
    timeout_seconds: float,
    keep_seconds: float,
) -> TaskType:
    """Return a type of the engine's own: an async stage with a payload, and any result."""
    declared = TaskType(
        name=name,
        payload=payload,
        result=Codec(Any),
        queue=queue,
        hold=False,
        workflow=False,
        keep_seconds=keep_seconds,
    )
    declared.add(
        StageDef(
            name=stage,
            call=call,
            is_async=True,
            takes_payload=True,
            retry=retry,
            timeout_seconds=timeout_seconds,
            result=Codec(Any),
        )
    )
    return declared


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerDef:
    name: str
    definition: Definition
    make: Callable[[float], bytes] | None = None  # the payload for a fire time; None: as defined


class Registry:
    def __init__(self) -> None:
        self._types: dict[str, TaskType] = {}
        self.triggers: dict[str, TriggerDef] = {}
        self.is_checked = False  # nothing was declared since `check` found no defect
        self._without_payload: dict[int, str] = {}  # triggers that wait for their function

    def add(self, declared: TaskType) -> None:
        declared.name = names.check("task type", declared.name)
        if declared.name.startswith(INTERNAL):
            raise DeclarationError(
                f"{declared.name!r}: names that begin with {INTERNAL!r} are the engine's"
            )
        if declared.queue in OWN_QUEUES:
            raise DeclarationError(f"{declared.name}: queue {declared.queue!r} is the engine's")
        if declared.name in self._types:
            raise DeclarationError(f"two task types are named {declared.name!r}")
        self.add_internal(declared)

    def add_internal(self, declared: TaskType) -> None:
        """Add one of the engine's own types."""
        self._types[declared.name] = declared
        self.is_checked = False

    def add_trigger(self, declared: TriggerDef) -> None:
        names.check("trigger", declared.name)
        if declared.name in self.triggers:
            raise DeclarationError(f"two triggers are named {declared.name!r}; give one a name")
        self.triggers[declared.name] = declared

    def expect_payload(self, number: int, declaration: str) -> None:
        """Note that a trigger was declared whose payload a function under it is to make."""
        self._without_payload[number] = declaration
        self.is_checked = False

    def found_payload(self, number: int) -> None:
        self._without_payload.pop(number, None)

    def find(self, name: str) -> TaskType | None:
        return self._types.get(name) or self._types.get(names.normalise(name))

    def names(self) -> tuple[str, ...]:
        """Return the names of the types that users have declared."""
        return tuple(name for name in self._types if not name.startswith(INTERNAL))

    def own_queues(self) -> tuple[str, ...]:
        """Return the engine's own queues whose types are known here; they are served first."""
        types = (kind for name, kind in self._types.items() if name.startswith(INTERNAL))
        return tuple(kind.queue for kind in types)

    def runnable_types(self) -> tuple[str, ...]:
        """Return the names of all types that a worker can run, with the engine's own."""
        return tuple(self._types)

    def check(self) -> None:
        """Refuse an incomplete declaration, before anything is submitted or run."""
        if self.is_checked:
            return
        for declaration in self._without_payload.values():
            raise DeclarationError(f"{declaration} has neither payload= nor a function under it")
        for declared in self._types.values():
            if not declared.stages:
                raise DeclarationError(f"workflow {declared.name!r} has no stages")
        self.is_checked = True
