"""The verbs of triggers, on one partition."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any

import msgspec
from msgspec.structs import replace

from holdfast.domain.errors import SerialisationError, StoreError
from holdfast.domain.trigger.trigger import (
    LEASE,
    Changed,
    NoRoom,
    Overlapping,
    Trigger,
    TriggerChange,
    TriggerOutcome,
    TriggerStale,
    with_last_task,
)
from holdfast.stores import codec
from holdfast.stores.redis import scripts
from holdfast.stores.redis.client import faults
from holdfast.stores.redis.client.client import by_name, pack, unless_foreign
from holdfast.stores.redis.due_merge import DueItems, Leaf, leaf
from holdfast.stores.redis.encoding import plan_trigger_hash, submission
from holdfast.stores.redis.partition import Partition, all_at_once, unless_failed

CHANGES = 16  # of one script
SUBMITS = 50  # of one script, but for a change that alone has more
LEASES = 50  # of one script

log = logging.getLogger("holdfast.stores.redis.trigger_verbs")

WAITS = pack({**LEASE})


class _Told(msgspec.Struct, omit_defaults=True, gc=False):
    """A trigger for the scripts that write it."""

    id: str
    version: str
    fields: list[str]
    gone: list[str]
    due: str | None = None
    leased: str | None = None
    owner: str | None = None
    ended: str | None = None
    declared: bool = False


class _Change(_Told, omit_defaults=True, gc=False, kw_only=True):
    expects: str
    request: str
    tasks: list[msgspec.Raw]
    unless: str | None = None
    audit: str | None = None
    last: bool = False  # the last of its tasks is the trigger's last task


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.3f}"


def _place(told: _Told, trigger: Trigger) -> None:
    told.declared = trigger.declared
    if trigger.status in LEASE and trigger.trigger_at is not None:
        if trigger.owner is not None and trigger.lease_until is not None:
            told.leased, told.owner = f"{trigger.lease_until:.6f}", trigger.owner
        else:
            told.due = _ms(trigger.trigger_at)
    if trigger.ended_at is not None:
        told.ended = f"{trigger.ended_at + trigger.keep_seconds:.6f}"


# -- writes


async def save(part: Partition, trigger: Trigger) -> Trigger:
    saved, written = plan_trigger_hash.write_trigger(trigger)
    told = _Told(trigger.id, str(trigger.version), written.fields, written.gone)
    _place(told, saved)
    word, found = await part.write(scripts.TRIGGER_SAVE, pack(told))
    if word != b"saved":
        raise faults.foreign([found.decode()], part.client.address.shown)
    return replace(saved, version=int(found))


async def remove(part: Partition, trigger_id: str) -> bool:
    return bool(await part.write(scripts.TRIGGER_REMOVE, trigger_id))


async def acquire_lease(
    part: Partition, trigger_id: str, owner: str, lease_seconds: float
) -> Trigger | None:
    found = await part.write(scripts.TRIGGER_LEASE, trigger_id, owner, lease_seconds, WAITS)
    if found is None:
        return None
    if isinstance(found, bytes):
        raise SerialisationError(f"trigger {trigger_id}: {found.decode(errors='replace')}")
    try:
        return _read(*found)
    except SerialisationError:
        await _set_aside(part, [found])
        raise


async def claim(
    part: Partition, owner: str, upto: float | None, limit: int, lease_seconds: float
) -> DueItems[Trigger]:
    leased: list[Trigger] = []
    while True:
        wanted = min(limit - len(leased), LEASES)
        till = "" if upto is None else _ms(upto)
        reply = by_name(
            await part.write(
                scripts.TRIGGER_CLAIM, owner, till, max(0, wanted), lease_seconds, WAITS
            )
        )
        _warn_set_aside(reply["wrong"])
        leased += await _readable(part, reply["handed_out"])
        seen = len(reply["handed_out"]) + len(reply["wrong"])
        if wanted <= 0 or seen < wanted or len(leased) >= limit:
            return DueItems(leased, seconds_of(reply["wait"]))


async def find_due_times(part: Partition, upto: float | None, limit: int) -> DueItems[bytes]:
    """Return when each trigger is due, as text that sorts; nothing is handed out."""
    till = "" if upto is None else _ms(upto)
    reply = by_name(await part.call(scripts.TRIGGER_DUE, till, limit, WAITS, "0"))
    return DueItems([at for _, at in reply["due"]], seconds_of(reply["wait"]))


async def find_due(part: Partition, upto: float, limit: int) -> list[Trigger]:
    reply = by_name(await part.call(scripts.TRIGGER_DUE, _ms(upto), limit, WAITS, "1"))
    return [trigger for one in reply["due"] if (trigger := _or_none(*one)) is not None]


def seconds_of(wait: bytes) -> float | None:
    return float(wait) if wait else None


async def _readable(part: Partition, found: Sequence[Any]) -> list[Trigger]:
    read, unreadable = [], []
    for one in found:
        if (trigger := _or_none(*one)) is not None:
            read.append(trigger)
        else:
            unreadable.append(one)
    if unreadable:
        await _set_aside(part, unreadable)
    return read


async def _set_aside(part: Partition, found: Sequence[Any]) -> None:
    """Nobody is to meet it again each time: the doctor tells of it."""
    args = [word for name, fields in found for word in (name, _version_in(fields))]
    await part.write(scripts.TRIGGER_SET_ASIDE, *args)


def _version_in(fields: Sequence[bytes]) -> bytes:
    return dict(zip(fields[::2], fields[1::2], strict=True)).get(b"version", b"")


def _warn_set_aside(wrong: Sequence[tuple[bytes, bytes]]) -> None:
    for name, says in wrong:
        if says:
            log.warning(
                "trigger %s cannot be read and is set aside; see `holdfast doctor`: %s",
                name.decode(errors="replace"),
                says.decode(errors="replace"),
            )


def _read(name: bytes, fields: list[bytes]) -> Trigger:
    return plan_trigger_hash.trigger_of(name.decode(errors="replace"), fields)


def _or_none(name: bytes, fields: list[bytes]) -> Trigger | None:
    try:
        return _read(name, fields)
    except SerialisationError as error:
        log.warning("%s; see `holdfast doctor`", error)
        return None


# -- changes


async def apply(
    part: Partition, batch: Sequence[TriggerChange], depth_limit: int
) -> list[TriggerOutcome]:
    """Apply changes.

    Changes that make tasks may be refused when the memory is full, the others get through, so no
    script has both.
    """
    where = part.client.address.shown
    changed = [plan_trigger_hash.write_trigger(change.after) for change in batch]
    packed = [_pack_change(change, *made) for change, made in zip(batch, changed, strict=True)]
    answers: list[Any] = await all_at_once(
        part.write(scripts.TRIGGER_APPLY, depth_limit, "1" if makes_tasks else "0", *some)
        for makes_tasks, some in _groups(batch, packed)
    )
    told = zip(batch, changed, answers, strict=True)
    return unless_failed(
        [_outcome(replace(one, after=after), where, *answer) for one, (after, _), answer in told]
    )


def _pack_change(
    change: TriggerChange, after: Trigger, written: plan_trigger_hash.Written
) -> bytes:
    told = _Change(
        id=after.id,
        version=str(after.version),
        fields=written.fields,
        gone=written.gone,
        expects=str(change.before.version),
        request=after.request,
        tasks=[msgspec.Raw(submission.packed_submission(one)) for one in change.submissions],
        unless=change.unless_unfinished,
        audit=codec.encode(change.audit).decode() if change.audit else None,
        last=bool(change.submissions) and after.last_task == change.submissions[-1].task.id,
    )
    _place(told, after)
    return pack(told)


def _groups(
    batch: Sequence[TriggerChange], packed: Sequence[bytes]
) -> Iterator[tuple[bool, list[bytes]]]:
    pairs = zip(batch, packed, strict=True)
    for makes_tasks, run in groupby(pairs, key=lambda pair: bool(pair[0].submissions)):
        some: list[bytes] = []
        submits = 0
        for change, one in run:
            full = len(some) == CHANGES or submits + len(change.submissions) > SUBMITS
            if some and full:
                yield makes_tasks, some
                some, submits = [], 0
            some.append(one)
            submits += len(change.submissions)
        yield makes_tasks, some


def _outcome(
    change: TriggerChange, where: str, word: bytes, found: Any
) -> TriggerOutcome | StoreError:
    match word:
        case b"changed":
            answers = [submission.insertion_of(word, name.decode(), where) for word, name in found]
            tasks = [one for one in answers if not isinstance(one, StoreError)]
            return Changed(with_last_task(change, tasks), tuple(tasks))
        case b"overlapping":
            return Overlapping(found.decode())
        case b"full" | b"shut":
            return NoRoom(found.decode())
        case b"foreign":
            return faults.foreign([found.decode()], where)
    try:
        there = _read(change.after.id.encode(), found) if found else None
    except SerialisationError as error:
        return error
    return Changed(there) if there and word == b"repeated" else TriggerStale(there)


# -- reads


async def load(part: Partition, ids: Sequence[str]) -> list[Trigger | None]:
    commands = [("HGETALL", part.keys("trigger", name)) for name in ids]
    replies = await part.client.many(part.keys, commands)
    return [_load_reply(name, reply) for name, reply in zip(ids, replies, strict=True)]


def _load_reply(trigger_id: str, reply: Any) -> Trigger | None:
    if isinstance(reply, Exception):
        log.warning("trigger %s cannot be read; see `holdfast doctor`: %s", trigger_id, reply)
        return None
    return _or_none(trigger_id.encode(), reply) if reply else None


async def find(part: Partition, trigger_id: str) -> Trigger | None:
    (reply,) = await part.client.many(part.keys, [("HGETALL", part.keys("trigger", trigger_id))])
    fields = unless_foreign(reply)
    return _read(trigger_id.encode(), fields) if fields else None


async def page(
    part: Partition,
    matches: Callable[[Trigger], bool],
    limit: int,
    cursor: str | None,
    *,
    declared: bool,
) -> Leaf[Trigger]:
    ids = part.keys("triggers_declared" if declared else "triggers")

    async def walk(after: str | None, count: int) -> list[str]:
        start = "-" if after is None else f"({after}"
        asked = ("ZRANGE", ids, start, "+", "BYLEX", "LIMIT", 0, count)
        (found,) = await part.client.many(part.keys, [asked])
        return [name.decode(errors="replace") for name in unless_foreign(found)]

    return await leaf(walk, lambda names: load(part, names), matches, limit, cursor)
