"""`holdfast prune`: clean up by kind and age, in bounded batches."""

from __future__ import annotations

from typing import Annotated

import typer

from holdfast.cli import options as opt
from holdfast.cli.session import Session, run
from holdfast.cli.show import hint, print_json, print_table
from holdfast.domain.durations import seconds, written
from holdfast.ports import Kept

BATCH = 500
COUNTED = 100_000  # a dry run looks at no more of a kind
BATCHES = 20_000  # at most ten million of a kind in one go

Kinds = Annotated[
    list[Kept],
    typer.Option("--kind", metavar="KIND", help=f"Only this; repeatable: {', '.join(Kept)}."),
]
Age = Annotated[str, typer.Option(metavar="AGE", help="Ended longer ago than that: 2h, 30d.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Count, delete nothing.")]


def prune(
    context: typer.Context,
    kind: Kinds = [],  # noqa: B006  (Typer copies it)
    older_than: Age = "30d",
    dry_run: DryRun = False,
    json: opt.Json = False,
) -> None:
    """Delete what has ended. Nothing unsettled is ever touched, and no task before its own keep.

    JSON: dryRun, olderThanSeconds, pruned (kind → count), complete (false: more are left).
    """
    age, kinds = seconds(older_than), kind or list(Kept)

    async def clean(session: Session) -> dict[Kept, int]:
        return {one: await _prune(session, one, age, dry_run) for one in kinds}

    pruned = run(context, clean)
    limit = COUNTED if dry_run else BATCH * BATCHES
    complete = all(count < limit for count in pruned.values())
    if json:
        print_json(
            {
                "dryRun": dry_run,
                "olderThanSeconds": age,
                "pruned": pruned,
                "complete": complete,
            }
        )
        return
    head = "WOULD DELETE" if dry_run else "DELETED"
    rows = [
        {"KIND": one.value, head: f"{count}{'+' if count >= limit else ''}"}
        for one, count in pruned.items()
    ]
    print_table(rows, keep=2)
    hint(f"what ended more than {written(age)} ago")


async def _prune(session: Session, kind: Kept, age: float, dry_run: bool) -> int:
    if kind is Kept.WORKERS:  # one that may yet live is no matter of age
        age = max(age, 2 * session.settings.lease)
    if dry_run:
        return await session.store.prune(kind, older_than_seconds=age, limit=COUNTED, dry_run=True)
    done = 0
    for _ in range(BATCHES):
        found = await session.store.prune(kind, older_than_seconds=age, limit=BATCH, dry_run=False)
        done += found
        if found < BATCH:
            break
    return done
