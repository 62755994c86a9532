"""`holdfast prune` deletes settled records by kind and age, in bounded batches."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Annotated

from holdfast.cli import options as opt
from holdfast.cli.output.printer import hint, print_json, print_table
from holdfast.cli.output.progress import is_watched, progress
from holdfast.cli.session import Session, in_session
from holdfast.domain.durations import format_duration, seconds
from holdfast.engine.operations import retention
from holdfast.engine.operations.retention import PruneOrder
from holdfast.insight.views.operations import PruneView
from holdfast.insight.views.view import keys
from holdfast.ports import Kept

EPILOG = f"JSON: {keys(PruneView)} (false: more are left). pruned: kind → count."

Kinds = Annotated[
    list[Kept],
    opt.takes(
        "KIND",
        f"Only this kind; repeatable: {', '.join(Kept)}. Default: all but the audit.",
        "--kind",
    ),
]
Age = Annotated[str, opt.duration("AGE", "Only records that ended longer ago than this: 2h, 30d.")]
DryRun = Annotated[bool, opt.flag("--dry-run", "Count, and delete nothing.")]

IgnoreKeep = Annotated[
    bool,
    opt.flag(
        "--ignore-keep",
        "Delete tasks even before their own retention ends; use it when the store is full.",
    ),
]


@in_session
async def prune(
    session: Session,
    *,
    kind: Kinds = [],  # noqa: B006  (Typer copies it)
    older_than: Age = "30d",
    dry_run: DryRun = False,
    ignore_keep: IgnoreKeep = False,
    json: opt.Json = False,
) -> None:
    """Delete settled tasks, plans, triggers and other old records.

    Unsettled work is never deleted. A task is deleted before its own retention is over only with
    --ignore-keep. Count with --dry-run first: you can no longer show or roll back a deleted task.
    Its key stays known for 24 hours after its end.

    The audit records who deleted how much; the audit itself is deleted only with --kind audit.
    """
    age, kinds = seconds(older_than), tuple(dict.fromkeys(kind)) or retention.USUAL
    order = PruneOrder(
        kinds=kinds,
        older_than_seconds=age,
        lease_seconds=session.settings.lease,
        by=session.operator(""),
        ignore_keep=ignore_keep,
        dry_run=dry_run,
    )
    show = _deletion_progress if is_watched(json=json) else None
    pruned = await order.carry_out(session.store, session.clock, show)
    if json:
        print_json(
            PruneView(
                dryRun=dry_run,
                olderThanSeconds=age,
                ignoreKeep=ignore_keep,
                pruned=pruned.counts,
                complete=pruned.complete,
            )
        )
        return
    limit = retention.COUNTED if dry_run else retention.BATCH * retention.BATCHES
    head = "WOULD DELETE" if dry_run else "DELETED"
    rows = [
        {"KIND": kept.value, head: f"{count}{'+' if count >= limit else ''}"}
        for kept, count in pruned.counts.items()
    ]
    print_table(rows, keep=2)
    ignored = ", whatever their own retention" if ignore_keep else ""
    hint(f"these ended more than {format_duration(age)} ago{ignored}")


def _deletion_progress(kind: Kept, total: int) -> AbstractContextManager[Callable[[int], None]]:
    return progress(f"{kind} deleted", total, shown=total > retention.BATCH)
