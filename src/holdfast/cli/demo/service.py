"""The tasks of the service that `holdfast demo` offers at its end: quick, slow, broken, flaky.

holdfast serve holdfast.cli.demo.service:app --no-workers --processes 2
"""

from __future__ import annotations

import asyncio

from holdfast import Context, Holdfast, Permanent
from holdfast.cli.demo.world import DemoWorld

STAGE_SECONDS = 4.0  # long enough to find its worker and kill it
STEPS = 20
FLAKY_TIMES = 2  # one less than suspends a task

app = Holdfast()
world = DemoWorld.from_environment()


@app.task("tour.hello")
async def hello(ctx: Context, name: str) -> str:
    return f"hello, {name}, at attempt {ctx.attempt}"


slow = app.workflow("tour.slow", payload=int, result=str)


async def take_a_while(ctx: Context) -> None:
    for step in range(1, STEPS + 1):
        await asyncio.sleep(STAGE_SECONDS / STEPS / world.speed)
        ctx.progress(step / STEPS)


@slow.stage
async def snapshot(ctx: Context, version: int) -> str:
    await take_a_while(ctx)
    return f"{ctx.tenant}-before-{version}"


@slow.stage
async def migrate(ctx: Context, version: int) -> int:
    await take_a_while(ctx)
    return 1000 * version


@slow.stage
async def verify(ctx: Context, version: int) -> None:
    await take_a_while(ctx)
    ctx.data["checked"] = version  # kept in the checkpoint


@slow.stage
async def switch(ctx: Context, version: int) -> str:
    return f"{ctx.tenant} is at {version}, {ctx.result_of(migrate)} rows"


@app.task("tour.broken")
async def broken(ctx: Context, name: str) -> str:
    """Fails once and waits for a person; it succeeds when somebody resumes it."""
    [task] = await app.store.views.load([ctx.task_id])
    if task is not None and task.run == 1:
        raise Permanent(f"{name} has no mailbox")
    return f"hello at last, {name}"


@app.task("tour.flaky")
async def flaky(ctx: Context, name: str) -> str:
    """Fails twice in a row, as if the network were down, and then succeeds."""
    if ctx.attempt <= FLAKY_TIMES:
        raise ConnectionError(f"cannot reach {name}, at attempt {ctx.attempt}")
    return f"hello, {name}, at attempt {ctx.attempt}"
