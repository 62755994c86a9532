"""Retention deletes old records, by kind and age. It never deletes anything unsettled."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from holdfast.domain.task.task import Task
from holdfast.ports import Kept, Switch
from holdfast.stores import codec
from holdfast.stores.sqlite.admin import audit
from holdfast.stores.sqlite.file.writer import Writer
from holdfast.stores.sqlite.plans import rows as plan_rows
from holdfast.stores.sqlite.tasks.claim import leave
from holdfast.stores.sqlite.tasks.placement import set_aside
from holdfast.stores.sqlite.tasks.records import record_row
from holdfast.stores.sqlite.tasks.store import delete
from holdfast.stores.sqlite.transaction import Txn
from holdfast.stores.sqlite.triggers import rows as trigger_rows

BATCH = 500  # records in one transaction: other writes must get their turn


class Age:
    """The times before which a record counts as old, by both clocks."""

    def __init__(self, txn: Txn, older_than_seconds: float, *, ignore_keep: bool) -> None:
        self.before = txn.wall - older_than_seconds
        self.steady_before = txn.now - older_than_seconds
        self.now = txn.wall
        self.kept_until = inf if ignore_keep else txn.wall


async def in_steps(
    writer: Writer,
    kind: Kept,
    older_than_seconds: float,
    limit: int,
    *,
    dry_run: bool,
    ignore_keep: bool = False,
) -> int:
    """Delete up to ``limit`` old records of a kind, a batch in each transaction."""

    def prune(txn: Txn) -> int:
        age = Age(txn, older_than_seconds, ignore_keep=ignore_keep)
        pruned = _PRUNERS[kind](txn, age, step, dry_run)
        txn.shrink |= pruned > 0 and not dry_run
        return pruned

    done = 0
    while done < limit:
        step = limit - done if dry_run else min(limit - done, BATCH)
        pruned = await writer.do(prune, weight=step)
        done += pruned
        if dry_run or pruned < step:
            break
    return done


def _tasks(txn: Txn, age: Age, limit: int, dry_run: bool) -> int:
    if dry_run:
        return len(txn.rows("outdated_tasks", age.kept_until, age.before, limit))
    tasks: list[Task] = []
    while left := limit - len(tasks):
        rows = txn.rows("outdated_tasks", age.kept_until, age.before, left)
        for row in map(record_row, rows):
            task = txn.read(row)
            if task is None:
                set_aside(txn, row.position.n)  # otherwise each run would read it again
            else:
                delete(txn, task)
                tasks.append(task)
        if len(rows) < left:
            break
    for tenant in {task.tenant for task in tasks if task.tenant is not None}:
        txn.forget_tenant(tenant)
    return len(tasks)


def _triggers(txn: Txn, age: Age, limit: int, dry_run: bool) -> int:
    rows = txn.rows("outdated_triggers", age.kept_until, age.before, limit)
    deleted = len(rows)
    for trigger_id, body in () if dry_run else rows:
        if trigger_rows.readable(trigger_id, body) is None:
            txn.run("trigger_set_aside", trigger_id)
            deleted -= 1
        else:
            txn.run("trigger_remove", trigger_id)
    return deleted


def _plans(txn: Txn, age: Age, limit: int, dry_run: bool) -> int:
    rows = txn.rows("outdated_plans", age.kept_until, age.before, limit)
    deleted = len(rows)
    for n, body in () if dry_run else rows:
        if plan_rows.readable(f"number {n}", body, plan_rows.NO_LEASE) is None:
            txn.run("plan_set_aside", n)
            deleted -= 1
        else:
            for table in ("plan", "plan_tasks", "plan_members", "plan_events"):
                txn.run(f"{table}_delete", n)
    return deleted


def _checkpoints(txn: Txn, age: Age, limit: int, dry_run: bool) -> int:
    rows = txn.rows("outdated_checkpoints", age.before, limit)
    for n, body in () if dry_run else rows:
        # The data of the stages stays: a task may still be rolled back.
        data = codec.custom_data(body.encode())
        if data is not None:
            txn.run("data_keep", n, data.decode())
        txn.add("checkpoint_delete", n)
    return len(rows)


def _tombstones(txn: Txn, age: Age, limit: int, dry_run: bool) -> int:
    rows = txn.rows("outdated_tombstones", min(age.before, age.now), limit)
    for n, task_id, tenant, key in () if dry_run else rows:
        txn.run("tombstone_delete", n)
        if key is not None:
            txn.run("key_delete", tenant or "", key, task_id)
        if tenant is not None:
            txn.forget_tenant(tenant)
    return len(rows)


def _audit(txn: Txn, age: Age, limit: int, dry_run: bool) -> int:
    return audit.prune(txn, age.before, limit, dry_run=dry_run)


def _workers(txn: Txn, age: Age, limit: int, dry_run: bool) -> int:
    rows = txn.rows("outdated_workers", age.steady_before, limit)
    if not dry_run:
        for (worker,) in rows:
            leave(txn, worker)
        # A worker that should drain and is not known any more had left before it learned of it.
        txn.run("switches_of_strangers", Switch.DRAIN)
        txn.forget_switches()
    return len(rows)


_PRUNERS: dict[Kept, Callable[[Txn, Age, int, bool], int]] = {
    Kept.TASKS: _tasks,
    Kept.TRIGGERS: _triggers,
    Kept.PLANS: _plans,
    Kept.CHECKPOINTS: _checkpoints,
    Kept.TOMBSTONES: _tombstones,
    Kept.AUDIT: _audit,
    Kept.WORKERS: _workers,
}
