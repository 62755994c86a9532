"""Requests to start, stop, pause and resume a bulk action.

Each is one write to its task, with an entry in the audit about ``bulk:ID``. The task is inserted
held, and the write that releases it records who wanted it: no action runs without that.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from holdfast.clock import new_id
from holdfast.domain import bulk, names
from holdfast.domain.errors import BulkNotFound, KeyConflict, Refused
from holdfast.domain.task import decide, operate
from holdfast.domain.task.operate import OperatorRequest
from holdfast.domain.task.state import Command, Status
from holdfast.domain.task.task import By, Task
from holdfast.domain.task.transition import Applied, Conflict, Submission, Transition
from holdfast.engine.bulk.order import BulkOrder, actor_of
from holdfast.runtime import new_task
from holdfast.runtime.compare_and_swap import compare_and_swap

if TYPE_CHECKING:
    from holdfast.engine.core import Holdfast

NOBODY = By(actor="")


async def start(app: Holdfast, order: BulkOrder, key: str | None) -> str:
    """Insert and release a bulk action, and return its id; a known key returns the first id."""
    submission = _submission(app, order, key)
    limit = app.settings.queue_limit
    [answer] = await app.store.tasks.insert([submission], depth_limit=limit)
    if isinstance(answer, Conflict):
        raise KeyConflict(order.where.tenant, key or "", answer.task_id)
    bulk_id = new_task.accepted_id(submission.task, answer, limit)
    await _let_go(app, bulk_id, order)
    return bulk_id


async def _let_go(app: Holdfast, bulk_id: str, order: BulkOrder) -> None:
    """Release a new bulk action; one that was released before, or is gone, is left as it is."""
    request = new_id(app.clock, app.chance)

    async def write(task: Task | None) -> bool | None:
        if task is None or task.status is not Status.CREATED:
            return True
        ask, command = _ask(app, order.by, request), f"start {order.command}"
        return await _write(app, _about(operate.release(task, ask), command))

    await compare_and_swap(f"bulk action {bulk_id}", lambda: _load(app, bulk_id), write)


async def _load(app: Holdfast, bulk_id: str) -> Task | None:
    [task] = await app.store.views.load([bulk_id])
    return task


def _submission(app: Holdfast, order: BulkOrder, key: str | None) -> Submission:
    declared = app.registry.find(bulk.TYPE)
    assert declared is not None
    made = app.describe_task(declared, order)
    stored = None if key is None else _stored_key(order.where.tenant, names.check("key", key))
    task_id = app.store.partitioned_id(new_id(app.clock, app.chance), tenant=None, key=stored)
    task = replace(made.record, id=task_id, key=stored, status=Status.CREATED)
    return decide.submit(task, made.payload, _digest(order), held=True)


def _stored_key(tenant: str | None, key: str) -> str:
    """Return the key under which a tenant's action is stored; no task has the same."""
    whole = f"{tenant or ''}\n{key}".encode()
    return f"bulk:{hashlib.blake2b(whole, digest_size=16).hexdigest()}"


def _digest(order: BulkOrder) -> str:
    """Return the digest of an order, which does not depend on who gives it, where and why."""
    return new_task.digest(bulk.TYPE, msgspec.json.encode(replace(order, by=NOBODY)))


async def ask(app: Holdfast, bulk_id: str, command: str, by: By) -> None:
    """Stop, pause or resume a bulk action."""
    request = new_id(app.clock, app.chance)

    async def load() -> Task:
        task = await _load(app, bulk_id)
        if task is None:
            raise BulkNotFound(bulk_id)
        return task

    async def write(task: Task) -> bool | None:
        decided = _DECISIONS[command](task, _ask(app, by, request))
        return await _write(app, _about(decided, command))

    async def record_refusal(task: Task, error: Refused) -> None:
        refusal = operate.refusal(task, _COMMANDS[command], _ask(app, by, request), error.code)
        await app.store.admin.audit(replace(refusal, task_id=actor_of(bulk_id), command=command))

    await compare_and_swap(f"bulk action {bulk_id}", load, write, on_refusal=record_refusal)


def _resume(task: Task, ask: OperatorRequest) -> Transition:
    if task.suspended:
        return operate.resume_suspended(task, ask)
    if task.status is Status.CREATED:  # the process that started it died, or lost the store
        return operate.release(task, ask)
    return operate.resume(task, ask)


_DECISIONS: Mapping[str, Callable[[Task, OperatorRequest], Transition]] = {
    "stop": operate.cancel,
    "pause": operate.pause,
    "resume": _resume,
}
_COMMANDS = {"stop": Command.CANCEL, "pause": Command.PAUSE, "resume": Command.RESUME}


def _ask(app: Holdfast, by: By, request: str) -> OperatorRequest:
    return OperatorRequest(by=by, now=app.clock.now(), request=request)


def _about(transition: Transition, command: str) -> Transition:
    """Return the transition with an audit entry about the action, in its own words."""
    assert transition.audit is not None
    about = actor_of(transition.task_id)
    return replace(transition, audit=replace(transition.audit, task_id=about, command=command))


async def _write(app: Holdfast, transition: Transition) -> bool | None:
    """Return True; None if the task has changed since it was loaded."""
    [outcome] = await app.store.tasks.apply([transition])
    return True if isinstance(outcome, Applied) else None
