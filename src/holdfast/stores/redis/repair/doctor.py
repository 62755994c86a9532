"""The doctor of the Redis store finds and repairs records, queues, lines, locks and indexes that
disagree.

The record and the lease index are the truth, and everything that follows from them is repaired. The
doctor examines both sides: whether each task is where its record says (`examine.lua`), and whether
each member of a queue, a line or an index belongs there (`examine_members.lua`). One page is one
atomic step, which compares and repairs at once, so a task that moves meanwhile is not harmed.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from holdfast.domain.errors import SerialisationError, StoreError, StoreForeign
from holdfast.domain.task.placement import LOSE
from holdfast.domain.task.stages import describe_mismatch
from holdfast.domain.task.task import Task
from holdfast.ports import Finding
from holdfast.stores import findings
from holdfast.stores.redis import scripts
from holdfast.stores.redis.client.client import Reply, by_name, each_by_name
from holdfast.stores.redis.encoding import record
from holdfast.stores.redis.keys import TYPE_OF
from holdfast.stores.redis.partition import Partition
from holdfast.stores.redis.repair import doctor_plans_triggers, recount, salvage
from holdfast.stores.redis.repair.token_lock import TokenLock
from holdfast.stores.redis.views import walks
from holdfast.stores.redis.views.walks import Pace

PAGE = 20  # tasks of one step: each costs about twenty commands
AT_ONCE = 1000  # findings of one reconciliation
ROUNDS = 3  # the repairs of one round may reveal something for the next
LOOKING_SECONDS = 600.0  # how long a lock lasts that nobody extends
SOON_SECONDS = 3600.0  # an examination takes less

SETS = {
    "by_status": "the index of status",
    "by_plan": "the index of plan",
    "by_tenant": "the index of tenant",
    "by_error": "the index of error group",
    "by_cause": "the suspended tasks of error group",
    "by_day": "the index of day",
    "leases": "the index of leases",
    "retry": "the list of due times",
    "suspended": "the list of suspended tasks",
    "saved": "the list of checkpoints",
    "settled": "the list of settled tasks",
    "back": "the first tasks of queue",
    "line": "the line of tenant",
    "resting": "the list of tasks that leave the line open for tenant",
}
STREAMS = {"tasks": "default", "tasks_of": None}
OF_A_TASK = ("key", "payload")
OF_A_TENANT = frozenset({"active", "lock", "line", "resting"})
OTHERS = OF_A_TENANT | SETS.keys() | STREAMS.keys()
_LOSES = msgspec.msgpack.encode({**LOSE.to})

log = logging.getLogger("holdfast.stores.redis.doctor")

Complaints = Iterator[tuple[str, str]]


async def reconcile(parts: Sequence[Partition], every_seconds: float) -> list[Finding]:
    """Reconcile partitions that were not examined for so long; one that fails stops no other."""
    found: list[Finding] = []
    missed: StoreError | None = None
    for part in parts:
        try:
            found += await _reconcile(part, every_seconds)
        except StoreError as error:
            missed = error
            log.warning("%s could not be reconciled: %s", part.keys.prefix, error)
    if missed is not None and not found:
        raise missed
    return found


async def _reconcile(part: Partition, every_seconds: float) -> list[Finding]:
    """Reconcile a partition under a short lock, so that another process can take over."""
    lock = TokenLock(part, "reconciled", secrets.token_hex(8))
    if not await lock.acquire(min(LOOKING_SECONDS, every_seconds)):
        return []
    try:
        pace = lock.keep(LOOKING_SECONDS, walks.half_of_the_time(part.steady))
        found = await examine(part, fix=True, limit=AT_ONCE, pace=pace)
    except StoreError:
        with suppress(StoreError):
            await lock.release()
        raise
    await lock.extend(every_seconds)
    return found


class SeenCount:
    """The number of tasks examined in all partitions, which is reported to a callback."""

    def __init__(self, seen: Callable[[int], None] | None = None) -> None:
        self._seen, self._number = seen, 0

    def add(self, number: int) -> None:
        self._number += number
        if self._seen is not None:
            self._seen(self._number)


async def examine(
    part: Partition,
    *,
    fix: bool,
    limit: int,
    pace: Pace = walks.at_once,
    tally: SeenCount | None = None,
) -> list[Finding]:
    try:
        return await _rounds(Examination(part, fix, pace, tally or SeenCount()), limit)
    except StoreForeign as error:
        foreign = [finding async for finding in _foreign(part)]
        return foreign[:limit] or [_finding("I11", None, str(error), False)]


class Examination(msgspec.Struct, frozen=True):
    """The partition to examine, and how."""

    part: Partition
    fix: bool
    pace: Pace
    tally: SeenCount


async def _rounds(examination: Examination, limit: int) -> list[Finding]:
    found: dict[Finding, None] = {}
    for _ in range(ROUNDS if examination.fix else 1):
        before = len(found)
        async for finding in _everything(examination):
            opposite = msgspec.structs.replace(finding, mended=not finding.mended)
            if opposite not in found:
                found[finding] = None
            if len(found) >= limit:
                return [*found][:limit]
        if len(found) == before:
            break
    return [*found]


async def _everything(examination: Examination) -> AsyncIterator[Finding]:
    part, fix, pace = examination.part, examination.fix, examination.pace
    leaving = await _leaving(part)
    indexes: dict[tuple[str, str], None] = {}
    async for page in walks.names(part):
        for ids in walks.pages([of for kind, of in page if kind == "task"], PAGE):
            async for finding in _tasks(part, ids, fix):
                yield finding
            examination.tally.add(len(ids))
            await pace()
        for kind in OF_A_TASK:
            ids = [of for k, of in page if k == kind and of not in leaving]
            for names in walks.pages(ids, walks.PAGE):
                async for finding in _strays(part, kind, "", names, fix):
                    yield finding
                await pace()
        async for finding in doctor_plans_triggers.records(part, page, fix, pace):
            yield finding
        indexes |= dict.fromkeys(key for key in page if key[0] in OTHERS)
        await pace()
    for kind, of in indexes:
        async for finding in _members(examination, kind, of, leaving):
            yield finding
    for following in (
        _tenants(examination, {of for kind, of in indexes if kind in OF_A_TENANT}),
        _error_groups(examination, {of for kind, of in indexes if kind == "by_cause"}),
        doctor_plans_triggers.lists(part, fix, pace),
        recount.examine(part, fix=fix, pace=pace),
    ):
        async for finding in following:
            yield finding


async def _tenants(examination: Examination, tenants: set[str]) -> AsyncIterator[Finding]:
    for names in walks.pages(sorted(tenants), PAGE):
        args = "1" if examination.fix else "0", *names
        for reply in each_by_name(await examination.part.call(scripts.EXAMINE_TENANTS, *args)):
            message = f"tenant {_text(reply['tenant'])} {_text(reply['message'])}"
            yield _finding("I11", None, message, reply["mended"])
        await examination.pace()


async def _error_groups(examination: Examination, seen: set[str]) -> AsyncIterator[Finding]:
    """Examine whether the suspended tasks of each error group are counted correctly."""
    part, fix = examination.part, "1" if examination.fix else "0"
    async for page in walks.members(part, part.keys("errors"), "ZSCAN"):
        seen |= {_text(group) for group in page}
    for names in walks.pages(sorted(seen), PAGE):
        for reply in each_by_name(await part.call(scripts.EXAMINE_ERROR_GROUPS, fix, *names)):
            group = f"suspended tasks of error group {_text(reply['group'])}"
            message = findings.wrong_count(group, reply["counted"], reply["tasks"])
            yield _finding("I11", None, message, examination.fix)
        await examination.pace()


async def _leaving(part: Partition) -> set[str]:
    """Return settled tasks whose retention has ended: their keys may expire before the sweep."""
    soon = repr((await part.server_time()).wall + SOON_SECONDS)
    ids: set[str] = set()
    start, passed = "-inf", 0
    while True:
        command = (
            "ZRANGEBYSCORE", part.keys("settled"), start, soon, "WITHSCORES",
            "LIMIT", passed, walks.PAGE,
        )  # fmt: skip
        (page,) = await part.client.many(part.keys, [command])
        if isinstance(page, Exception) or not page:
            return ids
        ids |= {_text(member).partition("|")[0] for member in page[::2]}
        last = page[-1].decode()
        same = sum(score == page[-1] for score in page[1::2])
        start, passed = last, same + (passed if last == start else 0)


async def _foreign(part: Partition) -> AsyncIterator[Finding]:
    """Yield keys of another program; as long as there is one, nothing else can be examined."""
    async for page in walks.names(part):
        names = [(part.keys(k, of) if of else part.keys(k), TYPE_OF[k]) for k, of in page if k]
        types = await part.client.many(part.keys, [("TYPE", name) for name, _ in names])
        for (name, expected), type_ in zip(names, types, strict=True):
            if expected and type_.decode() not in (expected, "none"):
                message = f"{name} is a {type_.decode()}, not a {expected}: rename it"
                yield _finding("I11", None, message, False)


# -- each task by its record


async def _tasks(part: Partition, ids: Sequence[str], fix: bool) -> AsyncIterator[Finding]:
    answers = await part.call(
        scripts.EXAMINE, "1" if fix else "0", _LOSES, LOSE.event, part.terms.lock_seconds, *ids
    )
    for task_id, reply in zip(ids, each_by_name(answers), strict=True):
        kind, until, bodies = reply["type"], reply["lease_until"], by_name(reply["bodies"])
        complaints = each_by_name(reply["complaints"])
        if kind == b"none":
            continue
        if kind != b"hash":
            message = f"{part.keys('task', task_id)} is a {_text(kind)}: rename it"
            yield _finding("I11", task_id, message, False)
            continue
        for complaint in complaints:
            message, mended = _text(complaint["message"]), complaint["mended"]
            yield _finding(_text(complaint["invariant"]), task_id, message, mended)
        try:
            fields = record.texts(reply["fields"])
            task = record.decode(task_id, fields, float(until) if until else None)
            if not bodies:
                raise SerialisationError(f"task {task_id}: its record is incomplete")
            if not complaints and salvage.contradicts_itself(task):
                raise SerialisationError(f"task {task_id}: it is {task.place} and {task.status}")
        except SerialisationError as error:
            aside = fix and not reply["runs"] and await salvage.set_aside(part, [task_id.encode()])
            yield _finding("I11", task_id, str(error), bool(aside))
            continue
        for invariant, message in (*_rules(task, bodies), *_names(task, bodies["stage_facts"])):
            yield _finding(invariant, task_id, message, False)


def _rules(task: Task, bodies: Reply) -> Complaints:
    payload, checkpoint = bodies["payload_type"], bodies["checkpoint_at"]
    yield from findings.broken_rules(task)
    if payload != b"string":
        yield (
            "I11",
            "its payload is gone" if payload == b"none" else "its payload is of another type",
        )
    if bodies["events_type"] not in (b"list", b"none"):
        yield "I11", "its events are of another type"
    done = task.last_completed + 1
    if done > 0 and task.fence > 0:
        if (kept := bodies["stages_kept"]) != done:
            yield "I7", findings.wrong_stage_number(kept, done)
        if checkpoint and checkpoint != str(task.last_completed).encode():
            yield "I7", findings.wrong_checkpoint(_text(checkpoint), task)


def _names(task: Task, facts: Sequence[bytes]) -> Complaints:
    """Compare the names of stages; ``facts`` has each stage's index and facts without result."""
    try:
        wrong = describe_mismatch(task, record.decode_stages(list(facts), {}))
    except SerialisationError as error:
        yield "I7", str(error)
        return
    if wrong:
        yield "I7", findings.wrong_stages(wrong)


# -- each member of an index


async def _members(
    examination: Examination, kind: str, of: str, leaving: set[str]
) -> AsyncIterator[Finding]:
    part, fix = examination.part, examination.fix
    if kind in STREAMS:
        queue = STREAMS[kind] or of
        stream = part.keys.stream(queue)
        for walk in (walks.entries, walks.pending):
            async for page in walk(part, stream):
                async for finding in _strays(part, "stream", queue, page, fix):
                    yield finding
                await examination.pace()
    elif kind in SETS:
        key = part.keys(kind, of) if of else part.keys(kind)
        scan = "SSCAN" if kind == "by_day" else "ZSCAN"
        async for page in walks.members(part, key, scan):
            names = [name for name in page if kind == "settled" or _text(name) not in leaving]
            async for finding in _strays(part, kind, of, names, fix):
                yield finding
            await examination.pace()


async def _strays(
    part: Partition, kind: str, of: str, names: Sequence[str | bytes], fix: bool
) -> AsyncIterator[Finding]:
    if not names:
        return
    replies = await part.call(scripts.EXAMINE_MEMBERS, "1" if fix else "0", kind, of, *names)
    for reply in each_by_name(replies):
        member, problem = _text(reply["member"]), _text(reply["message"])
        message = _FORMATS.get(kind, _format_set_member)(kind, of, member, problem)
        invariant = {"key": "I10", "payload": "I1"}.get(kind, "I11")
        yield _finding(invariant, _text(reply["task"]) or None, message, fix and kind != "payload")


def _format_set_member(kind: str, of: str, _: str, problem: str) -> str:
    return f"the task is in {SETS[kind]} {of}".rstrip() + f", but {problem}"


# The message of a finding by the kind of the index; others are sets.
_FORMATS: dict[str, Callable[[str, str, str, str], str]] = {
    "stream": lambda _, of, entry, problem: f"entry {entry} of queue {of}: its task {problem}",
    "key": lambda _, __, name, problem: f"the task owns the key {name}, but {problem}",
    "payload": lambda _, __, ___, problem: f"the task {problem}, but its payload is still stored",
}


def _finding(invariant: str, task_id: str | None, message: str, mended: Any) -> Finding:
    return Finding(invariant=invariant, task_id=task_id, message=message, mended=bool(mended))


def _text(text: bytes) -> str:
    return text.decode(errors="replace")
