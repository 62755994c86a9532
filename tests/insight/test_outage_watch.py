"""The alert that stages meet outages: one for each error group, until its last task goes on."""

from holdfast import Context, Holdfast
from holdfast.errors import SinkUnavailable, Unavailable
from holdfast.insight.monitor import Monitor
from holdfast.insight.timeline import timeline
from holdfast.insight.why.task import explain
from holdfast.observe.metrics import Metrics
from holdfast.observe.snapshot import Alert
from holdfast.settings import load
from holdfast.testing import Engine
from holdfast.testing.plugin import MakeEngine
from tests.support.runtime.helpers import detail_of


def two_stages(app: Holdfast, away: set[str]):  # type: ignore[no-untyped-def]
    """A workflow whose stages each need something."""
    flow = app.workflow("order", payload=str)

    @flow.stage
    async def charge(ctx: Context, name: str) -> None:
        if "billing" in away:
            raise Unavailable("billing does not answer")

    @flow.stage
    async def store(ctx: Context, name: str) -> None:
        if "database" in away:
            raise SinkUnavailable("MongoDB is out of reach")

    return flow


async def outages(monitor: Monitor) -> list[Alert]:
    found = (await monitor.snapshot()).alerts
    return [alert for alert in found if alert.code == "outage"]


async def pass_time(engine: Engine, minutes: float) -> None:
    """With beats on the way, as a worker has them."""
    for _ in range(int(minutes * 6)):
        await engine.advance("10s")


async def test_an_alert_stands_for_each_group_after_five_minutes_until_it_ends(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    away = {"billing"}
    flow = two_stages(app, away)
    engine = holdfast_engine(app)
    monitor = Monitor(app, engine.clock)
    await flow.submit("first")
    await engine.drain()
    await pass_time(engine, 4.5)
    assert await outages(monitor) == []
    await pass_time(engine, 1)
    [alert] = await outages(monitor)
    assert alert.group
    assert alert.queue == ""
    assert "stage charge has met outages for 3" in alert.message
    assert "holdfast.Unavailable" in alert.message

    away.add("database")
    away.remove("billing")
    await pass_time(engine, 5)  # charged; now the database is away
    assert [one for one in await outages(monitor) if one.group == alert.group] == []
    await pass_time(engine, 5)
    [other] = await outages(monitor)
    assert other.group != alert.group
    assert "stage store" in other.message

    said = Metrics().exposition(await monitor.snapshot()).decode()
    assert 'holdfast_stage_outages_total{type="order",stage="charge"} 0' not in said
    assert 'holdfast_outage_seconds{stage="store",error="holdfast.SinkUnavailable"}' in said
    assert 'holdfast_outage_seconds{stage="charge"' not in said

    away.clear()
    await pass_time(engine, 6)
    assert await outages(monitor) == []


async def test_one_who_looks_for_the_first_time_sees_what_waits(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    flow = two_stages(app, {"billing"})
    engine = holdfast_engine(app)
    await flow.submit("first")
    await engine.drain()
    await engine.advance("1h")
    await engine.advance("100s")  # nobody has met it for longer than a beat names it
    [alert] = await outages(Monitor(app, engine.clock))
    assert alert.value > 3600


async def test_failures_of_the_same_stage_are_no_outage(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    @app.task("fail")
    async def fail(ctx: Context) -> None:
        raise ValueError("no luck")

    engine = holdfast_engine(app)
    await fail.submit()
    await engine.drain()
    await engine.advance("5m30s")
    assert (await Monitor(app, engine.clock).snapshot()).outages == ()


async def test_why_and_the_timeline_tell_an_outage_apart(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    away = {"billing"}
    flow = two_stages(app, away)
    engine = holdfast_engine(app)
    handle = await flow.submit("first")
    await engine.drain()
    await engine.advance("10s")
    detail = await detail_of(engine, handle)

    async def said() -> str:
        return await explain(engine.store, handle.id, load(), now=engine.clock.now())

    told = await said()
    assert f"no failure of the task: {detail.task.outages} outages in a row, the first 10s" in told
    assert "attempt" not in told
    assert "billing does not answer" in told
    [turn] = timeline(detail)
    assert {(call.stage, call.attempt, call.outcome) for call in turn.calls} == {
        ("charge", 1, "outage")
    }
    await engine.advance("25h")
    told = await said()
    assert "an outage that began 1d1h ago has not ended" in told
    assert "suspended resume" in told
