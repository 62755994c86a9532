"""Upgrade every tenant's database from version 6 to 7: a workflow of three stages, with undo, and
its roll-out over all tenants.

A tenant's database is a small file here, so that everything can be seen with `cat`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from holdfast import Context, FailureRate, Holdfast, Permanent, PlanHandle, Retry

PLAN = "upgrade-7"
DATA = Path(os.environ.get("ROLLOUT_DATA", "rollout-data"))

app = Holdfast()


@dataclass
class Upgrade:
    version: int


upgrade = app.workflow("tenant.upgrade", payload=Upgrade, retry=Retry(max=3, backoff=("1s", "5s")))


def database(tenant: str | None) -> Path:
    return DATA / f"{tenant}.json"


def backup(ctx: Context) -> Path:
    """Of this upgrade alone: the next one has another. It is kept, for a rollback after the end."""
    return DATA / f"{ctx.tenant}.{ctx.task_id}.backup"


def write(path: Path, body: dict[str, object]) -> None:
    """Whole or not at all: a worker may be killed at any time."""
    new = path.with_suffix(".new")
    new.write_text(json.dumps(body), encoding="utf-8")
    new.replace(path)


def read(path: Path) -> dict[str, object]:
    body: dict[str, object] = json.loads(path.read_text(encoding="utf-8"))
    return body


@upgrade.stage
def snapshot(ctx: Context, order: Upgrade) -> int:
    """Run again after a crash, it must not take a half-upgraded database for the old one."""
    if not backup(ctx).exists():
        write(backup(ctx), read(database(ctx.tenant)))
    return int(str(read(backup(ctx))["version"]))


@snapshot.undo
def drop_snapshot(ctx: Context) -> None:
    backup(ctx).unlink(missing_ok=True)


@upgrade.stage
def migrate(ctx: Context, order: Upgrade) -> None:
    found = read(database(ctx.tenant))
    write(database(ctx.tenant), {**found, "version": order.version})


@migrate.undo
def restore(ctx: Context) -> None:
    if backup(ctx).exists():
        write(database(ctx.tenant), read(backup(ctx)))


@upgrade.stage
def verify(ctx: Context, order: Upgrade) -> str:
    """Some tenants have an old plug-in that does not start with the new version."""
    if read(database(ctx.tenant)).get("plugin") == "old":
        raise Permanent(f"the plug-in of {ctx.tenant} does not start with version {order.version}")
    return f"{ctx.tenant} runs version {order.version}"


async def roll_out(tenants: Sequence[str]) -> PlanHandle:
    """Five at a time, wave by wave; more than 5 % of failures in a wave halt all of it."""
    return await app.plan(
        PLAN,
        [upgrade.on(Upgrade(version=7), tenant=tenant) for tenant in tenants],
        max_concurrency=5,
        waves=("1", "5%", "25%", "100%"),
        soak="1s",
        halt_on=FailureRate(0.05),
    )
