"""`app.checkpoints`: read, write and remove a checkpoint, and amend a suspended task."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.domain import names
from holdfast.domain.errors import InvalidInput, Refused, SerialisationError, TaskNotFound
from holdfast.domain.hidden_values import keep_hidden
from holdfast.domain.task import amendment, operate
from holdfast.domain.task import checkpoint as ckpt
from holdfast.domain.task.amendment import AMEND, UNREADABLE, Amendment, Stored
from holdfast.domain.task.checkpoint import Checkpoint
from holdfast.domain.task.operate import OperatorRequest
from holdfast.domain.task.state import Command
from holdfast.domain.task.task import By, Task
from holdfast.domain.task.transition import Applied, Transition
from holdfast.encoding.codec import encode_plain
from holdfast.engine.actor_calls import ActorCalls
from holdfast.engine.options import NOT_GIVEN
from holdfast.ports import Detail
from holdfast.runtime.compare_and_swap import compare_and_swap
from holdfast.runtime.worker.stage_errors import check_data

if TYPE_CHECKING:
    from holdfast.engine.core import Holdfast

SHOWN_CHARS = 2_000  # characters of a value that the audit shows

ASIDE_BYTES = 16 * 1024  # to hide the secrets in more takes long, and is done in a thread

Decision = Callable[[Detail, OperatorRequest], Transition]
Aside = Callable[[int, Callable[[], Transition]], Awaitable[Transition]]


async def in_thread(size: int, make: Callable[[], Transition]) -> Transition:
    """Call ``make`` at once, or in a thread if so many bytes take long."""
    return make() if size <= ASIDE_BYTES else await asyncio.to_thread(make)


class Checkpoints(ActorCalls):
    """The checkpoints of an app's tasks, in one actor's name."""

    def __init__(self, app: Holdfast, by: By, aside: Aside = in_thread) -> None:
        """Make the checkpoints of an app; ``aside`` runs what works on many bytes."""
        super().__init__(app, by)
        self._aside = aside

    async def get(self, task_id: str) -> Checkpoint | None:
        """Return the checkpoint of a task; None if it has none."""
        return await self._app.store.views.checkpoint(names.check_text("task id", task_id))

    async def put(
        self,
        task_id: str,
        checkpoint: Checkpoint | Mapping[str, Any],
        *,
        reason: str = "",
        from_view: bool = False,
    ) -> Checkpoint:
        """Write a checkpoint in place of the version that `get` returned; its version rises by one.

        Raise CheckpointConflict when another version is stored, or none (then its version is 0, or
        left out of a mapping), IllegalTransition unless the task is paused or suspended, and
        InvalidInput when it does not fit the stages that the task completed. ``from_view``: it was
        made from a view that hides secrets, and these stay as stored.
        """
        fields = _fields(checkpoint)
        given = None if from_view else _read(fields)

        def decide(detail: Detail, ask: OperatorRequest) -> Transition:
            stored = _stored_checkpoint(detail)
            if type(version := fields.get("version")) is int:
                amendment.check_put(
                    detail.task, ask, version, stored
                )  # what a view hid is of this one
            put = given or _read(
                keep_hidden(fields, _plain_or_none(detail.checkpoint), self._app.redactor)
            )
            if version is None and stored is None:
                put = msgspec.structs.replace(put, version=0)
            transition = amendment.put_checkpoint(detail.task, ask, put, stored)
            was = stored.custom_data if isinstance(stored, Checkpoint) else None
            return self._with_audit(transition, {"customData": (was, put.custom_data)})

        written = await self._swap(
            task_id, Command.PUT_CHECKPOINT, decide, reason, size=_size_of(fields)
        )
        assert written.checkpoint is not None
        return written.checkpoint

    async def remove(self, task_id: str, *, version: int | None = None, reason: str = "") -> None:
        """Delete the checkpoint of a paused or suspended task.

        The task can then be rolled back or start over; it cannot go on. Raise CheckpointGone when
        it has none and, with ``version``, CheckpointConflict when another one is stored, or none.
        """

        def decide(detail: Detail, ask: OperatorRequest) -> Transition:
            return amendment.remove_checkpoint(
                detail.task, ask, _stored_checkpoint(detail), version
            )

        await self._swap(task_id, Command.REMOVE_CHECKPOINT, decide, reason)

    async def amend(
        self,
        task_id: str,
        *,
        payload: Any = NOT_GIVEN,
        data: Mapping[str, Any] | None = None,
        reason: str = "",
        force: bool = False,
        from_view: bool = False,
    ) -> Task:
        """Correct the payload or the data (`ctx.data`) of a suspended task, and run it again.

        The payload is validated where the task's type is declared in this process. The same submit
        with the first payload still finds the task. ``from_view``: as for `put`.
        """
        if payload is NOT_GIVEN and data is None:
            raise InvalidInput("nothing to amend: give a payload, data, or both")
        sent = None if data is None else _data(data)

        def decide(detail: Detail, ask: OperatorRequest) -> Transition:
            body = None
            if payload is not NOT_GIVEN:
                body = self._encode(detail, payload, from_view=from_view)
            checkpoint = _checkpoint_of(detail) if sent is not None else None
            had = checkpoint.custom_data if checkpoint else _plain(detail.data)
            kept = sent
            if sent is not None and from_view:
                kept = _data(keep_hidden(sent, had, self._app.redactor))
            transition = amendment.amend(
                detail.task, ask, Amendment(payload=body, data=kept), checkpoint, force=force
            )
            changes = {}
            if body is not None:
                was = msgspec.json.decode(detail.payload)
                changes["payload"] = was, msgspec.json.decode(body)
            if kept is not None:
                changes["data"] = had, kept
            return self._with_audit(transition, changes, command=AMEND)

        size = _size_of(payload) + _size_of(sent)
        written = await self._swap(task_id, Command.RETRY, decide, reason, size=size, amends=True)
        return written.after

    # -- how

    def _encode(self, detail: Detail, payload: Any, *, from_view: bool) -> bytes:
        declared = self._app.registry.find(detail.task.type)
        if from_view:
            payload = keep_hidden(payload, _plain(detail.payload), self._app.redactor)
        if declared is None:
            return encode_plain(payload, "payload", limit_bytes=self._app.settings.payload_limit)
        codec = declared.payload
        return codec.encode_marked(payload) if from_view else codec.encode(payload)

    def _with_audit(
        self,
        transition: Transition,
        changes: Mapping[str, tuple[Any, Any]],
        command: str | None = None,
    ) -> Transition:
        """Return the transition with an audit entry of the values before and after, without
        secrets."""
        audit = transition.audit
        assert audit is not None
        entry = msgspec.structs.replace(
            audit,
            command=command or audit.command,
            before=f"{audit.before} {self._format_changes(changes, 0)}",
            after=f"{audit.after} {self._format_changes(changes, 1)}",
        )
        return msgspec.structs.replace(transition, audit=entry)

    def _format_changes(self, changes: Mapping[str, tuple[Any, Any]], side: int) -> str:
        hidden = self._app.redactor.value({name: pair[side] for name, pair in changes.items()})
        text = msgspec.json.encode(hidden).decode()
        return text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}…"

    async def _swap(
        self,
        task_id: str,
        command: Command,
        decide: Decision,
        reason: str,
        *,
        size: int = 0,
        amends: bool = False,
    ) -> Transition:
        """Write a decision over the task and its bodies, and record who asked for it."""
        store, task_id = self._app.store, names.check_text("task id", task_id)
        ask = self._new_request(reason)

        async def write(detail: Detail) -> Transition | None:
            bodies = detail.payload, detail.data, detail.checkpoint
            whole = size + sum(len(body) for body in bodies if body is not None)
            transition = await self._aside(whole, partial(decide, detail, ask))
            [outcome] = await store.tasks.apply([transition])
            if (error := operate.refusal_error(outcome)) is not None:
                raise error
            if not isinstance(outcome, Applied):
                return None
            return msgspec.structs.replace(transition, after=outcome.task)

        async def record_refusal(detail: Detail, error: Refused) -> None:
            refused = operate.refusal(detail.task, command, ask, error.code)
            refused = msgspec.structs.replace(refused, command=AMEND if amends else command)
            await store.admin.audit(refused)

        written = await compare_and_swap(
            f"task {task_id}", lambda: self._detail(task_id), write, on_refusal=record_refusal
        )
        if written.after.plan is not None:
            await store.plans.wake([written.after.plan])
        return written

    async def _detail(self, task_id: str) -> Detail:
        detail = await self._app.store.views.detail(task_id)
        if detail is None:
            raise TaskNotFound(task_id)
        return detail


def _checkpoint_of(detail: Detail) -> Checkpoint | None:
    if detail.checkpoint is None or detail.task.last_completed < 0:
        return None
    return ckpt.decode(detail.checkpoint)


def _stored_checkpoint(detail: Detail) -> Stored:
    """Return the checkpoint; one that cannot be read may be replaced and removed."""
    try:
        return _checkpoint_of(detail)
    except SerialisationError:
        return UNREADABLE


def _fields(given: Checkpoint | Mapping[str, Any]) -> dict[str, Any]:
    if isinstance(given, Checkpoint):
        given = msgspec.json.decode(ckpt.encode(given))
    if not isinstance(given, Mapping):
        raise InvalidInput("a checkpoint is a Checkpoint, or a mapping of its fields")
    return dict(given)


def _read(fields: Mapping[str, Any]) -> Checkpoint:
    try:
        return ckpt.decode(msgspec.json.encode(fields))
    except (SerialisationError, TypeError) as error:
        raise InvalidInput(str(error)) from None


def _data(data: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(data, Mapping):
        raise InvalidInput("data is a mapping of names to values")
    kept = dict(data)
    check_data(kept, "data")
    return kept


def _plain(body: bytes | None) -> Any:
    return None if body is None else msgspec.json.decode(body)


def _plain_or_none(body: bytes | None) -> Any:
    """Return the stored JSON value, or None where it is none."""
    try:
        return _plain(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _size_of(given: Any) -> int:
    """Return how many bytes of JSON a value has; 0 where only its type's codec knows."""
    try:
        return len(msgspec.json.encode(given))
    except Exception:  # whatever was given: it is checked where it is encoded
        return 0
