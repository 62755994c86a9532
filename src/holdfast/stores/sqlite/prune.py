"""Cleaning up by kind and age. Nothing unsettled is ever trimmed."""

from __future__ import annotations

from collections.abc import Callable
from itertools import takewhile

from holdfast.ports import Kept
from holdfast.stores.sqlite.applying import delete
from holdfast.stores.sqlite.claiming import leave
from holdfast.stores.sqlite.txn import Txn

BATCH = 500  # in one transaction: others must get their turn


class Age:
    """What counts as old, by both clocks."""

    def __init__(self, txn: Txn, older_than_seconds: float) -> None:
        self.before = txn.wall - older_than_seconds
        self.steady_before = txn.now - older_than_seconds
        self.now = txn.wall


def prune(txn: Txn, kind: Kept, older_than_seconds: float, limit: int, *, dry_run: bool) -> int:
    found = _PRUNERS[kind](txn, Age(txn, older_than_seconds), limit, dry_run)
    txn.shrink |= found > 0 and not dry_run
    return found


def _tasks(txn: Txn, age: Age, limit: int, dry_run: bool) -> int:
    found = txn.rows("outdated_tasks", age.now, age.before, limit)
    if dry_run:
        return len(found)
    # What cannot be read is for a person to look at.
    tasks = [task for n, record in found if (task := txn.read(n, record)) is not None]
    for task in tasks:
        delete(txn, task)
    for tenant in {task.tenant for task in tasks if task.tenant is not None}:
        txn.forget_tenant(tenant)
    return len(tasks)


def _checkpoints(txn: Txn, age: Age, limit: int, dry_run: bool) -> int:
    found = txn.rows("outdated_checkpoints", age.before, limit)
    for (n,) in () if dry_run else found:
        txn.run("checkpoint_delete", n)
    return len(found)


def _tombstones(txn: Txn, age: Age, limit: int, dry_run: bool) -> int:
    found = txn.rows("outdated_tombstones", min(age.before, age.now), limit)
    for n, task_id, tenant, key in () if dry_run else found:
        txn.run("tombstone_delete", n)
        if key is not None:
            txn.run("key_delete", tenant or "", key, task_id)
        if tenant is not None:
            txn.forget_tenant(tenant)
    return len(found)


def _audit(txn: Txn, age: Age, limit: int, dry_run: bool) -> int:
    oldest = txn.rows("audits_oldest", limit)
    found = [n for n, _ in takewhile(lambda row: row[1] < age.before, oldest)]
    if found and not dry_run:
        txn.run("audits_delete_upto", found[-1])
    return len(found)


def _workers(txn: Txn, age: Age, limit: int, dry_run: bool) -> int:
    found = txn.rows("outdated_workers", age.steady_before, limit)
    for (worker,) in () if dry_run else found:
        leave(txn, worker)
    return len(found)


_PRUNERS: dict[Kept, Callable[[Txn, Age, int, bool], int]] = {
    Kept.TASKS: _tasks,
    Kept.CHECKPOINTS: _checkpoints,
    Kept.TOMBSTONES: _tombstones,
    Kept.AUDIT: _audit,
    Kept.WORKERS: _workers,
}
