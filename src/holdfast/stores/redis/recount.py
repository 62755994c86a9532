"""Are the counts of tasks by queue and place right?

Only a walk tells who waits in which line, so all are counted by a walk. It is believed if nothing
was written while it went, and what differs is mended by the difference: whatever is counted
meanwhile stays counted. A store that is never quiet is compared where one step can do it: the sums
over all queues of those that have an index of their own. These are told, and mended when it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator

import msgspec

from holdfast.ports import Finding
from holdfast.stores.redis import scripts, walks
from holdfast.stores.redis.partition import Partition

WALKS = 3  # until one is not disturbed


class Said(msgspec.Struct, frozen=True):
    counts: dict[str, int]
    writes: bytes | None


async def examine(part: Partition, *, fix: bool) -> AsyncIterator[Finding]:
    for _ in range(WALKS):
        before = await _said(part)
        walked = await _walked(part)
        if await _said(part) == before:
            break
    else:
        for place, says, is_ in await part.call(scripts.TALLY):
            if says != is_:
                yield _told(f"{place.decode()} in all queues", says, is_, mended=False)
        return
    for field in sorted(before.counts.keys() | walked.keys()):
        says, is_ = before.counts.get(field, 0), walked[field]
        if says == is_:
            continue
        if fix:
            by = ("HINCRBY", part.keys("counts"), field, is_ - says)
            await part.link.many(part.keys, [by])
        yield _told(field, says, is_, mended=fix)


def _told(what: str, says: int, is_: int, *, mended: bool) -> Finding:
    told = f"{what} is counted as {says}, there are {is_}"
    return Finding(invariant="I11", task_id=None, says=told, mended=mended)


async def _said(part: Partition) -> Said:
    counts, writes = await part.link.many(
        part.keys,
        [("HGETALL", part.keys("counts")), ("HGET", part.keys("meta"), "writes")],
    )
    pairs = zip(counts[::2], counts[1::2], strict=True)
    return Said({name.decode(): int(number) for name, number in pairs}, writes)


async def _walked(part: Partition) -> Counter[str]:
    walked: Counter[str] = Counter()
    seen: set[str] = set()
    async for page in walks.names(part):
        ids = {of for kind, of in page if kind == "task"} - seen
        seen |= ids
        asked = [("HMGET", part.keys("task", i), "queue", "place") for i in ids]
        for reply in await part.link.many(part.keys, asked):
            if isinstance(reply, list) and reply[1] is not None:
                queue, place = (reply[0] or b"default").decode(), reply[1].decode()
                walked[f"{queue} {place}"] += place != "settled"
    # Of the settled, the record may be gone before they are swept.
    async for members in walks.members(part, part.keys("settled"), "ZSCAN"):
        walked.update(f"{_queue_in(member)} settled" for member in members)
    return walked


def _queue_in(member: bytes) -> str:
    return member.decode(errors="replace").split("|")[4]
