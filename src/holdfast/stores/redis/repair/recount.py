"""The doctor's part for the counts of tasks by queue and place.

Only a walk through all tasks shows which task waits in which line, so it counts them all. The
result is valid if nothing was written meanwhile and one run of the server answered throughout: a
server that was restarted or promoted does not know the cursor. A count is mended if it has not
changed since it was read. If a store is never quiet, or an ACL hides the server's run, one step
compares the sums over all queues for places with an index. Those are reported, and not mended.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping

import msgspec

from holdfast.domain.errors import StoreUnusable
from holdfast.domain.task.placement import Place
from holdfast.ports import Finding
from holdfast.stores import findings
from holdfast.stores.redis import scripts
from holdfast.stores.redis.client.client import each_by_name, pairs_of, unless_foreign
from holdfast.stores.redis.partition import Partition
from holdfast.stores.redis.views import walks
from holdfast.stores.redis.views.walks import Pace

_SETTLED, _LEASED = Place.SETTLED.encode(), Place.LEASED.encode()
_FACTS = ("queue", "place", "tenantId", "lastCompletedStageIndex")
WALKS = 3  # tries, until no write disturbs one

_RUN = re.compile(rb"^run_id:(\w+)", re.MULTILINE)


class CountsRead(msgspec.Struct, frozen=True):
    """The stored counts, and what shows whether they changed."""

    counts: dict[bytes, int]  # their names may be damaged
    writes: bytes
    run: bytes | None  # the server's run; None if an ACL hides it


async def examine(
    part: Partition, *, fix: bool, pace: Pace = walks.at_once
) -> AsyncIterator[Finding]:
    for _ in range(WALKS):
        before = await _read_counts(part)
        if before.run is None:
            break
        walked = await _walk_counts(part, pace)
        if await _read_counts(part) == before:
            async for finding in _compare(part, before, walked, fix):
                yield finding
            return
    for reply in each_by_name(await part.call(scripts.COMPARE_COUNTS)):
        if reply["counted"] != reply["tasks"]:
            what = f"{reply['place'].decode()} in all queues"
            yield _count_finding(what, reply["counted"], reply["tasks"], mended=False)


async def _compare(
    part: Partition, before: CountsRead, walked: Counter[bytes], fix: bool
) -> AsyncIterator[Finding]:
    fields = sorted(before.counts.keys() | walked.keys())
    wrong = [field for field in fields if before.counts.get(field, 0) != walked[field]]
    mended = False
    if fix and wrong:
        is_now = {field: number for field, number in walked.items() if number}
        args = before.writes, len(before.counts), *_flat(before.counts), *_flat(is_now)
        mended = bool(await part.call(scripts.RECOUNT, *args))
    for field in wrong:
        what = field.decode(errors="replace")
        yield _count_finding(what, before.counts.get(field, 0), walked[field], mended=mended)


def _flat(counts: Mapping[bytes, int]) -> list[bytes | int]:
    return [word for pair in counts.items() for word in pair]


def _count_finding(what: str, counted: int, tasks: int, *, mended: bool) -> Finding:
    message = findings.wrong_count(what, counted, tasks)
    return Finding(invariant="I11", task_id=None, message=message, mended=mended)


async def _read_counts(part: Partition) -> CountsRead:
    counts, writes = map(
        unless_foreign,
        await part.client.many(
            part.keys, [("HGETALL", part.keys("counts")), ("HGET", part.keys("meta"), "writes")]
        ),
    )
    numbers = {name: int(number) for name, number in pairs_of(counts)}
    return CountsRead(numbers, writes or b"", await _run(part))


async def _run(part: Partition) -> bytes | None:
    """Return the id of the server's run, which is new at each start."""
    try:
        (info,) = await part.client.many(part.keys, [("INFO", "server")])
    except StoreUnusable:
        return None  # an ACL may forbid it
    match = _RUN.search(info)
    return match[1] if match else None


async def _walk_counts(part: Partition, pace: Pace) -> Counter[bytes]:
    walked: Counter[bytes] = Counter()
    seen: set[str] = set()
    async for page in walks.names(part):
        ids = {of for kind, of in page if kind == "task"} - seen
        seen |= ids
        commands = [("HMGET", part.keys("task", i), *_FACTS) for i in ids]
        for reply in await part.client.many(part.keys, commands):
            if isinstance(reply, list) and reply[1] is not None:
                walked.update(_count_fields(*reply))
        await pace()
    # The record of a settled task may have expired before the sweep.
    async for members in walks.members(part, part.keys("settled"), "ZSCAN"):
        queues = (member.split(b"|")[4] for member in members)  # see grave.lua
        walked.update(b"%b %b" % (queue, _SETTLED) for queue in queues)
        await pace()
    return walked


def _count_fields(
    queue: bytes | None, place: bytes, tenant: bytes | None, completed: bytes | None
) -> Iterator[bytes]:
    """Yield the fields of the counts in which such a task counts."""
    if place == _SETTLED:
        return
    of = queue or b"default"
    yield b"%b %b" % (of, place)
    if place == _LEASED and tenant:
        yield b"%b locks" % of
    if completed and completed.isdigit():  # before the first stage it is -1
        yield b"%b checkpoints" % of
