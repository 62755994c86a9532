"""The admin part of a simulated world: pruning and switches are examined after each step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.domain.audit import Audit
from holdfast.ports import Kept, Switch
from holdfast.stores.memory.admin import MemoryAdmin
from verify.simulation.actors import tenant_holds
from verify.simulation.checks import verbs

if TYPE_CHECKING:
    from verify.simulation.stores.watched_store import WatchedStore


class WatchedAdmin(MemoryAdmin):
    def __init__(self, store: WatchedStore) -> None:
        super().__init__(store.state)
        self._watched = store

    async def prune(
        self,
        kind: Kept,
        *,
        older_than_seconds: float,
        limit: int,
        dry_run: bool,
        ignore_keep: bool = False,
    ) -> int:
        count = await super().prune(
            kind,
            older_than_seconds=older_than_seconds,
            limit=limit,
            dry_run=dry_run,
            ignore_keep=ignore_keep,
        )
        if kind is Kept.TRIGGERS:
            self._watched.triggers.judge(())
        moves = self._watched.step(f"prune {kind}", None)
        self._watched.judge(verbs.check_prune(moves, self._watched.wall), moves)
        return count

    async def set_switch(
        self, switch: Switch, name: str, *, on: bool, audit: Audit, until: float | None = None
    ) -> bool:
        changed = await super().set_switch(switch, name, on=on, audit=audit, until=until)
        if switch is Switch.HOLD:
            told = "release" if on else "hold"
            self._watched.book.note(
                self._watched.now, f"{self._watched.caller} {told} {name} {until} {changed}"
            )
            breaches = tenant_holds.check_switch(
                self._watched.book, self._watched, name, on=on, until=until
            )
            self._watched.book.judge(breaches, self._watched.now)
        return changed
