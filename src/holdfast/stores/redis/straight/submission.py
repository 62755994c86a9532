"""Submissions as the words of insert_tasks.lua: what many tasks share is sent once, as a model."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import TypeAlias

import msgspec

from holdfast.domain.errors import StoreError
from holdfast.domain.task.task import Task
from holdfast.domain.task.transition import Submission
from holdfast.stores.redis.encoding import record
from holdfast.stores.redis.encoding.submission import (
    DIGEST_CHARS,
    as_text,
    created_events,
    submitted_text_of,
)

Words: TypeAlias = list[str | bytes]

TASKS = 100  # of one script: it keeps the server from everything else for 5 ms at most

_OWN = ("key", "trace_id", "user", "effects")  # facts that often differ from task to task
_SHARED = tuple(name for name in record.SELDOM if name not in _OWN)
_shared = attrgetter("type", "plan", "stages", "status", "version", *_SHARED)
_own = attrgetter("tenant", *_OWN)


def usual_lines(batch: Sequence[Submission]) -> list[bytes] | None:
    """Return the lines before the payloads, or None if a submission is not as usual."""
    if not _are_alike(batch):
        return None
    try:
        lines = [submitted_text_of(submission.task) for submission in batch]
    except (TypeError, ValueError, OverflowError, msgspec.MsgspecError, StoreError):
        return None  # the general way tells what is wrong
    return lines if all(lines) else None


def _are_alike(batch: Sequence[Submission]) -> bool:
    """Return whether each is only created, for itself, on the same day with the same status."""
    tasks = [submission.task for submission in batch]
    keys = [(task.tenant, task.key) for task in tasks if task.key is not None]
    return (
        len({task.id for task in tasks}) == len(tasks)
        and len(set(keys)) == len(keys)
        and len({(record.day(task.created_at), task.status) for task in tasks}) == 1
        and all(_is_usual(submission) for submission in batch)
    )


def _is_usual(submission: Submission) -> bool:
    task = submission.task
    is_new = not submission.held and not task.suspended and task.failure is None
    return is_new and submission.events == created_events(task)


def insertion_words(batch: Sequence[Submission], lines: Sequence[bytes]) -> Words:
    """Return the day, the models and the tasks of submissions that are as usual."""
    numbers: dict[tuple[object, ...], str] = {}
    models: Words = []
    tasks: Words = []
    for submission, line in zip(batch, lines, strict=True):
        task = submission.task
        own = _own_fields(task)
        kind = (*_shared(task), *own[::2])
        if kind not in numbers:
            numbers[kind] = str(len(numbers) + 1)
            models += (numbers[kind], *_model_words(task, own))
        tasks += (numbers[kind], task.id, as_text(task, b"%b\n%b" % (line, submission.payload)))
        tasks += (record.iso(task.created_at), record.decimal(task.status_since))
        if task.key is not None:
            tasks.append(submission.digest[:DIGEST_CHARS])
        tasks += own
    day = record.day(batch[0].task.created_at)
    return [day, str(len(batch)), str(len(numbers)), *models, *tasks]


def _own_fields(task: Task) -> list[str]:
    if _own(task) == _NOTHING_OWN:
        return []
    tenant = [] if task.tenant is None else ["tenantId", task.tenant]
    return tenant + record.submitted_fields(task, _OWN)


_NOTHING_OWN = (None,) * (1 + len(_OWN))


def _model_words(task: Task, own: Sequence[str]) -> Words:
    others = [] if task.tenant is not None else ["tenantId", ""]
    others += record.submitted_fields(task, _SHARED)
    own_at = 5 + int(task.key is not None)
    return [
        *(task.queue, str(own_at), str(own_at + len(own))),
        *(task.type, task.plan or "", task.status, str(task.version)),
        *(record.stage_names(task.stages), str(len(others)), *others),
    ]
