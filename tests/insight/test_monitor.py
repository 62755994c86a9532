"""One look for all who ask, judged every few seconds; outages are told and survived."""

import asyncio
import logging
from pathlib import Path

import pytest

from holdfast import Context, Holdfast, HoldfastError
from holdfast.domain.audit import Audit
from holdfast.domain.task.task import By
from holdfast.errors import StoreUnavailable
from holdfast.insight import monitor as module
from holdfast.insight.monitor import CHECK_SECONDS, EXAMINE_SECONDS, JUDGE_SECONDS, Monitor
from holdfast.notify.alerts import Change
from holdfast.observe.alerts import name_of
from holdfast.ports import Check, Finding, Switch
from holdfast.stores.memory import MemoryStore
from holdfast.testing import Engine, ManualClock
from holdfast.testing.plugin import MakeEngine
from tests.support.runtime.helpers import FlakyStore, within_bounds


class KeptStore(FlakyStore):
    durable = True


class Bench:
    def __init__(self, app: Holdfast, make: MakeEngine) -> None:
        @app.task("mail", queue="mail")
        async def send(ctx: Context) -> None: ...

        self.send = send
        self.clock = ManualClock()
        self.store = KeptStore(MemoryStore(self.clock))
        self.engine: Engine = make(app, store=self.store, clock=self.clock)
        self.lag_seconds = 0.0
        self.monitor = Monitor(app, lag=lambda: self.lag_seconds)
        self.told: list[tuple[str, str, str]] = []
        self.leave = self.monitor.subscribe(self.hear)

    def hear(self, change: Change) -> None:
        self.told.append((name_of(change), change.alert.code, change.alert.queue))

    def looks(self) -> int:
        return self.store.calls.count("stats")


RAISED, CLEARED = "AlertRaised", "AlertCleared"


@pytest.fixture
def bench(holdfast_engine: MakeEngine) -> Bench:
    return Bench(Holdfast("memory://", backlog={"mail": 5, "*": 100}), holdfast_engine)


async def test_one_look_serves_all_who_ask_within_two_seconds(bench: Bench) -> None:
    many = await asyncio.gather(*(bench.monitor.snapshot() for _ in range(50)))
    assert bench.looks() == 1
    assert all(one is many[0] for one in many)
    bench.clock.advance(1.9)
    await bench.monitor.snapshot()
    assert bench.looks() == 1
    bench.clock.advance(0.2)
    await bench.monitor.snapshot()
    assert bench.looks() == 2


async def test_one_who_gives_up_takes_the_look_from_no_other(bench: Bench) -> None:
    first = asyncio.create_task(bench.monitor.snapshot())
    second = asyncio.create_task(bench.monitor.snapshot())
    await asyncio.sleep(0)
    first.cancel()
    assert (await within_bounds(second)).durable
    assert bench.looks() == 1


async def test_a_look_tells_of_switches_workers_and_the_lag(bench: Bench) -> None:
    await bench.engine.start()
    await bench.engine.clock.elapse(1)
    audit = Audit(
        task_id="queue:mail", command="x", by=By(actor="ada"), at=0.0, before="", after=""
    )
    await bench.engine.store.admin.set_switch(Switch.INTAKE, "mail", on=False, audit=audit)
    bench.lag_seconds = 2.5
    seen = await bench.monitor.snapshot()
    assert seen.switched_names(Switch.INTAKE) == {"mail"}
    assert len(seen.live) == 1
    assert seen.event_lag_seconds == 2.5


async def test_a_failed_look_is_told_to_all_who_waited_and_not_kept(bench: Bench) -> None:
    bench.store.down = {"stats"}
    asked = [bench.monitor.snapshot() for _ in range(3)]
    failed = await asyncio.gather(*asked, return_exceptions=True)
    assert [type(one) for one in failed] == [StoreUnavailable] * 3
    assert bench.looks() == 1
    bench.store.down = set()
    assert (await bench.monitor.snapshot()).durable


async def test_an_alert_is_raised_and_cleared_told_and_logged_once_each(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "holdfast.monitor")
    running = asyncio.create_task(bench.monitor.run())
    handles = [await bench.send.submit() for _ in range(6)]
    await bench.clock.elapse(3 * JUDGE_SECONDS)
    assert sorted(bench.told) == [(RAISED, "backlog", "mail"), (RAISED, "no-workers", "mail")]
    assert {alert.code for alert in bench.monitor.alerts} == {"backlog", "no-workers"}
    bench.told.clear()
    for handle in handles:
        await handle.cancel()
    await bench.clock.elapse(3 * JUDGE_SECONDS)
    assert sorted(bench.told) == [(CLEARED, "backlog", "mail"), (CLEARED, "no-workers", "mail")]
    levels = [record.levelno for record in caplog.records if record.name == "holdfast.monitor"]
    assert sorted(levels) == [logging.INFO] * 2 + [logging.WARNING] * 2
    running.cancel()


async def test_a_look_carries_the_alerts_that_follow_from_it(bench: Bench) -> None:
    for _ in range(6):
        await bench.send.submit()
    seen = await bench.monitor.snapshot()
    assert {alert.code for alert in seen.alerts} == {"backlog", "no-workers"}
    assert bench.told == [], "but only the loop tells"


async def test_an_outage_is_an_alert_and_its_end_clears_it(bench: Bench) -> None:
    running = asyncio.create_task(bench.monitor.run())
    await bench.clock.elapse(JUDGE_SECONDS)
    bench.store.down = {"*"}
    await bench.clock.elapse(3 * JUDGE_SECONDS)
    assert bench.told == [(RAISED, "store-away", "")]
    bench.store.down = set()
    await bench.clock.elapse(2 * JUDGE_SECONDS)
    assert bench.told == [(RAISED, "store-away", ""), (CLEARED, "store-away", "")]
    assert not running.done()
    running.cancel()


async def test_a_store_whose_file_was_removed_is_away(tmp_path: Path) -> None:
    path, clock = tmp_path / "holdfast.db", ManualClock()
    async with Holdfast(f"sqlite:///{path}") as app:
        monitor = Monitor(app, clock)
        await monitor.tick()
        assert not monitor.alerts
        path.unlink()
        clock.advance(JUDGE_SECONDS)
        await monitor.tick()
        assert [one.code for one in monitor.alerts] == ["store-away"]


async def test_a_listener_that_fails_keeps_nothing_from_the_others(bench: Bench) -> None:
    def fail(_: Change) -> None:
        raise RuntimeError("a defect")

    bench.leave()
    bench.monitor.subscribe(fail)
    bench.monitor.subscribe(bench.hear)
    bench.lag_seconds = 9.0
    await bench.monitor.tick()
    assert bench.told == [(RAISED, "event-lag", "")]


async def test_one_who_has_left_hears_no_more(bench: Bench) -> None:
    bench.leave()
    bench.leave()
    bench.lag_seconds = 9.0
    await bench.monitor.tick()
    assert bench.told == []


def test_the_number_of_listeners_is_bounded(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SUBSCRIBERS_LIMIT", 1)
    with pytest.raises(HoldfastError):
        bench.monitor.subscribe(bench.hear)


async def test_the_store_is_examined_now_and_then_and_mended_never(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []

    async def doctor(*, fix: bool, limit: int) -> list[Finding]:
        asked.append(fix)
        return [Finding(invariant="I2", task_id="t", message="a lock alone", mended=False)]

    monkeypatch.setattr(bench.store.admin, "doctor", doctor, raising=False)
    assert (await bench.monitor.snapshot()).findings is None
    running = asyncio.create_task(bench.monitor.run())
    await bench.clock.elapse(EXAMINE_SECONDS * 1.5 + JUDGE_SECONDS)
    assert asked == [False]
    assert (await bench.monitor.snapshot()).findings == {"I2": 1}
    assert bench.told == [(RAISED, "lone-lock", "")]
    running.cancel()


async def test_a_long_examination_is_followed_by_a_longer_rest(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float] = []

    async def doctor(*, fix: bool, limit: int) -> list[Finding]:
        asked.append(bench.clock.steady())
        bench.clock.advance(60)
        return []

    monkeypatch.setattr(bench.store.admin, "doctor", doctor, raising=False)
    running = asyncio.create_task(bench.monitor.run())
    await bench.clock.elapse(7200)
    running.cancel()
    first, second, *_ = asked
    assert second - first >= 60 / 0.02


async def test_an_examination_that_fails_ends_nothing(bench: Bench) -> None:
    running = asyncio.create_task(bench.monitor.run())
    bench.store.down = {"doctor"}
    await bench.clock.elapse(3 * EXAMINE_SECONDS)
    assert bench.store.calls.count("doctor") >= 2
    bench.store.down = set()
    await bench.clock.elapse(2 * EXAMINE_SECONDS)
    assert (await bench.monitor.snapshot()).findings == {}
    running.cancel()


async def test_settings_that_change_under_the_service_raise_and_clear_not_durable(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = True

    async def checks() -> list[Check]:
        bench.store.durable = found
        return []

    monkeypatch.setattr(bench.store.admin, "checks", checks, raising=False)
    running = asyncio.create_task(bench.monitor.run())
    await bench.clock.elapse(CHECK_SECONDS + JUDGE_SECONDS)
    assert bench.told == []
    found = False
    await bench.clock.elapse(CHECK_SECONDS + JUDGE_SECONDS)
    assert bench.told == [(RAISED, "not-durable", "")]
    found = True
    await bench.clock.elapse(CHECK_SECONDS + JUDGE_SECONDS)
    assert bench.told == [(RAISED, "not-durable", ""), (CLEARED, "not-durable", "")]
    running.cancel()


async def test_settings_that_cannot_be_looked_at_are_looked_at_again(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    running = asyncio.create_task(bench.monitor.run())
    bench.store.down = {"checks"}
    await bench.clock.elapse(2 * CHECK_SECONDS + JUDGE_SECONDS)
    assert bench.store.calls.count("checks") == 2
    assert "could not check the settings of the store" in caplog.text
    assert bench.told == []
    running.cancel()
