"""Hooks are told of alerts: each change once, however many services judge."""

from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast
from holdfast.domain.task.task import By
from holdfast.engine.operations.switches import turn_queue
from holdfast.insight.monitor import Monitor
from holdfast.notify.alerts import DeliverySeries
from holdfast.ports import Switch
from holdfast.stores.memory import MemoryStore
from holdfast.testing import Engine, ManualClock
from holdfast.testing.plugin import MakeEngine
from tests.support.notified_app import (
    HOOK_SECRET,
    all_told,
    deliveries,
    hook,
    payload_of,
    submit,
    telling_app,
    with_paths,
)
from tests.support.runtime.helpers import FlakyStore
from tests.support.sinks.receiver import Receiver


def on_flaky_store(app: Holdfast, make: MakeEngine) -> tuple[Engine, FlakyStore]:
    clock = ManualClock()
    store = FlakyStore(MemoryStore(clock))
    return make(app, store=store, clock=clock), store


async def test_an_alert_is_told_once_however_many_services_judge(
    receiver: Receiver, tmp_path: Path, holdfast_engine: MakeEngine
) -> None:
    ops = hook(receiver, "AlertRaised", "AlertCleared")
    app = telling_app(tmp_path, hooks={"ops": ops}, backlog={"*": 3})
    engine = holdfast_engine(app)
    monitors = [Monitor(app), Monitor(app)]
    for _ in range(5):
        await submit(app, "mail.send")
    for monitor in monitors:
        await monitor.tick()
    await engine.drain()
    said = all_told(receiver, engine, HOOK_SECRET)
    backlog = [one for one in said if one["data"]["code"] == "backlog"]
    assert [one["type"] for one in backlog] == ["AlertRaised"]
    assert backlog[0]["data"]["queue"] == "default"
    engine.clock.advance(5)
    for monitor in monitors:
        await monitor.tick()
    await engine.drain()
    said = all_told(receiver, engine, HOOK_SECRET)
    cleared = [one["data"]["code"] for one in said if one["type"] == "AlertCleared"]
    assert cleared.count("backlog") == 1


async def test_the_last_word_of_a_flapping_alert_is_the_right_one(
    receiver: Receiver, tmp_path: Path, holdfast_engine: MakeEngine
) -> None:
    ops = hook(receiver, "AlertRaised", "AlertCleared")
    only = hook(receiver, "AlertRaised", path="/raised")
    app = telling_app(tmp_path, hooks={"ops": ops, "only": only}, backlog={"*": 3})
    engine = holdfast_engine(app)
    monitors, by = [Monitor(app), Monitor(app)], By(actor="test")

    async def judge(*, claiming: bool) -> None:
        now = engine.clock.now()
        await turn_queue(app.store, Switch.CLAIMING, "default", on=claiming, by=by, now=now)
        if claiming:
            await engine.drain()
        else:
            for _ in range(5):
                await submit(app, "mail.send")
        engine.clock.advance(3)
        for monitor in monitors:
            await monitor.tick()

    for _ in range(3):
        await judge(claiming=False)
        await judge(claiming=True)
    await engine.drain()
    said = with_paths(receiver, engine)
    backlog = [(path, one["type"]) for path, one in said if _is_backlog(one)]
    assert [kind for path, kind in backlog if path == "/"] == ["AlertRaised", "AlertCleared"] * 3
    assert [kind for path, kind in backlog if path == "/raised"] == ["AlertRaised"] * 3


def _is_backlog(one: dict[str, Any]) -> bool:
    """Of the work: deliveries that wait are a backlog, too."""
    return (one["data"]["code"], one["data"]["queue"]) == ("backlog", "default")


async def test_a_service_that_starts_again_tells_nothing_twice(
    receiver: Receiver, tmp_path: Path, holdfast_engine: MakeEngine
) -> None:
    app = telling_app(tmp_path, hooks={"ops": hook(receiver, "AlertRaised")})
    engine = holdfast_engine(app)
    for _ in range(3):
        await Monitor(app).tick()
        await engine.drain()
        engine.clock.advance(60)
    said = [one["data"]["code"] for one in all_told(receiver, engine, HOOK_SECRET)]
    assert said.count("not-durable") == 1


@pytest.mark.parametrize("away", ["1m", "20h"])
async def test_an_alert_that_ends_while_no_service_runs_is_told_as_ended(
    receiver: Receiver, tmp_path: Path, holdfast_engine: MakeEngine, away: str
) -> None:
    ops = hook(receiver, "AlertRaised", "AlertCleared")
    app = telling_app(tmp_path, hooks={"ops": ops}, backlog={"*": 3})
    engine = holdfast_engine(app)
    for _ in range(5):
        await submit(app, "mail.send")
    await Monitor(app).tick()
    await engine.drain()
    said = all_told(receiver, engine, HOOK_SECRET)
    receiver.seen.clear()
    engine.clock.advance(away)
    for monitor in (Monitor(app), Monitor(app)):
        await monitor.tick()
        await monitor.tick()
    await engine.drain()
    said += all_told(receiver, engine, HOOK_SECRET)
    backlog = [one for one in said if _is_backlog(one)]
    assert [one["type"] for one in backlog] == ["AlertRaised", "AlertCleared"]
    assert backlog[0]["data"]["since"] == backlog[1]["data"]["since"]


async def test_what_was_told_is_asked_for_again_if_the_store_was_away(
    receiver: Receiver, tmp_path: Path, holdfast_engine: MakeEngine
) -> None:
    ops = hook(receiver, "AlertCleared")
    app = telling_app(tmp_path, hooks={"ops": ops}, backlog={"*": 3})
    engine, store = on_flaky_store(app, holdfast_engine)
    for _ in range(5):
        await submit(app, "mail.send")
    await Monitor(app).tick()
    await engine.drain()
    monitor = Monitor(app)
    store.down.add("load")
    await monitor.tick()
    store.down.clear()
    engine.clock.advance(5)
    await monitor.tick()
    await engine.drain()
    said = all_told(receiver, engine, HOOK_SECRET)
    assert [one["type"] for one in said if _is_backlog(one)] == ["AlertCleared"]


async def test_one_who_starts_clears_where_the_others_would(
    receiver: Receiver, tmp_path: Path, holdfast_engine: MakeEngine
) -> None:
    ops = hook(receiver, "AlertRaised", "AlertCleared")
    app = telling_app(tmp_path, hooks={"ops": ops}, backlog={"*": 10})
    engine = holdfast_engine(app)
    handles = [await submit(app, "mail.send") for _ in range(11)]
    first = Monitor(app)
    await first.tick()
    await handles[0].cancel()
    await handles[1].cancel()
    engine.clock.advance(5)
    for monitor in (first, Monitor(app)):
        await monitor.tick()
        [standing] = [one for one in monitor.alerts if one.code == "backlog"]
        assert (standing.value, standing.since) == (9, engine.clock.now() - 5)
        assert standing.message == "9 tasks wait in queue default, threshold 10"
    [*_, last] = await deliveries(app)
    assert b"AlertCleared" not in (await payload_of(app, last.id))
    for handle in handles[2:5]:
        await handle.cancel()
    engine.clock.advance(5)
    await Monitor(app).tick()
    [*_, last] = await deliveries(app)
    assert b"AlertCleared" in (await payload_of(app, last.id))


async def test_what_one_process_alone_knows_is_not_ended_by_another(
    receiver: Receiver, tmp_path: Path, holdfast_engine: MakeEngine
) -> None:
    ops = hook(receiver, "AlertRaised", "AlertCleared")
    app = telling_app(tmp_path, hooks={"ops": ops})
    engine = holdfast_engine(app)
    late = Monitor(app, lag=lambda: 60.0)
    late._findings = {"I2": 1}
    await late.tick()
    engine.clock.advance(60)
    other = Monitor(app)
    await other.tick()
    await engine.drain()
    said = [(one["type"], one["data"]["code"]) for one in all_told(receiver, engine, HOOK_SECRET)]
    assert {("AlertRaised", "event-lag"), ("AlertRaised", "lone-lock")} < set(said)
    assert [code for kind, code in said if kind == "AlertCleared"] == []
    await other.examine()
    engine.clock.advance(5)
    await other.tick()
    await engine.drain()
    said = [(one["type"], one["data"]["code"]) for one in all_told(receiver, engine, HOOK_SECRET)]
    assert ("AlertCleared", "lone-lock") in said, "it has looked by now"
    assert ("AlertCleared", "event-lag") not in said


async def test_a_told_alert_that_cannot_be_read_stops_no_other(
    receiver: Receiver,
    tmp_path: Path,
    holdfast_engine: MakeEngine,
    caplog: pytest.LogCaptureFixture,
) -> None:
    app = telling_app(tmp_path, hooks={"ops": hook(receiver, "AlertRaised")}, backlog={"*": 3})
    engine = holdfast_engine(app)
    line = DeliverySeries("ops", ("suspended", ""), int(engine.clock.now() // 86_400))
    strange = {"code": "suspended", "severity": "critical"}
    await app.notifier.notify("hook:ops", "AlertRaised", 0.0, strange, task_id=line.id(1))
    for _ in range(5):
        await submit(app, "mail.send")
    await Monitor(app).tick()
    await engine.drain()
    said = [one["data"]["code"] for one in all_told(receiver, engine, HOOK_SECRET)]
    assert "backlog" in said
    assert "cannot be read" in caplog.text


async def test_midnight_is_no_news(
    receiver: Receiver, tmp_path: Path, holdfast_engine: MakeEngine
) -> None:
    app = telling_app(tmp_path, hooks={"ops": hook(receiver, "AlertRaised")})
    engine = holdfast_engine(app)
    engine.clock.advance(86_400 - engine.clock.now() % 86_400 - 1)
    await Monitor(app).tick()
    engine.clock.advance(3)
    await Monitor(app).tick()
    await engine.drain()
    said = [one["data"]["code"] for one in all_told(receiver, engine, HOOK_SECRET)]
    assert said.count("not-durable") == 1


async def test_an_alert_is_told_however_many_deliveries_wait(
    receiver: Receiver, tmp_path: Path, holdfast_engine: MakeEngine
) -> None:
    app = telling_app(tmp_path, hooks={"ops": hook(receiver, "AlertRaised")}, queue_limit=1)
    engine = holdfast_engine(app)
    for _ in range(3):
        await (await submit(app, "mail.send", callback=receiver.url("/callback"))).cancel()
    await Monitor(app).tick()
    await engine.drain()
    assert [seen.path for seen in receiver.seen].count("/") >= 1


@pytest.mark.parametrize("looks", [0, 1])
async def test_that_the_store_was_away_is_told_when_it_is_back(
    receiver: Receiver, tmp_path: Path, holdfast_engine: MakeEngine, looks: int
) -> None:
    app = telling_app(tmp_path, hooks={"ops": hook(receiver, "AlertRaised", "AlertCleared")})
    engine, store = on_flaky_store(app, holdfast_engine)
    monitor = Monitor(app)
    for _ in range(looks):
        await monitor.tick()
        engine.clock.advance(5)
    store.down.add("*")
    await monitor.tick()
    store.down.clear()
    engine.clock.advance(5)
    await monitor.tick()
    await engine.drain()
    said = all_told(receiver, engine, HOOK_SECRET)
    away = [one["type"] for one in said if one["data"]["code"] == "store-away"]
    assert sorted(away) == ["AlertCleared", "AlertRaised"]
