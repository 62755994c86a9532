"""Deletion by kind and age, in steps of at most `BATCH`; unsettled tasks are never deleted."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from hashlib import sha1
from typing import Any

import msgspec

from holdfast.domain.errors import StoreError
from holdfast.ports import Kept, Switch
from holdfast.stores import codec
from holdfast.stores.redis import scripts
from holdfast.stores.redis.client.client import Script, by_name, pairs_of, unless_foreign
from holdfast.stores.redis.keys import GROUP
from holdfast.stores.redis.partition import BATCH, Partition
from holdfast.stores.redis.repair import salvage
from holdfast.stores.redis.views import walks

IDLE_SECONDS = 60.0  # a new consumer's worker has no beat yet


class PruneRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The age from which on a record is old, by both clocks, and how to prune."""

    steady_before: float
    before: float
    wall: float
    limit: int
    dry_run: bool
    ignore_keep: bool

    @property
    def flags(self) -> tuple[str, str]:
        """Return the flags for a script: count only, and go by age alone."""
        return "1" if self.dry_run else "0", "1" if self.ignore_keep else "0"


async def prune(
    part: Partition,
    kind: Kept,
    *,
    older_than_seconds: float,
    limit: int,
    dry_run: bool,
    ignore_keep: bool = False,
    live: Collection[str] | None = None,
) -> int:
    """Prune one partition.

    ``live`` are the live workers, if another partition stores their beats.
    """
    now, wall = await part.server_time()
    request = PruneRequest(
        steady_before=now - older_than_seconds,
        before=wall - older_than_seconds,
        wall=wall,
        limit=limit,
        dry_run=dry_run,
        ignore_keep=ignore_keep,
    )
    match kind:
        case Kept.TASKS:
            return await _sweep(part, request, scripts.PRUNE_TASKS, part.terms.tombstone_seconds)
        case Kept.TRIGGERS:
            return await _sweep(part, request, scripts.PRUNE_TRIGGERS)
        case Kept.PLANS:
            return await _sweep(part, request, scripts.PRUNE_PLANS)
        case Kept.CHECKPOINTS:
            return await _checkpoints(part, request)
        case Kept.TOMBSTONES:
            return await _tombstones(part, request)
        case Kept.WORKERS:
            return await _workers(part, request, live)
        case Kept.AUDIT:
            raise AssertionError("the audit chain is pruned over all partitions: prune_audit.py")


async def live_workers(part: Partition) -> set[str]:
    """Return the workers whose beats have not been pruned."""
    (reply,) = await part.client.many(part.keys, [("HKEYS", part.keys("workers"))])
    return {name.decode() for name in reply}


async def _sweep(part: Partition, request: PruneRequest, script: Script, *more: float) -> int:
    """Sweep a list of ended records in pages; a page ends at a score and an offset in it."""
    pruned, score, passed = 0, b"-inf", 0
    args: list[str | float] = [repr(request.before), *more, *request.flags]
    while pruned < request.limit:
        wanted = min(BATCH, request.limit - pruned)
        reply = by_name(await part.call(script, *args, score, passed, wanted))
        pruned, score, passed = pruned + reply["outdated"], reply["score"], reply["passed"]
        if not request.dry_run:
            await salvage.set_aside(part, reply.get("unreadable", ()))
        if reply["seen"] < wanted:
            break
    return pruned


async def _checkpoints(part: Partition, request: PruneRequest) -> int:
    pruned, passed = 0, 0
    while pruned < request.limit:
        wanted = min(BATCH, request.limit - pruned)
        ids = await _older(part, "saved", request.before, passed, wanted)
        bodies = await _read_checkpoints(part, ids)
        if request.dry_run:
            gone, stay = sum(body is not None for _, _, body in bodies), len(ids)
        else:
            reply = by_name(await part.call(scripts.PRUNE_CHECKPOINTS, *_kept_data(bodies)))
            gone, stay = reply["gone"], reply["stay"]
        pruned, passed = pruned + gone, passed + stay
        if len(ids) < wanted:
            break
    return pruned


_Body = tuple[bytes, bytes, bytes | None]  # task, version, checkpoint


async def _read_checkpoints(part: Partition, ids: Sequence[bytes]) -> list[_Body]:
    names = [task_id.decode() for task_id in ids]
    versions = [("HGET", part.keys("ckpt_meta", name), "version") for name in names]
    bodies = [("GET", part.keys("kept", name)) for name in names]
    replies = await part.client.many(part.keys, [*versions, *bodies])
    triples = zip(ids, replies[: len(ids)], replies[len(ids) :], strict=True)
    return [(task_id, _bytes(version) or b"", _bytes(body)) for task_id, version, body in triples]


def _bytes(reply: Any) -> bytes | None:
    return reply if isinstance(reply, bytes) else None


def _kept_data(bodies: Iterable[_Body]) -> Iterable[bytes]:
    """Yield task, version and the data that outlives its checkpoint, for a later rollback."""
    for task_id, version, body in bodies:
        yield task_id
        yield version
        yield (codec.custom_data(body) if body is not None else None) or b""


async def _tombstones(part: Partition, request: PruneRequest) -> int:
    before = repr(min(request.before, request.wall))
    if request.dry_run:
        command = ("ZCOUNT", part.keys("tombstones"), "-inf", f"({before}")
        (count,) = await part.client.many(part.keys, [command])
        return min(int(count), request.limit)
    pruned = 0
    while pruned < request.limit:
        wanted = min(BATCH, request.limit - pruned)
        gone = await part.call(scripts.PRUNE_TOMBSTONES, before, wanted)
        pruned += gone
        if gone < wanted:
            break
    return pruned


# -- workers


async def _workers(part: Partition, request: PruneRequest, live: Collection[str] | None) -> int:
    """Prune the workers without a recent beat, their consumers and their last claims.

    Only the first partition stores all beats. The others store a worker's beats only while it
    holds one of their tasks.
    """
    before, claims = request.steady_before, await _last_claims(part)
    gone = await _older(part, "seen", before, 0, request.limit)
    if request.dry_run:
        return len(gone) if live is None else 0
    if live is not None:
        gone = [name for name in gone if name.decode(errors="replace") not in live]
    forgotten = 0
    for names in walks.pages(gone, BATCH):
        forgotten += await part.call(scripts.PRUNE_WORKERS, repr(before), *names)
    for names in walks.pages(await _drained_strangers(part) if live is None else [], BATCH):
        await part.call(scripts.PRUNE_WORKERS, repr(before), *names)
    kept = await _consumers(part, await live_workers(part) if live is None else live)
    await _forget_claims(part, {name: claim for name, claim in claims.items() if name not in kept})
    return forgotten if live is None else 0


async def _drained_strangers(part: Partition) -> list[bytes]:
    """Return unknown workers with a drain switch: they left before they read it."""
    (fields,) = await part.client.many(part.keys, [("HKEYS", part.keys("switches"))])
    live, drain = await live_workers(part), f"{Switch.DRAIN} ".encode()
    names = [f.removeprefix(drain) for f in unless_foreign(fields) if f.startswith(drain)]
    return [name for name in names if name.decode(errors="replace") not in live]


async def _consumers(part: Partition, live: Collection[str]) -> set[str]:
    """Drop the consumers of workers that are gone, and return those that stay.

    A consumer with pending entries stays until these are taken.
    """
    keys, kept = part.keys, set(live)
    (queues,) = await part.client.many(keys, [("SMEMBERS", keys("queues"))])
    for queue in queues:
        stream = keys.stream(queue.decode())
        try:
            (reply,) = await part.client.many(keys, [("XINFO", "CONSUMERS", stream, GROUP)])
        except StoreError:
            continue  # no worker has read the stream yet
        consumers = [dict(zip(consumer[::2], consumer[1::2], strict=True)) for consumer in reply]
        gone = [consumer[b"name"] for consumer in consumers if _is_gone(consumer, live)]
        kept |= {consumer[b"name"].decode(errors="replace") for consumer in consumers} - {
            name.decode(errors="replace") for name in gone
        }
        for names in walks.pages(gone, BATCH):
            await part.call(scripts.PRUNE_CONSUMERS, queue, *names)
    return kept


def _is_gone(consumer: dict[bytes, Any], live: Collection[str]) -> bool:
    return (
        consumer[b"name"].decode(errors="replace") not in live
        and consumer[b"pending"] == 0
        and consumer[b"idle"] >= IDLE_SECONDS * 1000
    )


async def _last_claims(part: Partition) -> dict[str, bytes]:
    """Return each worker's last claim, read before the consumers: later claims are not in it."""
    (reply,) = await part.client.many(part.keys, [("HGETALL", part.keys("claims"))])
    claims = pairs_of(unless_foreign(reply))
    return {name.decode(errors="replace"): claim for name, claim in claims}


async def _forget_claims(part: Partition, claims: Mapping[str, bytes]) -> None:
    """Forget the last claims of workers that will not repeat them."""
    for names in walks.pages([name.encode() for name in claims], BATCH):
        digests = [sha1(claims[name.decode()], usedforsecurity=False) for name in names]
        pairs = zip(names, (digest.hexdigest() for digest in digests), strict=True)
        await part.call(scripts.PRUNE_CLAIMS, *(word for pair in pairs for word in pair))


async def _older(part: Partition, kind: str, before: float, passed: int, limit: int) -> list[bytes]:
    page = ("ZRANGEBYSCORE", part.keys(kind), "-inf", f"({before!r}", "LIMIT", passed, limit)
    (reply,) = await part.client.many(part.keys, [page])
    return list(reply)
