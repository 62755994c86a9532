"""Are the counts of tasks by queue and place right?

They cannot be compared in one step, as only a walk tells who waits in the lines. So all are counted
by a walk, between two looks at the counts; what differs is counted once more, and is reported only
if it differs by the same, while nobody changed that count during either walk. It is mended by the
difference: whatever is counted meanwhile stays counted. On a busy queue nothing is said of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator

from holdfast.ports import Finding
from holdfast.stores.redis import walks
from holdfast.stores.redis.partition import Partition


async def examine(part: Partition, *, fix: bool) -> AsyncIterator[Finding]:
    suspected = await _differences(part)
    if not suspected:
        return
    confirmed = await _differences(part)
    for field, (says, is_) in suspected.items():
        if confirmed.get(field) != (says, is_):
            continue
        if fix:
            by = ("HINCRBY", part.keys("counts"), field, is_ - says)
            await part.link.many(part.keys, [by])
        told = f"{field} is counted as {says}, there are {is_}"
        yield Finding(invariant="I11", task_id=None, says=told, mended=fix)


async def _differences(part: Partition) -> dict[str, tuple[int, int]]:
    """What is said and what is, of those counts that stood still."""
    before = await _said(part)
    walked = await _walked(part)
    after = await _said(part)
    return {
        field: (before[field], walked[field])
        for field in sorted(before.keys() | walked.keys())
        if before[field] == after[field] != walked[field]
    }


async def _said(part: Partition) -> Counter[str]:
    (found,) = await part.link.many(part.keys, [("HGETALL", part.keys("counts"))])
    pairs = zip(found[::2], found[1::2], strict=True)
    return Counter({name.decode(): int(number) for name, number in pairs})


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
