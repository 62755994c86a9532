"""What people switch off, and what is written down of all that they do."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.domain.audit import Audit, Chain
from holdfast.ports import Switch, Thrown, Topic
from holdfast.stores.memory.state import Shelves


class Operating(Shelves):
    async def throw(
        self, switch: Switch, name: str, *, on: bool, audit: Audit, until: float | None = None
    ) -> bool:
        with self._lock:
            stored = self._thrown.get((switch, name))
            was_off = self._is_off(switch, name)
            if on and until is not None and (stored is None or stored.until != until or was_off):
                return False
            self._note(audit)
            if on:
                self._set_back(switch, name)
            elif not was_off:
                self._thrown[switch, name] = Thrown(
                    switch=switch, name=name, by=audit.by, at=audit.at, until=until
                )
            return was_off is on

    def _set_back(self, switch: Switch, name: str) -> None:
        thrown = self._thrown.pop((switch, name), None)
        if thrown is not None and switch in (Switch.CLAIMING, Switch.HOLD):
            self._signals.notify(Topic.READY)

    async def switches(self) -> Sequence[Thrown]:
        with self._lock:
            return list(self._thrown.values())

    # -- audits

    async def audit(self, entry: Audit) -> None:
        with self._lock:
            self._note(entry)
            if entry.refused is not None:
                self._refused[f"{entry.before} {entry.command}"] += 1

    async def seal(self, *, limit: int) -> int:
        """Each entry was linked when it was written."""
        del limit
        return 0

    async def audits(self, *, limit: int, cursor: str | None = None) -> Sequence[Audit]:
        with self._lock:
            start = int(cursor or 0)
            return [link.entry for link in self._links[::-1][start : start + limit]]

    async def chain(self, *, after: int = 0, limit: int) -> Chain:
        with self._lock:
            start = max(0, after - self._base.seq)
            links = tuple(self._links[start : start + limit])
            return Chain(base=self._base, head=self._head(), links=links, base_at=self._base_at)
