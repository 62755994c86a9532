"""`holdfast prune`: clean up by kind and age, in bounded batches."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Annotated

import typer

from holdfast.cli import options as opt
from holdfast.cli.progress import is_watched, progress
from holdfast.cli.session import Session, run
from holdfast.cli.show import hint, print_json, print_table
from holdfast.domain.audit import Audit
from holdfast.domain.durations import seconds, written
from holdfast.domain.errors import StoreFull
from holdfast.ports import Kept

BATCH = 500
COUNTED = 100_000  # a dry run looks at no more of a kind
BATCHES = 20_000  # at most ten million of a kind in one go
USUAL = tuple(kind for kind in Kept if kind is not Kept.AUDIT)  # that goes only by its name

Kinds = Annotated[
    list[Kept],
    typer.Option(
        "--kind",
        metavar="KIND",
        help=f"Only this; repeatable: {', '.join(Kept)}. Without it: all but the audit.",
    ),
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

    The audit says who has deleted how much; it is itself deleted only with --kind audit.

    JSON: dryRun, olderThanSeconds, pruned (kind → count), complete (false: more are left).
    """
    age, kinds = seconds(older_than), tuple(dict.fromkeys(kind)) or USUAL
    clean = _count if dry_run else partial(_delete, watched=is_watched(json=json))
    pruned = run(context, lambda session: clean(session, kinds, age))
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


async def _count(session: Session, kinds: Iterable[Kept], age: float) -> dict[Kept, int]:
    return {
        one: await session.store.prune(
            one, older_than_seconds=_age_of(session, one, age), limit=COUNTED, dry_run=True
        )
        for one in kinds
    }


async def _delete(
    session: Session, kinds: Iterable[Kept], age: float, *, watched: bool
) -> dict[Kept, int]:
    """Written down afterwards, as a store that is full takes nothing before; and also when it
    breaks off."""
    pruned: dict[Kept, int] = {}
    try:
        for one in kinds:
            await _delete_all(session, one, _age_of(session, one, age), pruned, watched=watched)
    finally:
        await _note(session, _pruning(session, age, pruned))
    return pruned


async def _note(session: Session, entry: Audit) -> None:
    try:
        await session.store.audit(entry)
    except StoreFull as error:  # still: whoever reads that must not think that nothing was done
        raise StoreFull(
            f"deleted ({entry.after}), but the audit does not say so: {error}"
        ) from error


async def _delete_all(
    session: Session, kind: Kept, age: float, pruned: dict[Kept, int], *, watched: bool
) -> None:
    prune, pruned[kind] = session.store.prune, 0
    total = 0
    if watched:  # counted for the estimate
        total = await prune(kind, older_than_seconds=age, limit=COUNTED, dry_run=True)
    with progress(f"{kind} deleted", total, shown=watched and total > BATCH) as deleted:
        for _ in range(BATCHES):
            found = await prune(kind, older_than_seconds=age, limit=BATCH, dry_run=False)
            pruned[kind] += found
            deleted(pruned[kind])
            if found < BATCH:
                break


def _age_of(session: Session, kind: Kept, age: float) -> float:
    """A worker that may yet live is no matter of age."""
    return max(age, 2 * session.settings.lease) if kind is Kept.WORKERS else age


def _pruning(session: Session, age: float, pruned: dict[Kept, int]) -> Audit:
    counts = ", ".join(f"{kind} {number}" for kind, number in pruned.items())
    return session.act_on_store("prune", f"older than {written(age)}: {counts}")
