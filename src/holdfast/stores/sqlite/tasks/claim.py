"""Claims hand tasks out with leases; workers renew the leases."""

from __future__ import annotations

import logging
import secrets
from collections import defaultdict
from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any

import msgspec

from holdfast.domain.errors import SerialisationError
from holdfast.domain.task.placement import START, Place
from holdfast.domain.task.task import Lease, Task
from holdfast.ports import Beat, Claimed, Renewal, Switch
from holdfast.stores import codec
from holdfast.stores.sqlite.tasks.placement import set_aside
from holdfast.stores.sqlite.tasks.records import STATUSES, bodies_of, record_row, stored_task
from holdfast.stores.sqlite.transaction import Txn, json_list

LEASED = Place.LEASED

log = logging.getLogger("holdfast.stores.sqlite.claiming")

_decode_handed_out = msgspec.json.Decoder(list[tuple[int, int, bool]]).decode


class ClaimRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The claim that a worker makes."""

    worker: str
    request: str
    queues: Sequence[str]
    limit: int
    lease_seconds: float


def claim(txn: Txn, claim_request: ClaimRequest, empty: MutableMapping[str, str]) -> list[Claimed]:
    """Hand out tasks; ``empty`` has each worker's last claim without tasks, only in memory."""
    if empty.get(claim_request.worker) == claim_request.request:
        return []
    last = txn.row("claim_last", claim_request.worker)
    if last is not None and last[0] == claim_request.request:
        return _once_more(txn, last[1])
    claimed = _take(txn, claim_request)
    if claimed:
        handed_out = [(c.task.order, c.task.fence, c.moved_on) for c in claimed]
        txn.run("claim_put", claim_request.worker, claim_request.request, codec.encode(handed_out))
    else:
        empty[claim_request.worker] = claim_request.request
    return claimed


def _take(txn: Txn, claim_request: ClaimRequest) -> list[Claimed]:
    claimed: list[Claimed] = []
    off = txn.switched_off(Switch.CLAIMING)
    for queue in claim_request.queues:
        while queue not in off and len(claimed) < claim_request.limit:
            rows = _ready(txn, queue, claim_request.limit - len(claimed))
            if not rows:
                break
            claimed += _hand_out_all(txn, queue, rows, claim_request)
    return claimed


def _ready(txn: Txn, queue: str, limit: int) -> list[Any]:
    """Return the first tasks of the queue, without those of held tenants.

    A tenant has at most one task in a queue, so no more tasks are skipped than tenants are held.
    """
    if not txn.some_held:
        return txn.rows("ready_of_queue", queue, limit)
    return txn.rows("ready_of_queue_unheld", queue, txn.wall, limit)


def _hand_out_all(
    txn: Txn, queue: str, rows: Sequence[Any], claim_request: ClaimRequest
) -> list[Claimed]:
    now, until = txn.wall, round(txn.now + claim_request.lease_seconds, 6)
    secret = secrets.token_hex(8)  # read from the system once; the fence makes each id unique
    claimed, leases, unreadable = [], [], []
    waited: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    for _, n, version, status, since, ran, mutable, submitted, payload in rows:
        fence = txn.next_fence()
        lease = Lease(owner=claim_request.worker, fence=fence, id=f"{secret}{fence:x}", until=until)
        try:
            before = STATUSES[status]
            after = START.to[before]
            task = stored_task(
                submitted,
                mutable,
                status=after,
                status_since=since if after is before else now,
                updated_at=now,
                settled_at=None,
                version=version + 1,
                place=LEASED,
                order=n,
                due=None,
                lease=lease,
                fence=fence,
            )
        except (SerialisationError, KeyError) as error:
            log.warning("task number %d is unreadable; see `holdfast doctor`: %s", n, error)
            unreadable.append(n)
            continue
        leases.append((n, version + 1, lease.id, fence))
        claimed.append(_claimed_task(txn, task, payload, ran))
        txn.raise_fence(task.tenant, fence)
        waited[task.type, status].append(now - since)
    if txn.some_held:
        for number, *_ in rows:
            txn.add("ready_delete", (queue, number))
    else:
        txn.run("ready_take", queue, rows[-1][0])
    txn.run("lease_add", json_list(leases), now, claim_request.worker, txn.boot, until)
    _count(txn, queue, waited)
    for n in unreadable:
        set_aside(txn, n)
    return claimed


def _count(txn: Txn, queue: str, waited: Mapping[tuple[str, str], Sequence[float]]) -> None:
    """Count the tasks handed out; ``waited`` has the seconds in the status, by type and status."""
    for (type, status), seconds in waited.items():
        before, count = STATUSES[status], len(seconds)
        after = START.to[before]
        dwelt = sum(max(0.0, waited) for waited in seconds)
        txn.count_shifts((queue, type, Place.READY, before, LEASED, after), count, dwelt)


def _claimed_task(txn: Txn, task: Task, payload: str, ran: int) -> Claimed:
    """Return a claimed task; ``ran`` is the fence of its last run, 0 if it never ran."""
    if ran > 0:
        return _with_bodies(txn, task, payload, txn.moved_on(task.tenant, ran))
    return Claimed(
        task=task, payload=payload.encode(), checkpoint=None, data=None, stages=(), moved_on=False
    )


def _with_bodies(txn: Txn, task: Task, payload: str, newer_ran: bool) -> Claimed:
    checkpoint = txn.row("checkpoint_get", task.order)
    bodies = bodies_of(txn.rows("bodies_get", task.order))
    return Claimed(
        task=task,
        payload=payload.encode(),
        checkpoint=checkpoint[0].encode() if checkpoint else None,
        data=bodies.data,
        stages=bodies.stages,
        moved_on=newer_ran,
        checkpoint_version=checkpoint[1] if checkpoint else 0,
    )


def _once_more(txn: Txn, handed_out: bytes) -> list[Claimed]:
    """Return the tasks of the last claim that are still leased, as they are now."""
    again = []
    for n, fence, newer_ran in _decode_handed_out(handed_out):
        row, payload = txn.row("record_at", n), txn.row("payload_get", n)
        task = txn.read(record_row(row)) if row else None
        if task is not None and task.lease is not None and task.fence == fence:
            again.append(_with_bodies(txn, task, payload[0], newer_ran))
    return again


def renew(txn: Txn, beat: Beat, batch: Sequence[Renewal], lease_seconds: float) -> list[bool]:
    txn.run("worker_seen", beat.worker, txn.now, codec.encode(beat))
    until = round(txn.now + lease_seconds, 6)
    return [_renew(txn, renewal, until) for renewal in batch]


def _renew(txn: Txn, renewal: Renewal, until: float) -> bool:
    progress = codec.encode(renewal.progress).decode() if renewal.progress else None
    txn.run("lease_renew", until, txn.boot, progress, renewal.task_id, renewal.lease_id)
    return txn.db.changes() > 0


def leave(txn: Txn, worker: str) -> None:
    txn.run("worker_delete", worker)
    txn.run("claim_forget", worker)
    txn.run("switch_set_back", Switch.DRAIN, worker)
    txn.forget_switches()
