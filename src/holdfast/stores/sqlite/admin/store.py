"""The admin part of the SQLite store: retention, repair, audits, switches and measures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from holdfast.domain.audit import Audit, Chain
from holdfast.ports import Check, Finding, Kept, Switch, SwitchSetting, Timings
from holdfast.stores.sqlite.admin import audit as audit_ops
from holdfast.stores.sqlite.admin import doctor, prune, repair
from holdfast.stores.sqlite.admin import switches as switch_ops
from holdfast.stores.sqlite.file.open_parts import RequireOpen
from holdfast.stores.sqlite.views import measures


class SqliteAdmin:
    def __init__(self, require_open: RequireOpen) -> None:
        self._parts = require_open

    async def prune(
        self,
        kind: Kept,
        *,
        older_than_seconds: float,
        limit: int,
        dry_run: bool,
        ignore_keep: bool = False,
    ) -> int:
        return await prune.in_steps(
            self._parts().writer,
            kind,
            older_than_seconds,
            limit,
            dry_run=dry_run,
            ignore_keep=ignore_keep,
        )

    async def doctor(
        self,
        *,
        fix: bool,
        limit: int,
        seen: Callable[[int], None] | None = None,
        every_seconds: float | None = None,
    ) -> Sequence[Finding]:
        if every_seconds is not None:
            return ()  # only stores write to the file, and SQLite keeps its indexes right
        opened = self._parts()
        complaints = await opened.readers.do(partial(doctor.examine, limit=limit, seen=seen))
        if not fix:
            return [doctor.finding(complaint) for complaint in complaints]
        return [
            finding
            for start in range(0, len(complaints), repair.BATCH)
            for finding in await opened.writer.do(
                partial(repair.mend, complaints=complaints[start : start + repair.BATCH]),
                weight=repair.BATCH,
            )
        ]

    async def checks(self) -> Sequence[Check]:
        message = "every commit is synced to the disk before it is answered"
        return [Check(name="persistence", good=True, message=message)]

    async def audit(self, entry: Audit) -> None:
        await self._parts().writer.do(partial(audit_ops.audit, entry=entry))

    async def seal(self, *, limit: int) -> int:
        """Return 0: every audit entry is linked when it is written."""
        del limit
        return 0

    async def audits(self, *, limit: int, cursor: str | None = None) -> Sequence[Audit]:
        return await self._parts().readers.do(partial(audit_ops.audits, limit=limit, cursor=cursor))

    async def chain(self, *, after: int = 0, limit: int) -> Chain:
        return await self._parts().readers.do(partial(audit_ops.chain, after=after, limit=limit))

    async def set_switch(
        self, switch: Switch, name: str, *, on: bool, audit: Audit, until: float | None = None
    ) -> bool:
        work = partial(
            switch_ops.set_switch, switch=switch, name=name, audit=audit, until=until, on=on
        )
        return await self._parts().writer.do(work)

    async def switches(self) -> Sequence[SwitchSetting]:
        return await self._parts().readers.do(switch_ops.switches)

    async def observe(self, batch: Sequence[Timings]) -> None:
        await self._parts().writer.do(partial(measures.observe, batch=batch), weight=len(batch))
