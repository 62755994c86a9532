"""Handing work out: claims, the leases they give, and those who hold them."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, MutableMapping, Sequence
from typing import Any

import msgspec

from holdfast.domain.state import START
from holdfast.domain.task import Lease, Place, StageRecord, Task
from holdfast.ports import Beat, Claimed, Renewal
from holdfast.stores import codec
from holdfast.stores.sqlite.places import moved, moved_on, set_aside
from holdfast.stores.sqlite.txn import Txn

_decode_handed_out = msgspec.json.Decoder(list[tuple[int, int, bool]]).decode


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    worker: str
    request: str
    queues: Sequence[str]
    limit: int
    lease_seconds: float


def claim(txn: Txn, asked: Claim, empty: MutableMapping[str, str]) -> list[Claimed]:
    """``empty``: each worker's last claim that got nothing, which is not worth a sync."""
    if empty.get(asked.worker) == asked.request:
        return []
    last = txn.row("claim_last", asked.worker)
    if last is not None and last[0] == asked.request:
        return _once_more(txn, last[1])
    claimed = _take(txn, asked)
    if claimed:
        handed_out = [(c.task.order, c.task.fence, c.moved_on) for c in claimed]
        txn.run("claim_put", asked.worker, asked.request, codec.encode(handed_out))
    else:
        empty[asked.worker] = asked.request
    return claimed


def _take(txn: Txn, asked: Claim) -> list[Claimed]:
    claimed: list[Claimed] = []
    for queue in asked.queues:
        while len(claimed) < asked.limit:
            found = txn.rows("ready_of_queue", queue, asked.limit - len(claimed))
            if not found:
                break
            claimed += _hand_out_all(txn, found, asked)
    return claimed


def _hand_out_all(txn: Txn, rows: Iterable[Any], asked: Claim) -> Iterable[Claimed]:
    until = round(txn.now + asked.lease_seconds, 6)
    secret = secrets.token_hex(8)  # asked of the system once for all; the fence makes each its own
    for n, record, payload in rows:
        task = txn.read(n, record)
        if task is None or payload is None:
            set_aside(txn, n)
        else:
            fence = txn.next_fence()
            lease = Lease(owner=asked.worker, fence=fence, id=f"{secret}{fence:x}", until=until)
            yield _hand_out(txn, task, payload, lease)


def _hand_out(txn: Txn, task: Task, payload: bytes, lease: Lease) -> Claimed:
    newer_ran = moved_on(txn, task)
    if task.tenant is not None:
        txn.tenant(task.tenant).fence = lease.fence
    place, fence, worker = Place.LEASED, lease.fence, lease.owner
    after = moved(txn, task, START, place=place, lease=lease, fence=fence, worker=worker)
    txn.lease(task, after)
    if task.fence > 0:
        return _with_bodies(txn, after, payload, newer_ran)
    return Claimed(  # never run: nothing was left behind
        task=after, payload=payload, checkpoint=None, data=None, stages=(), moved_on=newer_ran
    )


def _with_bodies(txn: Txn, task: Task, payload: bytes, newer_ran: bool) -> Claimed:
    _, data = txn.row("outcome_get", task.order) or (None, None)
    checkpoint = txn.row("checkpoint_get", task.order)
    return Claimed(
        task=task,
        payload=payload,
        checkpoint=checkpoint[0] if checkpoint else None,
        data=data,
        stages=stages_of(txn.rows("stages_get", task.order)),
        moved_on=newer_ran,
    )


def _once_more(txn: Txn, handed_out: bytes) -> list[Claimed]:
    """What of the last claim is still held; as it is now."""
    again = []
    for n, fence, newer_ran in _decode_handed_out(handed_out):
        found, payload = txn.row("task_at", n), txn.row("payload_get", n)
        task = txn.read(*found) if found else None
        if task is not None and task.lease is not None and task.fence == fence:
            again.append(_with_bodies(txn, task, payload[0], newer_ran))
    return again


def stages_of(rows: Sequence[tuple[Any, ...]]) -> tuple[StageRecord, ...]:
    return tuple(
        StageRecord(
            index=index, name=name, result=result, duration_seconds=seconds, run=run, epoch=epoch
        )
        for index, name, result, seconds, run, epoch in rows
    )


def renew(txn: Txn, beat: Beat, batch: Sequence[Renewal], lease_seconds: float) -> list[bool]:
    txn.run("worker_seen", beat.worker, txn.now, codec.encode(beat))
    until = round(txn.now + lease_seconds, 6)
    return [_renew(txn, renewal, until) for renewal in batch]


def _renew(txn: Txn, renewal: Renewal, until: float) -> bool:
    progress = codec.encode(renewal.progress) if renewal.progress else None
    txn.run("lease_renew", until, txn.boot, progress, renewal.task_id, renewal.lease_id)
    return txn.db.changes() > 0


def leave(txn: Txn, worker: str) -> None:
    txn.run("worker_delete", worker)
    txn.run("claim_forget", worker)
