"""The tasks that run under chaos: short stages, each with an effect that the ledger records."""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from holdfast import Context, Holdfast, Permanent, Retry, Status
from holdfast.engine.declare import Submittable
from holdfast.ports import Store
from verify.chaos.ledger import Ledger, LineKind

QUICKLY = Retry(max=5, backoff=(0.05, 0.2))
EFFECT_SECONDS = (0.005, 0.06)
CRASH_LIMIT = 3  # as by default: a task that kills hit too often is resumed by the operator


class Fate(StrEnum):
    FINE = "fine"
    FLAKY = "flaky"  # its third stage fails twice, then succeeds
    DOOMED = "doomed"  # it suspends, and the operator rolls it back
    REDO = "redo"  # it is rolled back, and then retried from scratch with success


ENDS = {
    Fate.FINE: Status.COMPLETED,
    Fate.FLAKY: Status.COMPLETED,
    Fate.DOOMED: Status.ROLLED_BACK,
    Fate.REDO: Status.COMPLETED,
}


@dataclass(frozen=True, slots=True)
class FatedWork:
    number: int
    fate: Fate


@dataclass(frozen=True, slots=True, kw_only=True)
class ChaosOrder:
    """A task to submit, and how it has to end."""

    key: str
    tenant: str | None
    one_stage: bool
    work: FatedWork


def orders(count: int, *, tenants: int, seed: int) -> list[ChaosOrder]:
    chance = random.Random(seed)
    made = []
    for number in range(count):
        one_stage = chance.random() < 0.25
        fates = [Fate.FINE, Fate.FLAKY] if one_stage else list(Fate)
        weights = [80, 20] if one_stage else [70, 15, 8, 7]
        made.append(
            ChaosOrder(
                key=f"order-{number}",
                tenant=None if chance.random() < 0.15 else f"t-{chance.randrange(tenants)}",
                one_stage=one_stage,
                work=FatedWork(number, chance.choices(fates, weights)[0]),
            )
        )
    return made


@dataclass(frozen=True, slots=True)
class TaskWork:
    app: Holdfast
    upgrade: Submittable[FatedWork, Any]
    notice: Submittable[FatedWork, Any]

    async def submit(self, order: ChaosOrder) -> str:
        kind = self.notice if order.one_stage else self.upgrade
        return (await kind.submit(order.work, tenant=order.tenant, key=order.key)).id


def declare(store: Store, ledger: Ledger, *, lease_seconds: float) -> TaskWork:
    app = Holdfast(store, lease=lease_seconds, crash_limit=CRASH_LIMIT, drain=5.0)
    upgrade = app.workflow("chaos.upgrade", payload=FatedWork, retry=QUICKLY)

    @upgrade.stage
    async def snapshot(ctx: Context, work: FatedWork) -> int:
        return await effect(ctx, work.number)

    @snapshot.undo
    async def drop_snapshot(ctx: Context) -> None:
        await effect(ctx, 0)

    @upgrade.stage
    def drain(ctx: Context, work: FatedWork) -> int:
        """A plain function: it runs in a thread, which nobody can stop."""
        ledger.note(LineKind.BEGIN, ctx)
        time.sleep(random.uniform(*EFFECT_SECONDS))
        ledger.note(LineKind.END, ctx)
        return work.number

    @upgrade.stage
    async def migrate(ctx: Context, work: FatedWork) -> int:
        ctx.data["migrated"] = ctx.result_of(snapshot)
        if work.fate is Fate.FLAKY and ctx.attempt <= 2:
            raise ConnectionError("the database is away")
        return await effect(ctx, work.number)

    @migrate.undo
    async def migrate_back(ctx: Context) -> None:
        await effect(ctx, 0)

    @upgrade.stage
    async def switch(ctx: Context, work: FatedWork) -> int:
        if work.fate is Fate.DOOMED or (work.fate is Fate.REDO and epoch_of(ctx) == 1):
            raise Permanent("this can only be rolled back")
        if ctx.data["migrated"] != work.number:
            raise Permanent(f"the checkpoint holds {ctx.data['migrated']}, not {work.number}")
        return await effect(ctx, work.number)

    @app.task("chaos.notice", retry=QUICKLY)
    async def notice(ctx: Context, work: FatedWork) -> int:
        if work.fate is Fate.FLAKY and ctx.attempt <= 2:
            raise ConnectionError("the mail server is away")
        return await effect(ctx, work.number)

    async def effect(ctx: Context, value: int) -> int:
        await take_effect(ledger, ctx, EFFECT_SECONDS)
        return value

    return TaskWork(app, upgrade, notice)


async def take_effect(ledger: Ledger, ctx: Context, seconds: tuple[float, float]) -> None:
    """Let an effect take a while, and note in the ledger how it begins and ends."""
    ledger.note(LineKind.BEGIN, ctx)
    try:
        await asyncio.sleep(random.uniform(*seconds))
    except asyncio.CancelledError:
        ledger.note(LineKind.STOPPED, ctx)
        raise
    ledger.note(LineKind.END, ctx)


def epoch_of(ctx: Context) -> int:
    return int(ctx.key.split("/")[1])
