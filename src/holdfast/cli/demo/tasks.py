"""The tasks of `holdfast demo`, written as you would write your own.

Each tenant is upgraded in five stages. After each stage, its result and a checkpoint are saved in
one step. When a worker dies, the next one continues with the stage after the checkpoint.
"""

from __future__ import annotations

from dataclasses import dataclass

from holdfast import Context, Holdfast, Permanent, Retry
from holdfast.cli.demo.world import DemoWorld

# A real stage would call databases and services here. It passes ctx.key, which is the same for
# every attempt at one effect, so that the other side recognises a repeat.
world = DemoWorld.from_environment()

app = Holdfast()  # HOLDFAST_STORE says where; HOLDFAST_LEASE, HOLDFAST_SLOTS and so on say how


@dataclass(frozen=True)
class Upgrade:
    version: int


@dataclass(frozen=True)
class UpgradeReport:
    tenant: str
    version: int
    rows: int
    snapshot: str


upgrade = app.workflow("tenant.upgrade", payload=Upgrade, result=UpgradeReport)


@upgrade.stage
async def snapshot(ctx: Context, order: Upgrade) -> str:
    await world.call("copy the tenant's data", ctx.key, seconds=0.7)
    return f"{ctx.tenant}-before-v{order.version}"


@snapshot.undo
async def drop_snapshot(ctx: Context) -> None:
    await world.call("delete the copy", ctx.key, seconds=0.2)


@upgrade.stage
async def drain(ctx: Context, order: Upgrade) -> None:
    await world.call(f"turn users away until v{order.version}", ctx.key, seconds=0.7)
    ctx.data["drained"] = True  # kept in the checkpoint, for the stages to come


@drain.undo
async def let_in_again(ctx: Context) -> None:
    await world.call("let users in again", ctx.key, seconds=0.2)


@upgrade.stage
async def migrate(ctx: Context, order: Upgrade) -> int:
    if world.is_true(f"orphaned rows in {ctx.tenant}"):
        raise Permanent("3 rows have no owner")  # a retry is no use: a person must look
    for part in range(1, 6):
        await world.call(f"rows {part} to v{order.version}", f"{ctx.key}/{part}", seconds=0.2)
        ctx.progress(part / 5, f"{part * 1000} rows")  # seen live
    return 5000


@migrate.undo
async def migrate_back(ctx: Context) -> None:
    await world.call("rows back", ctx.key, seconds=0.5)


@upgrade.stage(retry=Retry(max=500, backoff=("0.5s", "1s")))
async def verify(ctx: Context, order: Upgrade) -> None:
    await world.call(f"compare with v{order.version}", ctx.key, seconds=0.5)
    if world.is_true("billing is down"):
        raise ConnectionError("billing does not answer")  # any other exception: tried again
    if world.is_true(f"bad checksum in {ctx.tenant}"):
        raise Permanent("the checksums differ")


@upgrade.stage
async def switch(ctx: Context, order: Upgrade) -> UpgradeReport:
    await world.call(f"users to v{order.version}", ctx.key, seconds=0.4)
    return UpgradeReport(
        tenant=ctx.tenant or "",
        version=order.version,
        rows=ctx.result_of(migrate),
        snapshot=ctx.result_of(snapshot),
    )
