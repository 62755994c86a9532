"""The admin part of the Redis store: retention, repair, audits, switches and measures."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from holdfast.domain.audit import Audit, Chain
from holdfast.ports import Check, Finding, Kept, Switch, SwitchSetting, Timings
from holdfast.stores.redis.admin import audit_chain, audit_seal
from holdfast.stores.redis.admin import switches as switch_ops
from holdfast.stores.redis.encoding import stage_timings
from holdfast.stores.redis.partition import Partitions
from holdfast.stores.redis.repair import doctor
from holdfast.stores.redis.retention import prune, prune_audit


class RedisAdmin:
    def __init__(self, parts: Partitions, check: Callable[[], Awaitable[Sequence[Check]]]) -> None:
        self._parts, self._check = parts, check

    async def prune(
        self,
        kind: Kept,
        *,
        older_than_seconds: float,
        limit: int,
        dry_run: bool,
        ignore_keep: bool = False,
    ) -> int:
        if kind is Kept.AUDIT:
            return await prune_audit.prune(
                self._parts, older_than_seconds=older_than_seconds, limit=limit, dry_run=dry_run
            )
        pruned, live = 0, None
        for part in self._parts:
            pruned += await prune.prune(
                part,
                kind,
                older_than_seconds=older_than_seconds,
                limit=limit - pruned,
                dry_run=dry_run,
                ignore_keep=ignore_keep,
                live=live,
            )
            if kind is Kept.WORKERS and live is None:
                live = await prune.live_workers(self._parts.first)
        return pruned

    async def doctor(
        self,
        *,
        fix: bool,
        limit: int,
        seen: Callable[[int], None] | None = None,
        every_seconds: float | None = None,
    ) -> Sequence[Finding]:
        if every_seconds is not None:
            return await doctor.reconcile(list(self._parts), every_seconds)
        findings: list[Finding] = []
        tally = doctor.SeenCount(seen)
        for part in self._parts:
            findings += await doctor.examine(
                part, fix=fix, limit=limit - len(findings), tally=tally
            )
        return findings

    async def checks(self) -> Sequence[Check]:
        return await self._check()

    async def audit(self, entry: Audit) -> None:
        part = self._parts.of_task(entry.task_id) or self._parts.first
        await audit_chain.write_audit(part, entry)

    async def seal(self, *, limit: int) -> int:
        return await audit_seal.seal(self._parts, limit)

    async def audits(self, *, limit: int, cursor: str | None = None) -> Sequence[Audit]:
        return await audit_chain.audits(self._parts, limit, int(cursor or 0))

    async def chain(self, *, after: int = 0, limit: int) -> Chain:
        return await audit_chain.chain(self._parts, after, limit)

    async def set_switch(
        self, switch: Switch, name: str, *, on: bool, audit: Audit, until: float | None = None
    ) -> bool:
        return await switch_ops.set_switch(
            self._parts, switch, name, on=on, audit=audit, until=until
        )

    async def switches(self) -> Sequence[SwitchSetting]:
        return await switch_ops.switches(self._parts)

    async def observe(self, batch: Sequence[Timings]) -> None:
        await stage_timings.observe(self._parts.first, batch)
