"""Do the records of triggers and plans agree with what is found of them elsewhere?

The record is the truth, and for who has a slot the plan's members are. What cannot be read is told,
and left out of the lists that hand it out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import msgspec

from holdfast.domain.errors import SerialisationError
from holdfast.domain.plan.plan import SLOTTED, Member, Plan
from holdfast.ports import Finding
from holdfast.stores.redis import scripts
from holdfast.stores.redis.client.client import by_name, each_by_name, pack, pairs_of
from holdfast.stores.redis.encoding import plan_trigger_hash
from holdfast.stores.redis.partition import Partition
from holdfast.stores.redis.plans import store as plans
from holdfast.stores.redis.triggers.store import WAITS
from holdfast.stores.redis.views import walks
from holdfast.stores.redis.views.walks import Pace

PAGE = 20  # triggers of one step
LISTS = {  # each with the kind of its members' records, and what a finding calls it
    "triggers": ("trigger", "the list of triggers"),
    "triggers_declared": ("trigger", "the list of what code declares"),
    "triggers_due": ("trigger", "the list of what is due"),
    "triggers_leased": ("trigger", "the list of leases"),
    "triggers_ended": ("trigger", "the list of what has ended"),
    "plans": ("plan", "the list of plans"),
    "plans_due": ("plan", "the list of what is to be looked at"),
}
ROUNDING_SECONDS = 0.00001


async def records(
    part: Partition, page: Sequence[tuple[str, str]], fix: bool, pace: Pace
) -> AsyncIterator[Finding]:
    """Examine the triggers and plans that a page of names has."""
    for ids in walks.pages([of for kind, of in page if kind == "trigger"], PAGE):
        async for finding in _triggers(part, ids, fix):
            yield finding
        await pace()
    for plan_id in [of for kind, of in page if kind == "plan"]:
        async for finding in _plan(part, plan_id, fix):
            yield finding
        await pace()


async def lists(part: Partition, fix: bool, pace: Pace) -> AsyncIterator[Finding]:
    """Examine whether each member of a list has a record."""
    for kind, (record_kind, title) in LISTS.items():
        async for page in walks.members(part, part.keys(kind), "ZSCAN"):
            if page:
                args = "1" if fix else "0", kind, record_kind, *page
                for name in await part.call(scripts.EXAMINE_DUE_LISTS, *args):
                    message = f"{record_kind} {_text(name)} is in {title}, but has no record"
                    yield _finding(message, fix)
            await pace()


# -- triggers


async def _triggers(part: Partition, ids: Sequence[str], fix: bool) -> AsyncIterator[Finding]:
    """Only those that can be read are mended: the others must not be handed out again."""
    answers = await part.call(scripts.EXAMINE_TRIGGERS, "0", WAITS, *ids)
    wrong: list[str] = []
    for trigger_id, reply in zip(ids, each_by_name(answers), strict=True):
        if (kind := reply["type"]) != b"hash":
            if kind != b"none":
                yield _foreign(part, "trigger", trigger_id, kind)
            continue
        try:
            plan_trigger_hash.trigger_of(trigger_id, reply["fields"])
        except SerialisationError as error:
            yield _finding(str(error), False)
            continue
        if reply["complaints"]:
            wrong.append(trigger_id)
    if not wrong:
        return
    answers = await part.call(scripts.EXAMINE_TRIGGERS, "1" if fix else "0", WAITS, *wrong)
    for trigger_id, reply in zip(wrong, each_by_name(answers), strict=True):
        for says in reply.get("complaints", ()):
            yield _finding(f"trigger {trigger_id} {_text(says)}", fix)


# -- plans


class _Cure(msgspec.Struct, omit_defaults=True):
    """The repair that examine_plans.lua is to make, of one version."""

    version: str
    listed: str | None = None
    due: str | None = None
    rests: bool = False
    admitted: list[str] | None = None  # pairs of a number and a task


async def _plan(part: Partition, plan_id: str, fix: bool) -> AsyncIterator[Finding]:
    reply = by_name(await part.call(scripts.EXAMINE_PLANS, plan_id, plans.NAMES, ""))
    if (kind := reply["type"]) != b"hash":
        if kind != b"none":
            yield _foreign(part, "plan", plan_id, kind)
        return
    members_found, admitted = reply["members"], reply["admitted"]
    try:
        if members_found is None or admitted is None:
            raise SerialisationError(f"plan {plan_id}: what belongs to it is of another type")
        plan = plan_trigger_hash.plan_of(plan_id, reply["values"])
        members = plans.read_members(plan_id, members_found)
        times = _time(plan_id, reply["due"]), _time(plan_id, reply["listed_due"])
        tasks = await plans.load_tasks(part, plan_id)
        if tasks is None or len(tasks.ids) != plan.total or len(tasks.tenants) != plan.total:
            raise SerialisationError(f"plan {plan_id}: its list of tasks is not whole")
        if any(not 0 <= index < plan.total for index in members):
            raise SerialisationError(f"plan {plan_id}: it has members that are none of its tasks")
    except SerialisationError as error:
        yield _finding(str(error), False)
        return
    for says in _wrong_counts(plan, members):
        yield _finding(f"plan {plan_id} {says}", False)
    cure = _Cure(version=str(plan.version))
    complaints = [
        *_wrong_places(plan, *times, reply["listed"] is not None, cure),
        *_mistaken_slots(members, tasks.ids, admitted, cure),
    ]
    if complaints:
        mended = fix and await part.call(scripts.EXAMINE_PLANS, plan_id, plans.NAMES, pack(cure))
        for says in complaints:
            yield _finding(f"plan {plan_id} {says}", mended)


def _wrong_counts(plan: Plan, members: dict[int, Member]) -> Iterator[str]:
    there = [Counter[str]() for _ in plan.waves]
    for index, member in members.items():
        there[plan.wave_of(index)][member.state] += 1
    for wave, (counts, seen) in enumerate(zip(plan.counts, there, strict=True)):
        said = {str(state): number for state, number in counts.items() if number}
        if said != seen:
            yield f"counts {said} in wave {wave}, its members are {dict(seen)}"


def _wrong_places(
    plan: Plan, wanted: float | None, due: float | None, is_listed: bool, cure: _Cure
) -> Iterator[str]:
    if not is_listed:
        cure.listed = plans.list_name(plan)
        yield "is not in the list of plans"
    if wanted is None and due is not None:
        cure.rests = True
        yield "is to be looked at, and by its record nobody has to"
    elif wanted is not None and (due is None or abs(due - wanted) > ROUNDING_SECONDS):
        cure.due = f"{wanted:.6f}"
        yield "is not looked at when its record says so"


def _time(plan_id: str, text: bytes | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        raise SerialisationError(f"plan {plan_id}: when to look at it cannot be read") from None


def _mistaken_slots(
    members: dict[int, Member], ids: Sequence[str], admitted: Sequence[bytes], cure: _Cure
) -> Iterator[str]:
    wanted = {ids[index]: index for index, m in members.items() if m.state in SLOTTED}
    there = {_text(name): int(float(number)) for name, number in pairs_of(admitted)}
    if wanted != there:
        cure.admitted = [word for name, index in wanted.items() for word in (str(index), name)]
        yield f"has {len(there)} tasks with a slot, by its members {len(wanted)} have one"


def _foreign(part: Partition, kind: str, of: str, found: bytes) -> Finding:
    return _finding(f"{part.keys(kind, of)} is a {_text(found)}: rename it", False)


def _finding(says: str, mended: Any) -> Finding:
    return Finding(invariant="I11", task_id=None, message=says, mended=bool(mended))


def _text(text: bytes) -> str:
    return text.decode(errors="replace")
