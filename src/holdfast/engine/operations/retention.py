"""Deletion of what has ended, by kind and age, in bounded batches, recorded in the audit."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Annotated, TypeAlias, TypedDict

import msgspec

from holdfast.domain.audit import Audit
from holdfast.domain.durations import format_duration, seconds
from holdfast.domain.errors import InvalidInput, StoreFull
from holdfast.domain.task.task import By
from holdfast.engine.operations.audit_gaps import before_prune
from holdfast.engine.options import Option, complete_options
from holdfast.ports import Clock, Kept, Store

BATCH = 500
COUNTED = 100_000  # a dry run looks at no more of a kind
BATCHES = 20_000  # at most ten million of a kind in one go
USUAL = tuple(
    kind for kind in Kept if kind is not Kept.AUDIT
)  # the audit is pruned only when it is named


Show: TypeAlias = Callable[[Kept, int], AbstractContextManager[Callable[[int], None]]]


class PruneTerms(TypedDict, total=False):
    older_than: Annotated[float | str, Option("30d", "only what ended longer ago than this")]
    ignore_keep: Annotated[bool, Option(False, "also what its own ``keep`` would still retain")]
    dry_run: Annotated[bool, Option(False, "only count, and delete nothing")]


class PruneOrder(msgspec.Struct, frozen=True, kw_only=True):
    """A request to delete, and who asks for it."""

    kinds: tuple[Kept, ...]
    older_than_seconds: float
    lease_seconds: float
    by: By
    ignore_keep: bool = False  # tasks, triggers and plans before their own ``keep`` is over, too
    dry_run: bool = False

    async def carry_out(self, store: Store, clock: Clock, show: Show | None = None) -> Pruned:
        """Count or delete the records.

        ``show`` shows the progress; for that, all records of a kind are counted first.
        """
        if not self.dry_run:
            return await delete(store, clock, self, show)
        counts = {
            kind: await self.step(store, kind, limit=COUNTED, dry_run=True) for kind in self.kinds
        }
        return Pruned(counts=counts, complete=_all_below(counts.values(), COUNTED))

    def age_of(self, kind: Kept) -> float:
        """Return the age from which a kind is deleted; a worker that may still live is kept."""
        age = self.older_than_seconds
        return max(age, 2 * self.lease_seconds) if kind is Kept.WORKERS else age

    async def step(self, store: Store, kind: Kept, *, limit: int, dry_run: bool) -> int:
        return await store.admin.prune(
            kind,
            older_than_seconds=self.age_of(kind),
            limit=limit,
            dry_run=dry_run,
            ignore_keep=self.ignore_keep,
        )

    def entry(self, pruned: dict[Kept, int], *, at: float, audit_before: str = "") -> Audit:
        """Return the audit entry; ``audit_before`` names the links that were gone before."""
        notes = {Kept.AUDIT: audit_before if pruned.get(Kept.AUDIT) else ""}
        counts = ", ".join(
            f"{kind} {number}{notes.get(kind, '')}" for kind, number in pruned.items()
        )
        kept = ", ignoring keep" if self.ignore_keep else ""
        outcome = f"older than {format_duration(self.older_than_seconds)}{kept}: {counts}"
        return Audit(task_id="store", command="prune", by=self.by, at=at, before="", after=outcome)


class Pruned(msgspec.Struct, frozen=True, kw_only=True):
    """The number of records of each kind that were deleted, or would be."""

    counts: dict[Kept, int]
    complete: bool  # False: more are left


def new_order(
    names: Iterable[Kept | str], terms: PruneTerms, lease_seconds: float, by: By
) -> PruneOrder:
    """Return a prune of the named kinds, each once; without any, of all kinds but the audit."""
    try:
        kinds = tuple(dict.fromkeys(Kept(name) for name in names)) or USUAL
    except ValueError as error:
        raise InvalidInput(f"{error}; there are: {', '.join(Kept)}") from error
    options = complete_options(PruneTerms, terms)
    return PruneOrder(
        kinds=kinds,
        older_than_seconds=seconds(options["older_than"]),
        lease_seconds=lease_seconds,
        by=by,
        ignore_keep=options["ignore_keep"],
        dry_run=options["dry_run"],
    )


async def delete(store: Store, clock: Clock, order: PruneOrder, show: Show | None = None) -> Pruned:
    """Delete the records of an order.

    The audit entry is written afterwards, because a full store takes none before, and also when
    the deletion breaks off.
    """
    pruned: dict[Kept, int] = {}
    audit_before = await before_prune(store) if Kept.AUDIT in order.kinds else ""
    try:
        for kind in order.kinds:
            await _delete_all(store, order, kind, pruned, show)
    finally:
        await _note(store, order.entry(pruned, at=clock.now(), audit_before=audit_before))
    return Pruned(counts=pruned, complete=_all_below(pruned.values(), BATCH * BATCHES))


async def _delete_all(
    store: Store, order: PruneOrder, kind: Kept, pruned: dict[Kept, int], show: Show | None
) -> None:
    pruned[kind] = 0
    shown: AbstractContextManager[Callable[[int], None]] = nullcontext(lambda _: None)
    if show is not None:
        shown = show(kind, await order.step(store, kind, limit=COUNTED, dry_run=True))
    with shown as deleted:
        for _ in range(BATCHES):
            deleted_now = await order.step(store, kind, limit=BATCH, dry_run=False)
            pruned[kind] += deleted_now
            deleted(pruned[kind])
            if deleted_now < BATCH:
                break


async def _note(store: Store, entry: Audit) -> None:
    try:
        await store.admin.audit(entry)
    except StoreFull as error:  # the caller must still learn that records were deleted
        raise StoreFull(
            f"deleted ({entry.after}), but the audit does not say so: {error}"
        ) from error


def _all_below(counts: Iterable[int], limit: int) -> bool:
    return all(count < limit for count in counts)
