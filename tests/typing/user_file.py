"""A user's file, as mypy --strict sees it: `test_typing.py` reads what it reveals. It is not run.

Behind an arrow stands what must be revealed there; a line with a cross must be an error.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import reveal_type

import msgspec
from pydantic import BaseModel

from holdfast import Command, Context, FailureRate, Holdfast, Retry
from holdfast.testing import Engine, context

app = Holdfast()


@dataclass
class Upgrade:
    version: int


class Report(BaseModel):
    rows: int


class Snapshot(msgspec.Struct):
    path: str


@app.task("mail.send", retry=Retry(max=5))
async def send(ctx: Context, to: str) -> str:
    return to


@app.task("count")
def count(ctx: Context, order: Upgrade) -> int:
    return order.version


@app.task("tidy")
async def tidy(ctx: Context) -> Report:
    return Report(rows=1)


@app.task
def sweep(ctx: Context) -> None: ...


@app.task
async def bare(ctx: Context, to: str) -> int:
    return len(to)


@app.task(retry=Retry(max=2), keep="1d")
def with_options(ctx: Context, order: Upgrade) -> Report:
    return Report(rows=order.version)


app.task(tries=2)  # ✗


upgrade = app.workflow("tenant.upgrade", payload=Upgrade, result=Report)
loose = app.workflow("loose")


@upgrade.stage
async def snapshot(ctx: Context, order: Upgrade) -> Snapshot:
    return Snapshot(path="/")


@snapshot.undo
async def drop(ctx: Context, order: Upgrade) -> None: ...


@upgrade.stage
async def announce(ctx: Context) -> str:
    reveal_type(ctx.result_of(snapshot))  # → Snapshot
    return "soon"


@upgrade.stage(timeout="1m")
def warm(ctx: Context) -> int:
    reveal_type(ctx.result_of(announce))  # → str
    return 1


@upgrade.stage(timeout="10m", retry=Retry(max=3, backoff=("1m", "5m")))
def migrate(ctx: Context, order: Upgrade) -> Report:
    reveal_type(ctx.result_of(snapshot))  # → Snapshot
    reveal_type(ctx.find_result(snapshot))  # → Snapshot | None
    reveal_type(ctx.result_of(migrate))  # → Report
    reveal_type(ctx.result_of(warm))  # → int
    print(ctx.result_of(snapshot), str(ctx.find_result(snapshot)))
    seen: dict[str, object] = {"snapshot": ctx.result_of(snapshot)}
    seen["own"] = ctx.find_result(migrate)
    return Report(rows=ctx.fence)


async def use() -> None:
    sent = await send.submit("ann", tenant="t-001", key="k")
    reveal_type(sent)  # → Handle[str]
    reveal_type(await sent.result(timeout=30))  # → str
    counted = await count.submit(Upgrade(7))
    reveal_type(await counted.result())  # → int
    tidied = await tidy.submit()
    reveal_type(await tidied.result())  # → Report
    reveal_type(await (await bare.submit("ann")).result())  # → int
    reveal_type(await (await with_options.submit(Upgrade(7))).result())  # → Report
    await bare.submit(7)  # ✗
    await with_options.submit("seven")  # ✗
    swept = await sweep.submit()
    reveal_type(swept)  # → Handle[None]
    upgraded = await upgrade.submit(Upgrade(version=7), tenant="t-001")
    reveal_type(await upgraded.result("1m"))  # → Report
    reveal_type((await upgraded.info()).status)  # → Status
    reveal_type(await upgraded.rollback())  # → Status
    reveal_type(await (await loose.submit({"any": "thing"})).result())  # → Any
    reveal_type(await send.submit_many(["ann", "bob"], keys=["a", "b"]))  # → list[Handle[str]]
    reveal_type(await upgrade.submit_many([Upgrade(7)], tenant="t"))  # → list[Handle[Report]]

    await send.submit(7)  # ✗
    await send.submit()  # ✗
    await count.submit("seven")  # ✗
    await tidy.submit("something")  # ✗
    await upgrade.submit(Report(rows=1))  # ✗
    await send.submit_many([7])  # ✗
    await send.submit_many(["ann"], key="a")  # ✗
    await upgrade.submit(Upgrade(7), tennant="t-001")  # ✗
    app.workflow("odd", payload=Upgrade, hald=True)  # ✗


async def plan() -> None:
    tasks = [upgrade.on(Upgrade(7), tenant=tenant) for tenant in ("a", "b")]
    rollout = await app.plan("upgrade-7", tasks, waves=("1", "100%"), halt_on=FailureRate(0.05))
    reveal_type(rollout)  # → PlanHandle
    reveal_type((await rollout.wait("1h")).status)  # → PlanStatus
    reveal_type((await app.plan.preview("p", [tidy.on()])).busy)  # → tuple[str, ...]
    upgrade.on("seven", tenant="a")  # ✗
    upgrade.on()  # ✗
    await app.plan("p", ["a"])  # ✗
    await app.plan("p", tasks, max_concurrency="5")  # ✗
    await app.plan("p", tasks, wave=("1", "100%"))  # ✗


async def schedule() -> None:
    nightly = await app.schedule.cron("0 3 * * *", send, "ann", tz="Asia/Shanghai", name="n")
    reveal_type(nightly)  # → TriggerHandle[str]
    reveal_type(await (await nightly.fire()).result())  # → str
    reveal_type(await nightly.next(5))  # → list[datetime]
    reveal_type(await nightly.pause())  # → TriggerStatus
    reveal_type(await app.schedule.at(1.0, tidy))  # → TriggerHandle[Report]
    daily = await app.schedule.every("1d", upgrade, Upgrade(7), jitter="1m")
    reveal_type(daily)  # → TriggerHandle[Report]
    reveal_type((await app.schedule.get("n")).id)  # → str
    await app.schedule.at(1.0, send, 7)  # ✗
    await app.schedule.every("15m", send)  # ✗
    await app.schedule.cron("0 3 * * *", tidy, "something")  # ✗
    await app.schedule.every("15m", send, "ann", misfire="never")  # ✗
    await app.schedule.every("15m", send, "ann", jiter="1m")  # ✗


@send.cron("0 3 * * *")
def whom(at: datetime) -> str:
    return at.isoformat()


@upgrade.every("1d", overlap="skip")
def newest() -> Upgrade:
    return Upgrade(7)


reveal_type(whom)  # → def (datetime) -> str
reveal_type(sweep.cron("0 3 * * *"))  # → str
reveal_type(send.every("15m", payload="ann"))  # → str
send.every("15m", payload=7)  # ✗


@send.cron("0 3 * * *")  # ✗
def wrong(at: datetime) -> int:
    return 7


async def call_plainly() -> None:
    reveal_type(await send(context(), "ann"))  # → str
    reveal_type(count(context(), Upgrade(7)))  # → int
    reveal_type(await tidy(context()))  # → Report
    reveal_type(await snapshot(context(), Upgrade(7)))  # → Snapshot
    reveal_type(migrate(context(results={snapshot: Snapshot("/")}), Upgrade(7)))  # → Report
    await send(context(), 7)  # ✗
    count(context())  # ✗


def block() -> None:
    with app.blocking.running() as face:
        reveal_type(face.submit(send, "ann").result(30))  # → str
        reveal_type(face.submit(upgrade, Upgrade(7)).result())  # → Report
        reveal_type(face.submit(tidy).result())  # → Report
        reveal_type(face.submit_many(send, ["ann"]))  # → list[BlockingHandle[str]]
        reveal_type(face.handle("x").envelope().status)  # → str
        reveal_type(face.control.pause("x", reason="lunch").status)  # → Status
        reveal_type(face.control.acting_as("ann").can("x", Command.PAUSE))  # → bool
        reveal_type(face.query.query_task_status_by_tenant("t").waiting)  # → int
        face.control.pause("x", raeson="lunch")  # ✗
        face.query.has_checkpoint(7)  # ✗
        reveal_type(face.schedule.at(1.0, send, "ann").fire().result())  # → str
        reveal_type(face.schedule.get("n").info().id)  # → str
        reveal_type(face.plan("p", [send.on("ann")]).info().progress)  # → float
        face.schedule.every("15m", send, 7)  # ✗
        face.submit(send, 7)  # ✗
        face.submit(send)  # ✗


async def tell_wrong(ctx: Context, order: Report) -> None: ...


upgrade.stage(tell_wrong)  # ✗


async def test_with(engine: Engine) -> None:
    reveal_type(await engine.drain())  # → None
    engine.crash_at("migrate", when="during")  # ✗
