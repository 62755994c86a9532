"""The doctor of triggers and plans compares their records with the lists that they are in.

The record is the truth, but a plan's members decide which tasks have a slot. A record that cannot
be read is reported, and is not put back into the lists from which it would be handed out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import msgspec

from holdfast.domain.errors import SerialisationError
from holdfast.domain.plan.plan import SLOTTED, Member, MemberState, Plan
from holdfast.ports import Finding
from holdfast.stores import findings
from holdfast.stores.redis import scripts
from holdfast.stores.redis.client.client import by_name, each_by_name, pack, pairs_of
from holdfast.stores.redis.encoding import plan_trigger_hash
from holdfast.stores.redis.partition import Partition
from holdfast.stores.redis.plans import store as plans
from holdfast.stores.redis.triggers.store import WAITS
from holdfast.stores.redis.views import walks
from holdfast.stores.redis.views.walks import Pace

PAGE = 20  # triggers examined in one step
LISTS = {  # the kind of the members' records, and the name of the list in a finding
    "triggers": ("trigger", "the list of triggers"),
    "triggers_declared": ("trigger", "the list of declared triggers"),
    "triggers_due": ("trigger", "the list of due triggers"),
    "triggers_leased": ("trigger", "the list of leased triggers"),
    "triggers_ended": ("trigger", "the list of ended triggers"),
    "plans": ("plan", "the list of plans"),
    "plans_due": ("plan", "the list of due plans"),
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
    """Examine triggers; only readable ones are repaired: others must not be handed out again."""
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
        for complaint in reply.get("complaints", ()):
            yield _finding(f"trigger {trigger_id} {_text(complaint)}", fix)


# -- plans


class _Cure(msgspec.Struct, omit_defaults=True):
    """The repair that examine_plans.lua makes if the plan still has this version."""

    version: str
    listed: str | None = None
    due: str | None = None
    rests: bool = False
    admitted: list[str] | None = None  # number and task in turn


async def _plan(part: Partition, plan_id: str, fix: bool) -> AsyncIterator[Finding]:
    reply = by_name(await part.call(scripts.EXAMINE_PLANS, plan_id, plans.NAMES, ""))
    if (kind := reply["type"]) != b"hash":
        if kind != b"none":
            yield _foreign(part, "plan", plan_id, kind)
        return
    member_fields, admitted = reply["members"], reply["admitted"]
    try:
        if member_fields is None or admitted is None:
            raise SerialisationError(f"plan {plan_id}: its members or slots are of another type")
        plan = plan_trigger_hash.plan_of(plan_id, reply["values"])
        members = plans.read_members(plan_id, member_fields)
        times = _time(plan_id, reply["due"]), _time(plan_id, reply["listed_due"])
        tasks = await plans.load_tasks(part, plan_id)
        if tasks is None or len(tasks.ids) != plan.total or len(tasks.tenants) != plan.total:
            raise SerialisationError(f"plan {plan_id}: its list of tasks is not whole")
        if any(not 0 <= index < plan.total for index in members):
            raise SerialisationError(f"plan {plan_id}: it has members that are none of its tasks")
    except SerialisationError as error:
        yield _finding(str(error), False)
        return
    member_counts = [Counter[MemberState]() for _ in plan.waves]
    for index, member in members.items():
        member_counts[plan.wave_of(index)][member.state] += 1
    for message in findings.wrong_waves(plan, member_counts):
        yield _finding(message, False)
    cure = _Cure(version=str(plan.version))
    complaints = [
        *_wrong_places(plan, *times, reply["listed"] is not None, cure),
        *_mistaken_slots(members, tasks.ids, admitted, cure),
    ]
    if complaints:
        mended = fix and await part.call(scripts.EXAMINE_PLANS, plan_id, plans.NAMES, pack(cure))
        for complaint in complaints:
            yield _finding(f"plan {plan_id} {complaint}", mended)


def _wrong_places(
    plan: Plan, expected: float | None, due: float | None, is_listed: bool, cure: _Cure
) -> Iterator[str]:
    if not is_listed:
        cure.listed = plans.list_name(plan)
        yield "is not in the list of plans"
    if expected is None and due is not None:
        cure.rests = True
        yield "is in the list of due plans, but its record says that it is not due"
    elif expected is not None and (due is None or abs(due - expected) > ROUNDING_SECONDS):
        cure.due = f"{expected:.6f}"
        missing = "is not in the list of due plans, but its record says that it is due"
        yield missing if due is None else "has another time in the list of due plans"


def _time(plan_id: str, text: bytes | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        raise SerialisationError(f"plan {plan_id}: its due time cannot be read") from None


def _mistaken_slots(
    members: dict[int, Member], ids: Sequence[str], admitted: Sequence[bytes], cure: _Cure
) -> Iterator[str]:
    expected = {ids[index]: index for index, m in members.items() if m.state in SLOTTED}
    slotted = {_text(name): int(float(number)) for name, number in pairs_of(admitted)}
    if expected != slotted:
        cure.admitted = [word for name, index in expected.items() for word in (str(index), name)]
        yield f"has {len(slotted)} tasks with a slot, but by its members {len(expected)} have one"


def _foreign(part: Partition, kind: str, of: str, type_: bytes) -> Finding:
    return _finding(f"{part.keys(kind, of)} is a {_text(type_)}: rename it", False)


def _finding(message: str, mended: Any) -> Finding:
    return Finding(invariant="I11", task_id=None, message=message, mended=bool(mended))


def _text(text: bytes) -> str:
    return text.decode(errors="replace")
