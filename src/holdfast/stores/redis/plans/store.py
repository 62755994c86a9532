"""Plans on Redis: each in the partition that follows from its id; its tasks may live in others.

The functions below the class act on one partition.
"""

from __future__ import annotations

import logging
import re
import secrets
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from math import ceil
from typing import Any

import msgspec

from holdfast.domain import names
from holdfast.domain.errors import InvalidInput, InvalidName, SerialisationError, StoreForeign
from holdfast.domain.plan import events as plan_events
from holdfast.domain.plan.events import PlanEvent
from holdfast.domain.plan.plan import (
    SLOTTED,
    WAITING,
    Member,
    Plan,
    PlanApplied,
    PlanChange,
    PlanNext,
    PlanOutcome,
    PlanStale,
    PlanStatus,
    PlanTasks,
)
from holdfast.ports import DuePlans, PlanPage
from holdfast.stores import codec
from holdfast.stores.redis import partition_pages, scripts
from holdfast.stores.redis.client import faults
from holdfast.stores.redis.client.client import by_name, pack, pairs_of, unless_foreign
from holdfast.stores.redis.encoding import plan_trigger_hash, record
from holdfast.stores.redis.encoding.submission import packed_follows
from holdfast.stores.redis.partition import Partition, Partitions, gather_all
from holdfast.stores.redis.partition_pages import DueItems, Leaf, leaf, seconds_of

CLAIMS = 50  # plans claimed by one script
VERSIONS = 100  # versions whose events are read at once
REMEMBERED = 16  # plans whose lists of tasks are kept at hand: they never change

log = logging.getLogger("holdfast.stores.redis.plan_verbs")

NAMES = pack(plan_trigger_hash.PLAN_NAMES)
_CURSOR = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z (\S+)")
decode_member = msgspec.json.Decoder(Member).decode


class RedisPlans:
    def __init__(self, parts: Partitions) -> None:
        self._parts = parts
        self._ids: OrderedDict[tuple[str, str, float], tuple[str, ...]] = OrderedDict()

    def _part(self, plan_id: str) -> Partition | None:
        """Return the partition of a plan, or None if no plan can have that id."""
        try:
            return self._parts.of_plan(names.check("plan", plan_id))
        except InvalidName:
            return None

    # -- writes

    async def create(self, plan: Plan, tasks: PlanTasks, events: Sequence[PlanEvent]) -> Plan:
        names.check("plan", plan.id)
        return await create(self._parts.of_plan(plan.id), plan, tasks, events)

    async def claim(self, owner: str, *, limit: int, lease_seconds: float) -> DuePlans:
        async def take(part: Partition, number: int) -> DueItems[Plan]:
            return await claim(part, owner, number, lease_seconds)

        claimed = await partition_pages.hand_out(self._parts, limit, find_due, take)
        return DuePlans(plans=tuple(claimed.items), next_seconds=claimed.next_seconds)

    async def renew(self, plan_id: str, lease_id: str, *, lease_seconds: float) -> bool:
        part = self._part(plan_id)
        return part is not None and bool(
            await part.call(scripts.PLAN_RENEW, plan_id, lease_id, lease_seconds)
        )

    async def apply(self, change: PlanChange, *, lease_seconds: float = 30.0) -> PlanOutcome:
        part = self._part(change.after.id)
        if part is None:
            return PlanStale(None)
        self._parts.with_follows(part, change.follows)
        ids = await self._ids_of(part, change.before) if change.moves else ()
        if ids is None:
            return PlanStale(None)
        return await apply(part, change, ids, lease_seconds)

    async def _ids_of(self, part: Partition, plan: Plan) -> tuple[str, ...] | None:
        """Return the ids of a plan's tasks by number, which name the slots; they are read once."""
        key = plan.id, plan.digest, plan.created_at
        if key not in self._ids:
            tasks = await load_tasks(part, plan.id)
            if tasks is None:
                return None
            self._ids[key] = tasks.ids
            while len(self._ids) > REMEMBERED:
                self._ids.popitem(last=False)
        self._ids.move_to_end(key)
        return self._ids[key]

    async def wake(self, plan_ids: Sequence[str]) -> None:
        ids: dict[Partition, list[str]] = {}
        for plan_id in plan_ids:
            if (part := self._part(plan_id)) is not None:
                ids.setdefault(part, []).append(plan_id)
        await gather_all(part.call(scripts.PLAN_WAKE, *part_ids) for part, part_ids in ids.items())

    # -- reads

    async def load(self, plan_ids: Sequence[str]) -> Sequence[Plan | None]:
        parts = self._parts
        if len(parts) == 1:  # then `spread` would send names that no plan can have
            known = [name for name in plan_ids if self._part(name) is not None]
            plans = dict(zip(known, await load(parts.first, known), strict=True))
            return [plans.get(name) for name in plan_ids]
        return await parts.spread(plan_ids, self._part, load, lambda _: None)

    async def tasks(self, plan_id: str) -> PlanTasks | None:
        part = self._part(plan_id)
        return await load_tasks(part, plan_id) if part is not None else None

    async def members(self, plan_id: str) -> Mapping[int, Member]:
        part = self._part(plan_id)
        return await load_members(part, plan_id) if part is not None else {}

    async def events(
        self, plan_id: str, *, limit: int, after_version: int = 0
    ) -> Sequence[PlanEvent]:
        part = self._part(plan_id)
        return await load_events(part, plan_id, limit, after_version) if part else []

    async def find(
        self, *, statuses: Sequence[PlanStatus] = (), limit: int, cursor: str | None = None
    ) -> PlanPage:
        if cursor is not None and _CURSOR.fullmatch(cursor) is None:
            raise InvalidInput(f"{cursor!r} is not a cursor of plans")

        def matches(plan: Plan) -> bool:
            return not statuses or plan.status in statuses

        leaves = await gather_all(load_page(part, matches, limit, cursor) for part in self._parts)
        plans, end = partition_pages.one_page(leaves, limit, newest_first=True)
        return PlanPage(plans=plans, cursor=end)


class _Change(msgspec.Struct, omit_defaults=True, gc=False):
    """A change of a plan, for plan_apply.lua."""

    id: str
    expects: str
    version: str
    request: str
    next: str
    delay: str
    fields: list[str]
    gone: list[str]
    element: str
    moves: list[tuple[str, str, str, bool]]
    listed: str
    lease: str | None = None
    audit: str | None = None
    was_settled: bool = False
    quiet: bool = False  # nobody who waits needs to be woken
    till: str | None = None  # the end of its retention
    seconds: str | None = None  # for how long its keys stay at least
    follows: list[msgspec.Raw] | None = None


def list_name(plan: Plan) -> str:
    """Return the plan's name in the list of plans, which sorts by time, then by id."""
    return f"{record.iso(plan.created_at)} {plan.id}"


# -- writes


async def create(
    part: Partition, plan: Plan, tasks: PlanTasks, events: Sequence[PlanEvent]
) -> Plan:
    fields = plan_trigger_hash.write_plan(plan).fields + plan_trigger_hash.write_tasks(tasks)
    element = _event_element(plan.version, events)
    word, reply = await part.write(
        scripts.PLAN_CREATE, plan.id, list_name(plan), NAMES, element, *fields
    )
    if word == b"foreign":
        raise faults.foreign([reply.decode()], part.client.address.shown)
    stored = _read(plan.id, reply)
    if stored is None:
        raise SerialisationError(f"plan {plan.id}: its record is incomplete")
    return stored


def _event_element(version: int, events: Sequence[PlanEvent]) -> str:
    """Return one element of the list of events: the version, then each event in a line."""
    return "\n".join([str(version), *(plan_events.encode(event).decode() for event in events)])


async def claim(part: Partition, owner: str, limit: int, lease_seconds: float) -> DueItems[Plan]:
    plans: list[Plan] = []
    secret = secrets.token_hex(8)
    while True:
        wanted = max(0, min(limit - len(plans), CLAIMS))
        args = owner, wanted, lease_seconds, secret, NAMES
        reply = by_name(await part.write(scripts.PLAN_CLAIM, *args))
        for name, message in reply["wrong"]:
            if message:
                _warn_set_aside(name.decode(errors="replace"), message.decode(errors="replace"))
        plans += await _readable(part, reply["handed_out"])
        seen = len(reply["handed_out"]) + len(reply["wrong"])
        if wanted <= 0 or seen < wanted or len(plans) >= limit:
            return DueItems(plans, seconds_of(reply["wait"]))


async def _readable(part: Partition, handed_out: Sequence[Any]) -> list[Plan]:
    plans, aside = list[Plan](), list[bytes]()
    for name, values in handed_out:
        plan_id = name.decode(errors="replace")
        try:
            plans.append(plan_trigger_hash.plan_of(plan_id, values))
        except SerialisationError as error:
            _warn_set_aside(plan_id, str(error))
            aside += (name, values[plan_trigger_hash.PLAN_NAMES.index("leaseId")])
    if aside:
        await part.call(scripts.PLAN_SET_ASIDE, *aside)
    return plans


def _warn_set_aside(plan_id: str, message: str) -> None:
    log.warning(
        "plan %s cannot be read and is set aside; see `holdfast doctor`: %s", plan_id, message
    )


async def find_due(part: Partition, limit: int) -> DueItems[float]:
    """Return since when each plan is due; nothing is handed out."""
    reply = by_name(await part.call(scripts.PLAN_DUE, limit))
    return DueItems([float(at) for _, at in pairs_of(reply["due"])], seconds_of(reply["wait"]))


async def apply(
    part: Partition, change: PlanChange, ids: Sequence[str], lease_seconds: float
) -> PlanOutcome:
    """Apply a change; ``ids`` are those of the plan's tasks, if any is moved."""
    packed = pack(_pack_change(change, ids, part.terms.tombstone_seconds))
    word, reply = await part.write(scripts.PLAN_APPLY, packed, lease_seconds, NAMES)
    if word == b"foreign":
        raise faults.foreign([reply.decode()], part.client.address.shown)
    stored = _read(change.after.id, reply)
    if stored is None or word == b"stale":
        return PlanStale(stored)
    return PlanApplied(stored)


def _pack_change(change: PlanChange, ids: Sequence[str], at_least_seconds: int) -> _Change:
    before, after = change.before, change.after
    written = plan_trigger_hash.write_plan(after)
    packed = _Change(
        id=after.id,
        expects=str(before.version),
        version=str(after.version),
        request=after.request,
        next=change.next,
        delay=repr(change.delay_seconds),
        fields=written.fields,
        gone=written.gone,
        element=_event_element(after.version, change.events),
        moves=[_move(index, member, ids) for index, member in dict(change.moves).items()],
        listed=list_name(after),
        lease=change.lease,
        audit=codec.encode(change.audit).decode() if change.audit else None,
        was_settled=before.settled_at is not None,
        quiet=not change.is_news,
        follows=packed_follows(change.follows),
    )
    if change.next is PlanNext.SETTLED:
        settled_at = after.updated_at if after.settled_at is None else after.settled_at
        packed.till = f"{settled_at + after.keep_seconds:.6f}"
        packed.seconds = str(ceil(max(after.keep_seconds, at_least_seconds)))
    return packed


def _move(index: int, member: Member, ids: Sequence[str]) -> tuple[str, str, str, bool]:
    body = "" if member == WAITING else codec.encode(member).decode()
    return str(index), body, ids[index], member.state in SLOTTED


# -- reads


async def load(part: Partition, ids: Sequence[str]) -> list[Plan | None]:
    commands = [("HMGET", part.keys("plan", name), *plan_trigger_hash.PLAN_NAMES) for name in ids]
    replies = await part.client.many(part.keys, commands)
    return [_load_reply(name, reply) for name, reply in zip(ids, replies, strict=True)]


def _load_reply(plan_id: str, reply: Any) -> Plan | None:
    """Return the plan, or None if there is none or it cannot be read, which `doctor` reports."""
    try:
        return _read(plan_id, unless_foreign(reply))
    except (SerialisationError, StoreForeign) as error:
        log.warning("plan %s is unreadable; see `holdfast doctor`: %s", plan_id, error)
        return None


def _read(plan_id: str, values: Sequence[bytes | None] | None) -> Plan | None:
    if not values or not any(value is not None for value in values):
        return None
    return plan_trigger_hash.plan_of(plan_id, values)


async def load_tasks(part: Partition, plan_id: str) -> PlanTasks | None:
    names = plan_trigger_hash.TASKS.name, plan_trigger_hash.TENANTS.name
    (reply,) = await part.client.many(part.keys, [("HMGET", part.keys("plan", plan_id), *names)])
    ids, tenants = unless_foreign(reply)
    if ids is None or tenants is None:
        return None
    return plan_trigger_hash.read_tasks(plan_id, ids, tenants)


async def load_members(part: Partition, plan_id: str) -> dict[int, Member]:
    (reply,) = await part.client.many(part.keys, [("HGETALL", part.keys("plan_members", plan_id))])
    return read_members(plan_id, unless_foreign(reply))


def read_members(plan_id: str, pairs: Sequence[bytes]) -> dict[int, Member]:
    try:
        return {int(index): decode_member(body) for index, body in pairs_of(pairs)}
    except (ValueError, msgspec.DecodeError) as error:
        raise SerialisationError(f"plan {plan_id}: a member cannot be read: {error}") from error


async def load_events(
    part: Partition, plan_id: str, limit: int, after_version: int
) -> list[PlanEvent]:
    """Return events, the oldest first; one element has all of a version, so none is split."""
    events: list[PlanEvent] = []
    start = max(0, after_version)
    while len(events) < limit:
        last = start + min(VERSIONS, limit - len(events)) - 1
        command = ("LRANGE", part.keys("plan_events", plan_id), start, last)
        (elements,) = await part.client.many(part.keys, [command])
        lists = (_events(plan_id, element) for element in unless_foreign(elements))
        for event in chain.from_iterable(lists):
            if len(events) < limit or event.version == events[-1].version:
                events.append(event)
        if len(elements) <= last - start:
            break
        start = last + 1
    return events


def _events(plan_id: str, element: bytes) -> list[PlanEvent]:
    try:
        return [plan_events.decode(line) for line in element.split(b"\n")[1:]]
    except SerialisationError as error:
        log.warning("plan %s has an event that cannot be read: %s", plan_id, error)
        return []


async def load_page(
    part: Partition, matches: Callable[[Plan], bool], limit: int, cursor: str | None
) -> Leaf[Plan]:
    async def walk(below: str | None, count: int) -> list[str]:
        start = "+" if below is None else f"({below}"
        (reply,) = await part.call(scripts.NEWEST_IDS, start, count, part.keys("plans"))
        return [name.decode(errors="replace") for name in reply]

    async def load_named(names: list[str]) -> list[Plan | None]:
        """Load plans by their names in the list; the name of an earlier plan of the id has none."""
        plans = await load(part, [name.partition(" ")[2] for name in names])
        return [
            plan if plan is not None and list_name(plan) == name else None
            for name, plan in zip(names, plans, strict=True)
        ]

    return await leaf(walk, load_named, matches, limit, cursor)
