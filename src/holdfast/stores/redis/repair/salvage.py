"""Salvage of a record that cannot be read: its task is suspended, and other tasks go on.

Every field that can still be read is kept; the others get a derived or harmless value. The record
as it was stays under ``damaged:ID`` for as long as the task does. A task that has ended keeps its
status: only its unreadable fields are put aside.

Several processes may report the same task, some of them late. So the record is read again, and
nothing is written if nothing is wrong any more.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from holdfast.domain.errors import SerialisationError
from holdfast.domain.task import events as ev
from holdfast.domain.task.placement import STOPPED, Place, fits
from holdfast.domain.task.state import SETTLED, Status
from holdfast.domain.task.task import Failure, FailureKind, Task
from holdfast.stores.redis import scripts
from holdfast.stores.redis.client.client import pack
from holdfast.stores.redis.encoding import event_log, record
from holdfast.stores.redis.partition import Partition
from holdfast.stores.redis.views import walks

ATTEMPTS = 3  # the record may change while it is read
UNREADABLE = "unreadable"  # replaces a name that cannot be read
BODIES = {"payload": "string", "ckpt": "string", "data": "string", "stages": "hash"}


log = logging.getLogger("holdfast.stores.redis.salvage")

replace = msgspec.structs.replace
_STATUSES = pack([*Status])
_NUMBER = re.compile(r"-?\d+")
_COUNTED = ("version", "order")  # the scripts calculate with them


class Remains(msgspec.Struct, frozen=True, kw_only=True):
    """All that is left of a task."""

    fields: list[bytes]  # of its record, as HGETALL gives them
    newest_event: bytes | None
    completed: int | None  # the last completed stage, by the checkpoint
    stages: list[bytes]
    damaged: list[str]  # the bodies that cannot be used
    ended_as: Status | None  # the settled status, by the indexes

    @property
    def digest(self) -> str:
        joined = b"\0".join(self.fields)
        return hashlib.sha1(joined, usedforsecurity=False).hexdigest()


async def set_aside(part: Partition, ids: Iterable[bytes]) -> list[str]:
    """Suspend each task that is still unreadable, and return the ids that were written."""
    done = []
    for task_id in {*ids} - {b""}:
        try:
            name = task_id.decode()
        except UnicodeDecodeError:
            log.error("%s: %r is not a task id", part.keys.prefix, task_id)
            continue
        if await _set_aside(part, name):
            done.append(name)
    return done


async def _set_aside(part: Partition, task_id: str) -> bool:
    for _ in range(ATTEMPTS):
        remains = await _read(part, task_id)
        if remains is None:
            await _leave_alone(part, task_id)
            return False
        wall = (await part.server_time()).wall
        answer = await _mend(part, task_id, remains, wall)
        if answer != b"changed":
            return bool(answer == b"done")
    return False


async def _mend(part: Partition, task_id: str, remains: Remains, now: float) -> bytes:
    fields, bad = readable(task_id, remains, now)
    before = record.decode(task_id, fields)
    wrong = _wrong(before, bad, remains.damaged)
    if not wrong:
        return b"fine"
    order = fields["order"] if "order" not in bad else None
    if has_ended(before, bad):
        facts = _facts_of_the_ended(before, remains, bad, order)
        message = f"is {before.status} and stays so; put aside: {', '.join(wrong)}"
    else:
        after = _suspended_task(before, wrong, now)
        known = before.status if "status" not in wrong else None
        facts = _facts(after, known, order)
        message = f"is suspended: {_cannot_be_read(wrong)}"
    keep = "0" if wrong == remains.damaged else "1"
    answer: bytes = await part.call(
        scripts.SALVAGE, task_id, remains.digest, _STATUSES, keep, pack(facts)
    )
    if answer == b"done":
        log.error("task %s %s", task_id, message)
    return answer


def _wrong(task: Task, bad: list[str], damaged: list[str]) -> list[str]:
    """Return what keeps the task from being read or run.

    A damaged body does no harm to a parked task: otherwise every report of it would suspend the
    task again.
    """
    if has_ended(task, bad):
        return bad
    if not bad and contradicts_itself(task):
        bad = ["status", "place"]
    if not bad and task.place in STOPPED:
        return []
    return [*bad, *damaged]


def has_ended(task: Task, bad: Sequence[str]) -> bool:
    return task.status in SETTLED and (task.place is Place.SETTLED or "place" in bad)


def contradicts_itself(task: Task) -> bool:
    return not fits(task.status, task.place)


# -- what is left


async def _read(part: Partition, task_id: str) -> Remains | None:
    """Return what is left of a task, or None if its key holds no record of a task."""
    keys = part.keys
    fields, newest, completed, stages = await part.client.many(
        keys,
        [
            ("HGETALL", keys("task", task_id)),
            ("LINDEX", keys("events", task_id), -1),
            ("HGET", keys("ckpt_meta", task_id), "lastCompletedStageIndex"),
            ("HGETALL", keys("stages", task_id)),
        ],
    )
    if not isinstance(fields, list) or not fields:
        return None
    types = await part.client.many(keys, [("TYPE", keys(kind, task_id)) for kind in BODIES])
    ended = [("ZSCORE", keys("by_status", status), task_id) for status in sorted(SETTLED)]
    scores = zip(sorted(SETTLED), await part.client.many(keys, ended), strict=True)
    endings = [status for status, score in scores if isinstance(score, bytes)]
    types_found = dict(zip(BODIES, (name.decode() for name in types), strict=True))
    damaged = [k for k, wanted in BODIES.items() if types_found[k] not in (wanted, "none")]
    if types_found["payload"] == "none":
        damaged.append("payload")
    if isinstance(newest, Exception):
        damaged.append("events")
    if isinstance(stages, list) and not _are_stages(stages):
        damaged.append("stages")
    return Remains(
        fields=fields,
        newest_event=newest if isinstance(newest, bytes) else None,
        completed=_whole(completed),
        stages=stages if isinstance(stages, list) else [],
        damaged=damaged,
        ended_as=endings[0] if len(endings) == 1 else None,
    )


def _are_stages(pairs: list[bytes]) -> bool:
    try:
        record.decode_stages(pairs, {})
    except SerialisationError:
        return False
    return True


def _whole(text: Any) -> int | None:
    return int(text) if isinstance(text, bytes) and re.fullmatch(rb"-?\d+", text) else None


def readable(task_id: str, remains: Remains, now: float) -> tuple[dict[str, str], list[str]]:
    """Return a record that can be read, and the fields of the old one that are bad or missing."""
    base = record.first_record(_placeholder(task_id, remains, now))
    good: dict[str, str] = {}
    bad: list[str] = []
    for word, text in zip(remains.fields[::2], remains.fields[1::2], strict=True):
        name = word.decode(errors="replace")
        if name.encode() == word and _is_good(task_id, base, name, text):
            good[name] = text.decode()
        else:
            bad.append(name)
    given = {name for name, text in good.items() if text != ""}
    wanted = {name for name, text in base.items() if text != ""}
    bad += sorted((wanted | {"place", "order"}) - given - {*bad})
    return {**base, **{name: good[name] for name in given}}, bad


def _is_good(task_id: str, base: Mapping[str, str], name: str, text: bytes) -> bool:
    try:
        value = text.decode()
        record.decode(task_id, {**base, name: value})
    except (UnicodeDecodeError, SerialisationError):
        return False
    return not (name in _COUNTED and value and not _NUMBER.fullmatch(value))


def _placeholder(task_id: str, remains: Remains, now: float) -> Task:
    version, _, _ = (remains.newest_event or b"").partition(b"\n")
    if b"ran" in remains.fields[::2]:
        version = b"3"  # submitted, claimed, completed (see event_log.py)
    completed = remains.completed
    if completed is None:
        completed = len(remains.stages) // 2 - 1
    return Task(
        id=task_id,
        type=UNREADABLE,
        stages=(UNREADABLE,),
        created_at=now,
        status=remains.ended_as or Status.PENDING,
        status_since=now,
        updated_at=now,
        version=_whole(version) or 1,
        last_completed=completed,
    )


def _suspended_task(task: Task, bad: Sequence[str], now: float) -> Task:
    undoing = task.status in (Status.ROLLING_BACK, Status.ROLLBACK_FAILED)
    failure = Failure(
        kind=FailureKind.SERIALISATION,
        error=SerialisationError.stored_name,
        message=_cannot_be_read(bad),
        stage=_stage(task),
        attempt=1,
        at=now,
    )
    status = Status.ROLLBACK_FAILED if undoing else Status.FAILED
    return replace(
        task,
        status=status,
        status_since=now if status is not task.status else task.status_since,
        updated_at=now,
        settled_at=None,
        version=task.version + 1,
        pause_requested=False,
        cancel_requested=False,
        reason=None,
        failure=failure,
        place=Place.PARKED,
        lease=None,
        due=None,
    )


def _cannot_be_read(wrong: Sequence[str]) -> str:
    return f"its record cannot be read: {', '.join(wrong)}"


def _stage(task: Task) -> str:
    index = task.last_completed + 1
    return task.stages[index if 0 <= index < len(task.stages) else -1]


def _facts(after: Task, before: Status | None, order: str | None) -> dict[str, Any]:
    assert after.failure is not None
    kind = ev.TaskFailedEvent if after.status is Status.FAILED else ev.TaskRollbackFailed
    event = kind(
        task_id=after.id, version=after.version, at=after.updated_at, failure=after.failure
    )
    facts: dict[str, Any] = {
        "fields": _fields(after),
        "place": after.place,
        "queue": after.queue,
        "status": after.status,
        "before": before,
        "version": str(after.version),
        "suspended_at": record.decimal(after.updated_at),
        "events": event_log.encode_events([event]),
        "order": order,
    }
    return {name: value for name, value in facts.items() if value is not None}


def _facts_of_the_ended(
    task: Task, remains: Remains, bad: Sequence[str], order: str | None
) -> dict[str, Any]:
    settled_at = task.settled_at if task.settled_at is not None else task.status_since
    after = replace(task, place=Place.SETTLED, settled_at=settled_at)
    names = {name.decode(errors="replace") for name in remains.fields[::2]}
    facts: dict[str, Any] = {
        "fields": _fields(after),
        "place": after.place,
        "queue": after.queue,
        "good": sorted(names - {*bad}),
    }
    return facts | ({"order": order} if order is not None else {})


def _fields(task: Task) -> list[str]:
    fields = record.first_record(task) | record.full(task)
    if task.fence:
        fields["fence"] = str(task.fence)
    return record.name_value_list(fields)


# -- a task without a record


async def _leave_alone(part: Partition, task_id: str) -> None:
    key = part.keys("task", task_id)
    entries = await _pending_of(part, task_id)
    if await part.call(scripts.DROP_STRAY_TASK, task_id, *entries):
        log.error("%s holds no record of a task: task %s is taken out of its queue", key, task_id)


async def _pending_of(part: Partition, task_id: str) -> list[bytes]:
    """Return pairs of a queue and an entry that was handed out and names the task."""
    keys, pairs = part.keys, list[bytes]()
    (queues,) = await part.client.many(keys, [("SMEMBERS", keys("queues"))])
    for queue in queues:
        stream = keys.stream(queue.decode())
        async for page in walks.pending(part, stream):
            tasks = await walks.tasks_of(part, stream, page)
            for entry, task in zip(page, tasks, strict=True):
                pairs += [queue, entry] if task == task_id.encode() else []
    return pairs
