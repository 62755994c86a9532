"""Triggers on Redis, beside the tasks that they make: each in the partition that its id names.

Below the class stand the verbs on one partition.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import msgspec
from msgspec.structs import replace

from holdfast.domain import names
from holdfast.domain.errors import InvalidInput, InvalidName, SerialisationError, StoreError
from holdfast.domain.trigger.trigger import (
    LEASE,
    Changed,
    NoRoom,
    Overlapping,
    Trigger,
    TriggerChange,
    TriggerOutcome,
    TriggerStale,
    TriggerWrite,
    with_last_task,
)
from holdfast.ports import DueTriggers, TriggerPage
from holdfast.stores import codec
from holdfast.stores.redis import partition_pages, scripts
from holdfast.stores.redis.client import faults
from holdfast.stores.redis.client.client import by_name, pack, pairs_of, unless_foreign
from holdfast.stores.redis.encoding import plan_trigger_hash, submission
from holdfast.stores.redis.partition import (
    Partition,
    Partitions,
    all_at_once,
    gather_all,
    unless_failed,
)
from holdfast.stores.redis.partition_pages import DueItems, Leaf, leaf, seconds_of
from holdfast.stores.triggers import StoredTriggers, TriggerFilter

CHANGES = 16  # changes written by one script
SUBMITS = 50  # tasks inserted by one script, unless a single change has more
LEASES = 50  # leases given out by one script

log = logging.getLogger("holdfast.stores.redis.trigger_verbs")

WAITS = pack({**LEASE})


class RedisTriggers(StoredTriggers):
    def __init__(self, parts: Partitions) -> None:
        self._parts = parts

    def _part(self, trigger_id: str) -> Partition | None:
        """Return the partition of a trigger, or None if no trigger here can have that id."""
        try:
            self._check_id(trigger_id)
        except InvalidName:
            return None
        return self._parts.of_trigger(trigger_id)

    def _check_id(self, trigger_id: str) -> None:
        """Check the name in an id, which is the id without the number of the partition."""
        named = len(self._parts) > 1 and self._parts.of_trigger(trigger_id) is not None
        names.check("trigger", trigger_id.rpartition(".p")[0] if named else trigger_id)

    def _checked_partition(self, trigger: Trigger) -> Partition:
        """Return the trigger's partition; raise `InvalidInput` if its tenant puts it elsewhere."""
        part = self._part(trigger.id)
        of_tenant = trigger.tenant and self._parts.of_tenant(trigger.tenant)
        if part is None or (of_tenant and of_tenant is not part):
            raise InvalidInput(
                f"trigger id {trigger.id!r} was not made by this store's trigger_id()"
            )
        return part

    def _check(self, change: TriggerChange) -> None:
        """Check, too, that the tasks are in the trigger's partition: one step writes them all."""
        super()._check(change)
        if change.write is TriggerWrite.COMPARE and change.before.version == 0:
            self._checked_partition(change.after)
        part = self._part(change.after.id)
        for submitted in change.submissions:
            if self._parts.with_task(submitted.task) is not part:
                raise InvalidInput(
                    f"task id {submitted.task.id!r} is not in the partition of its trigger "
                    f"{change.after.id!r}"
                )

    # -- writes

    async def _claim_due(
        self, owner: str, upto: float | None, limit: int, lease_seconds: float
    ) -> DueTriggers:
        async def find(part: Partition, number: int) -> DueItems[bytes]:
            return await find_due_times(part, upto, number)

        async def take(part: Partition, number: int) -> DueItems[Trigger]:
            return await claim(part, owner, upto, number, lease_seconds)

        claimed = await partition_pages.hand_out(self._parts, limit, find, take)
        leased = sorted(claimed.items, key=_by_time)
        return DueTriggers(triggers=tuple(leased), next_seconds=claimed.next_seconds)

    async def _claim_one(self, trigger_id: str, owner: str, lease_seconds: float) -> DueTriggers:
        part = self._part(trigger_id)
        leased = part and await acquire_lease(part, trigger_id, owner, lease_seconds)
        return DueTriggers(triggers=(leased,) if leased else (), next_seconds=None)

    async def _compare_and_write(
        self, batch: Sequence[TriggerChange], depth_limit: int
    ) -> list[TriggerOutcome]:
        async def ask(part: Partition, changes: list[TriggerChange]) -> list[TriggerOutcome]:
            return await apply(part, changes, depth_limit)

        return await self._parts.spread(
            batch, lambda change: self._part(change.after.id), ask, lambda _: TriggerStale(None)
        )

    async def _write_over(self, change: TriggerChange) -> TriggerOutcome:
        trigger = change.after
        if change.write is TriggerWrite.SAVE:
            return Changed(await save(self._checked_partition(trigger), trigger))
        part = self._part(trigger.id)
        removed = part is not None and await part.write(scripts.TRIGGER_REMOVE, trigger.id)
        return Changed(trigger) if removed else TriggerStale(None)

    # -- reads

    async def find(self, trigger_id: str) -> Trigger | None:
        part = self._part(trigger_id)
        if part is None:
            return None
        command = ("HGETALL", part.keys("trigger", trigger_id))
        (reply,) = await part.client.many(part.keys, [command])
        fields = unless_foreign(reply)
        return _read(trigger_id.encode(), fields) if fields else None

    async def _find_page(self, where: TriggerFilter, limit: int, cursor: str | None) -> TriggerPage:
        of_tenant = where.tenant is not None and self._parts.of_tenant(where.tenant)
        parts = [of_tenant] if of_tenant else [*self._parts]
        leaves = await gather_all(load_page(part, where, limit, cursor) for part in parts)
        triggers, end = partition_pages.one_page(leaves, limit, newest_first=False)
        return TriggerPage(triggers=triggers, cursor=end)

    async def _find_due(self, due_by: float, limit: int) -> list[Trigger]:
        lists = await gather_all(find_due(part, due_by, limit) for part in self._parts)
        return sorted((trigger for triggers in lists for trigger in triggers), key=_by_time)[:limit]


def _by_time(trigger: Trigger) -> tuple[float, str]:
    return trigger.trigger_at or 0.0, trigger.id


class _PackedTrigger(msgspec.Struct, omit_defaults=True, gc=False):
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


class _PackedChange(_PackedTrigger, omit_defaults=True, gc=False, kw_only=True):
    """A change of a trigger, for trigger_apply.lua."""

    expects: str
    request: str
    tasks: list[msgspec.Raw]
    unless: str | None = None
    audit: str | None = None
    last: bool = False  # the last of its tasks is the trigger's last task


def _ms(seconds: float | None) -> str:
    """Return a time in milliseconds; None, which is now by the server's clock, is empty."""
    return "" if seconds is None else f"{seconds * 1000:.3f}"


def _place(packed: _PackedTrigger, trigger: Trigger) -> None:
    packed.declared = trigger.declared
    if trigger.status in LEASE and trigger.trigger_at is not None:
        if trigger.owner is not None and trigger.lease_until is not None:
            packed.leased, packed.owner = f"{trigger.lease_until:.6f}", trigger.owner
        else:
            packed.due = _ms(trigger.trigger_at)
    if trigger.ended_at is not None:
        packed.ended = f"{trigger.ended_at + trigger.keep_seconds:.6f}"


# -- writes


async def save(part: Partition, trigger: Trigger) -> Trigger:
    saved, written = plan_trigger_hash.write_trigger(trigger)
    packed = _PackedTrigger(trigger.id, str(trigger.version), written.fields, written.gone)
    _place(packed, saved)
    word, reply = await part.write(scripts.TRIGGER_SAVE, pack(packed))
    if word != b"saved":
        raise faults.foreign([reply.decode()], part.client.address.shown)
    return replace(saved, version=int(reply))


async def acquire_lease(
    part: Partition, trigger_id: str, owner: str, lease_seconds: float
) -> Trigger | None:
    reply = await part.write(scripts.TRIGGER_LEASE, trigger_id, owner, lease_seconds, WAITS)
    if reply is None:
        return None
    if isinstance(reply, bytes):
        raise SerialisationError(f"trigger {trigger_id}: {reply.decode(errors='replace')}")
    try:
        return _read(*reply)
    except SerialisationError:
        await _set_aside(part, [reply])
        raise


async def claim(
    part: Partition, owner: str, upto: float | None, limit: int, lease_seconds: float
) -> DueItems[Trigger]:
    leased: list[Trigger] = []
    while True:
        wanted = max(0, min(limit - len(leased), LEASES))
        args = owner, _ms(upto), wanted, lease_seconds, WAITS
        reply = by_name(await part.write(scripts.TRIGGER_CLAIM, *args))
        _warn_set_aside(reply["wrong"])
        leased += await _readable(part, reply["handed_out"])
        seen = len(reply["handed_out"]) + len(reply["wrong"])
        if wanted <= 0 or seen < wanted or len(leased) >= limit:
            return DueItems(leased, seconds_of(reply["wait"]))


async def find_due_times(part: Partition, upto: float | None, limit: int) -> DueItems[bytes]:
    """Return when each trigger is due, as text that sorts; nothing is handed out."""
    reply = by_name(await part.call(scripts.TRIGGER_DUE, _ms(upto), limit, WAITS, "0"))
    return DueItems([at for _, at in reply["due"]], seconds_of(reply["wait"]))


async def find_due(part: Partition, upto: float, limit: int) -> list[Trigger]:
    reply = by_name(await part.call(scripts.TRIGGER_DUE, _ms(upto), limit, WAITS, "1"))
    return [trigger for pair in reply["due"] if (trigger := _or_none(*pair)) is not None]


async def _readable(part: Partition, handed_out: Sequence[Any]) -> list[Trigger]:
    read, unreadable = [], []
    for pair in handed_out:
        if (trigger := _or_none(*pair)) is not None:
            read.append(trigger)
        else:
            unreadable.append(pair)
    if unreadable:
        await _set_aside(part, unreadable)
    return read


async def _set_aside(part: Partition, pairs: Sequence[Any]) -> None:
    """Take unreadable triggers out of the lists of what is due; the doctor reports them."""
    versions = [(name, dict(pairs_of(fields)).get(b"version", b"")) for name, fields in pairs]
    await part.write(scripts.TRIGGER_SET_ASIDE, *(word for pair in versions for word in pair))


def _warn_set_aside(wrong: Sequence[tuple[bytes, bytes]]) -> None:
    for name, message in wrong:
        if message:
            log.warning(
                "trigger %s cannot be fired and is set aside; see `holdfast doctor`: %s",
                name.decode(errors="replace"),
                message.decode(errors="replace"),
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

    When the memory is full, the server refuses changes that insert tasks and accepts the others,
    so no script has both.
    """
    where = part.client.address.shown
    changed = [plan_trigger_hash.write_trigger(change.after) for change in batch]
    packed = [_pack_change(change, *made) for change, made in zip(batch, changed, strict=True)]
    answers: list[Any] = await all_at_once(
        part.write(scripts.TRIGGER_APPLY, depth_limit, "1" if makes_tasks else "0", *changes)
        for makes_tasks, changes in _groups(batch, packed)
    )
    return unless_failed(
        [
            _outcome(replace(change, after=after), where, *answer)
            for change, (after, _), answer in zip(batch, changed, answers, strict=True)
        ]
    )


def _pack_change(
    change: TriggerChange, after: Trigger, written: plan_trigger_hash.Written
) -> bytes:
    packed = _PackedChange(
        id=after.id,
        version=str(after.version),
        fields=written.fields,
        gone=written.gone,
        expects=str(change.before.version),
        request=after.request,
        tasks=[
            msgspec.Raw(submission.packed_submission(submitted)) for submitted in change.submissions
        ],
        unless=change.unless_unfinished,
        audit=codec.encode(change.audit).decode() if change.audit else None,
        last=bool(change.submissions) and after.last_task == change.submissions[-1].task.id,
    )
    _place(packed, after)
    return pack(packed)


def _groups(
    batch: Sequence[TriggerChange], packed: Sequence[bytes]
) -> Iterator[tuple[bool, list[bytes]]]:
    pairs = zip(batch, packed, strict=True)
    for makes_tasks, run in groupby(pairs, key=lambda pair: bool(pair[0].submissions)):
        group: list[bytes] = []
        submits = 0
        for change, body in run:
            full = len(group) == CHANGES or submits + len(change.submissions) > SUBMITS
            if group and full:
                yield makes_tasks, group
                group, submits = [], 0
            group.append(body)
            submits += len(change.submissions)
        yield makes_tasks, group


def _outcome(
    change: TriggerChange, where: str, word: bytes, reply: Any
) -> TriggerOutcome | StoreError:
    match word:
        case b"changed":
            answers = [submission.insertion_of(word, name.decode(), where) for word, name in reply]
            tasks = [answer for answer in answers if not isinstance(answer, StoreError)]
            return Changed(with_last_task(change, tasks), tuple(tasks))
        case b"overlapping":
            return Overlapping(reply.decode())
        case b"full" | b"shut":
            return NoRoom(reply.decode())
        case b"foreign":
            return faults.foreign([reply.decode()], where)
    try:
        stored = _read(change.after.id.encode(), reply) if reply else None
    except SerialisationError as error:
        return error
    return Changed(stored) if stored and word == b"repeated" else TriggerStale(stored)


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


async def load_page(
    part: Partition, where: TriggerFilter, limit: int, cursor: str | None
) -> Leaf[Trigger]:
    ids = part.keys("triggers_declared" if where.declared else "triggers")

    async def walk(after: str | None, count: int) -> list[str]:
        start = "-" if after is None else f"({after}"
        command = ("ZRANGE", ids, start, "+", "BYLEX", "LIMIT", 0, count)
        (reply,) = await part.client.many(part.keys, [command])
        return [name.decode(errors="replace") for name in unless_foreign(reply)]

    return await leaf(walk, lambda names: load(part, names), where.matches, limit, cursor)
