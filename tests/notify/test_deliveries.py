"""Deliveries beside the work: when receivers fail, and what that does to the work."""

import asyncio
import threading
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from holdfast import Context, Status
from holdfast.domain import notification
from holdfast.notify import deliveries as module
from holdfast.notify import name_lookup
from holdfast.notify.receivers import FAILURES_MAX
from holdfast.runtime.worker.claimer import DELIVERIES
from holdfast.testing.plugin import MakeEngine
from tests.support.notified_app import deliveries, hook, submit, telling_app
from tests.support.runtime.helpers import Gate, within_bounds
from tests.support.sinks.receiver import Caller, Receiver, answer, hang


async def test_a_receiver_that_hangs_takes_no_slot_from_the_work(
    tmp_path: Path, holdfast_engine: MakeEngine
) -> None:
    async with Receiver(hang) as receiver:
        app = telling_app(tmp_path, webhook_timeout=30.0)
        engine = holdfast_engine(app, slots=1)
        await engine.start()
        for _ in range(3):
            handle = await submit(app, "mail.send", callback=receiver.url())
            await within_bounds(handle.result())
        await receiver.got(3)  # all of them are under way
        handle = await submit(app, "mail.send")
        assert await within_bounds(handle.result()) == "sent to you"


async def test_long_work_keeps_no_delivery_waiting(
    receiver: Receiver, tmp_path: Path, holdfast_engine: MakeEngine
) -> None:
    app = telling_app(tmp_path)
    gate = Gate()
    long = gate.declare(app, "long")

    engine = holdfast_engine(app, slots=1)
    await long.submit()
    await engine.start()
    await gate.wait_until_reached()
    handle = await submit(app, "mail.send", callback=receiver.url())
    await handle.cancel()
    await engine.clock.elapse("2s")
    await receiver.got(1)
    gate.open()
    await engine.drain()


async def test_deliveries_are_bounded(
    tmp_path: Path, holdfast_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One claim may go beyond the bound, no second one does."""
    monkeypatch.setattr(module, "OF_HOOK", 10 * DELIVERIES)
    async with Receiver(hang) as receiver:
        app = telling_app(tmp_path, hooks={"ops": hook(receiver, "TaskCompleted")})
        engine = holdfast_engine(app, slots=4)
        handles = [await submit(app, "mail.send") for _ in range(2 * DELIVERIES)]
        worker = await engine.start()
        await asyncio.gather(*(within_bounds(handle.result()) for handle in handles))
        await receiver.got(DELIVERIES)
        assert DELIVERIES <= worker.running < DELIVERIES + 4
        assert len(receiver.seen) < DELIVERIES + 4


async def test_callbacks_that_hang_leave_room_for_hooks(
    receiver: Receiver, tmp_path: Path, holdfast_engine: MakeEngine
) -> None:
    async with Receiver(hang) as tarpit:
        app = telling_app(tmp_path, hooks={"ops": hook(receiver, "TaskFailed")})
        engine = holdfast_engine(app, slots=4)
        for _ in range(2 * DELIVERIES):
            await (await submit(app, "mail.send", callback=tarpit.url())).cancel()
        await submit(app, "mail.lost")
        await engine.start()
        await tarpit.got(module.CALLBACKS // 2)
        await receiver.got(1)
        found = await deliveries(app)
        assert {one.failures for one in found} == {0}, "nobody has had enough of the tarpit"
        assert len(tarpit.seen) == module.CALLBACKS // 2


async def test_the_tarpits_of_one_tenant_leave_room_for_the_callbacks_of_others(
    receiver: Receiver, tmp_path: Path, holdfast_engine: MakeEngine
) -> None:
    async with AsyncExitStack() as open_ones:
        tarpits = [await open_ones.enter_async_context(Receiver(hang)) for _ in range(8)]
        app = telling_app(tmp_path)
        engine = holdfast_engine(app, slots=4)
        for number in range(2 * DELIVERIES):
            tarpit = tarpits[number % len(tarpits)]
            task = await submit(app, "mail.send", callback=tarpit.url(), tenant="t-1")
            await task.cancel()
        for tenant in ("t-2", "t-3"):
            task = await submit(app, "mail.send", callback=receiver.url(), tenant=tenant)
            await task.cancel()
        await engine.start()
        await receiver.got(2)
        assert sum(len(tarpit.seen) for tarpit in tarpits) <= module.CALLBACKS // 2


async def test_a_tarpit_of_many_tenants_leaves_room_for_other_receivers(
    receiver: Receiver, tmp_path: Path, holdfast_engine: MakeEngine
) -> None:
    async with Receiver(hang) as tarpit:
        app = telling_app(tmp_path)
        engine = holdfast_engine(app, slots=4)
        for number in range(2 * DELIVERIES):
            tenant = f"t-{number}"
            task = await submit(app, "mail.send", callback=tarpit.url(), tenant=tenant)
            await task.cancel()
        await (await submit(app, "mail.send", callback=receiver.url(), tenant="t-1")).cancel()
        await engine.start()
        await receiver.got(1)
        assert len(tarpit.seen) <= module.CALLBACKS // 2


async def test_a_hook_that_hangs_leaves_room_for_other_hooks(
    receiver: Receiver, tmp_path: Path, holdfast_engine: MakeEngine
) -> None:
    async with Receiver(hang) as tarpit:
        hooks = {"slow": hook(tarpit, "TaskCancelled"), "ops": hook(receiver, "TaskFailed")}
        app = telling_app(tmp_path, hooks=hooks)
        engine = holdfast_engine(app, slots=4)
        for _ in range(2 * DELIVERIES):
            await (await submit(app, "mail.send")).cancel()
        await submit(app, "mail.lost")
        await engine.start()
        await receiver.got(1)
        assert len(tarpit.seen) <= module.OF_HOOK


async def test_a_receiver_that_was_away_for_a_moment_is_not_left_alone_for_long(
    tmp_path: Path, holdfast_engine: MakeEngine
) -> None:
    """However many attempts were under way at that moment."""
    async with Receiver(*[answer(500)] * (module.CALLBACKS // 2), answer(200)) as blinking:
        app = telling_app(tmp_path)
        engine = holdfast_engine(app)
        for _ in range(module.CALLBACKS // 2):
            await (await submit(app, "mail.send", callback=blinking.url())).cancel()
        await engine.drain()
        await engine.advance("2m")
        await engine.drain()
        assert {one.status for one in await deliveries(app)} == {Status.COMPLETED}


async def test_a_receiver_that_is_down_is_left_alone_and_others_are_not(
    receiver: Receiver, tmp_path: Path, holdfast_engine: MakeEngine
) -> None:
    async with Receiver(answer(500)) as broken:
        app = telling_app(tmp_path)
        engine = holdfast_engine(app)
        for _ in range(4 * FAILURES_MAX):
            await submit(app, "mail.send", callback=broken.url())
            await engine.drain()
        assert len(broken.seen) == FAILURES_MAX
        await submit(app, "mail.send", callback=receiver.url())
        await engine.drain()
        assert len(receiver.seen) == 1
        broken.behaviours = (answer(200),)
        await engine.advance("10m")
        await engine.drain()
    states = {one.status for one in await deliveries(app)}
    assert states == {Status.COMPLETED}


async def test_who_waits_for_a_receiver_does_not_wait_for_ever(
    tmp_path: Path, holdfast_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module.Deliverer._later, "__defaults__", (3600.0,))
    async with Receiver(answer(500)) as broken:
        app = telling_app(tmp_path)
        engine = holdfast_engine(app)
        for _ in range(FAILURES_MAX + 1):
            await submit(app, "mail.send", callback=broken.url())
            await engine.drain()
        [*_, last] = await deliveries(app)
        assert last.failures == 0, "it has not even been tried"
        await engine.advance("2h")
    [task] = await app.store.views.load([last.id])
    assert task is not None
    assert task.failure is not None
    assert task.status is Status.FAILED
    assert "has failed 5 times in a row" in task.failure.message


async def test_after_a_long_outage_all_that_is_resumed_is_delivered(
    tmp_path: Path, holdfast_engine: MakeEngine
) -> None:
    async with Receiver(answer(500)) as broken:
        app = telling_app(tmp_path)
        engine = holdfast_engine(app)
        for _ in range(10):
            await submit(app, "mail.send", callback=broken.url())
            await engine.drain()
        await engine.advance("30h")
        assert {one.status for one in await deliveries(app)} == {Status.FAILED}
        broken.behaviours = (answer(200),)
        for one in await deliveries(app):
            await app.control.retry(one.id)
        await engine.drain()
        await engine.advance("10m")
        assert {one.status for one in await deliveries(app)} == {Status.COMPLETED}


async def test_who_waits_for_a_day_leaves_a_short_story(
    tmp_path: Path, holdfast_engine: MakeEngine
) -> None:
    async with Receiver(answer(500)) as broken:
        app = telling_app(tmp_path)
        engine = holdfast_engine(app)
        for _ in range(FAILURES_MAX + 2):
            await submit(app, "mail.send", callback=broken.url())
            await engine.drain()
        await engine.advance("24h")
        for one in await deliveries(app):
            detail = await app.store.views.detail(one.id)
            assert detail is not None
            assert len(detail.events) < 800


async def test_of_a_host_that_answers_only_the_address_that_fails_is_left_alone(
    tmp_path: Path, holdfast_engine: MakeEngine
) -> None:
    async def by_path(caller: Caller) -> None:
        seen = await caller.request()
        status = b"500" if seen.path == "/bad" else b"200"
        await caller.send(b"HTTP/1.1 " + status + b" Said\r\ncontent-length: 0\r\n\r\n")

    async with Receiver(by_path) as shared:
        app = telling_app(tmp_path)
        engine = holdfast_engine(app)
        for _ in range(2 * FAILURES_MAX):
            await submit(app, "mail.send", callback=shared.url("/bad"))
            await engine.drain()
        for _ in range(3):
            await submit(app, "mail.send", callback=shared.url("/good"))
        await engine.drain()
        paths = [seen.path for seen in shared.seen]
        assert (paths.count("/bad"), paths.count("/good")) == (FAILURES_MAX, 3)


@pytest.mark.parametrize("slots", [1, 4])
async def test_many_deliveries_keep_no_work_waiting(
    receiver: Receiver, tmp_path: Path, holdfast_engine: MakeEngine, slots: int
) -> None:
    app = telling_app(tmp_path)
    engine = holdfast_engine(app, slots=slots)
    for _ in range(300):
        await (await submit(app, "mail.send", callback=receiver.url())).cancel()
    handle = await submit(app, "mail.send")
    await engine.start()
    await within_bounds(handle.result())
    [task] = await app.store.views.load([handle.id])
    assert task is not None
    assert task.fence <= slots, "it was among the first that were handed out"


async def test_much_work_keeps_no_delivery_waiting(
    receiver: Receiver, tmp_path: Path, holdfast_engine: MakeEngine
) -> None:
    """The work never ends, so no claim for it ever gets to the deliveries."""
    app = telling_app(tmp_path)

    @app.task("again")
    async def again(ctx: Context) -> None:
        await again.submit()
        engine.clock.advance(0.01)

    engine = holdfast_engine(app, slots=2)
    for _ in range(10):
        await again.submit()
    await (await submit(app, "mail.send", callback=receiver.url())).cancel()
    worker = await engine.start()
    await receiver.got(1)
    worker.abandon()


async def test_want_of_room_to_ask_for_a_name_costs_no_try_and_is_not_its_fault(
    receiver: Receiver,
    tmp_path: Path,
    holdfast_engine: MakeEngine,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app = telling_app(tmp_path, callback_allow=["localhost"])
    engine = holdfast_engine(app)
    with monkeypatch.context() as patch:
        patch.setattr(name_lookup, "_room", threading.Semaphore(0))
        for _ in range(FAILURES_MAX + 1):
            await submit(app, "mail.send", callback=receiver.url(host="localhost"))
        await engine.drain()
        assert {one.failures for one in await deliveries(app)} == {0}
        assert receiver.seen == []
    engine.clock.advance("10s")
    await engine.drain()
    assert {one.status for one in await deliveries(app)} == {Status.COMPLETED}
    assert len(receiver.seen) == FAILURES_MAX + 1


async def test_callbacks_cannot_put_the_receiver_of_a_hook_to_rest(
    receiver: Receiver,
    tmp_path: Path,
    holdfast_engine: MakeEngine,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Their name leads where they may not go; the hook's may."""
    monkeypatch.setattr(name_lookup, "_ask_system", lambda *_: ["127.0.0.1"])
    ops = hook(receiver, "TaskCompleted", url=receiver.url("/oncall", host="hooks.test"))
    app = telling_app(tmp_path, hooks={"ops": ops}, webhook_allow=["hooks.test"], callback_allow=[])
    engine = holdfast_engine(app)
    url = receiver.url("/any", host="hooks.test").replace("http:", "https:")
    for _ in range(2 * FAILURES_MAX):
        await (await submit(app, "mail.send", callback=url)).cancel()
    await engine.drain()
    assert {one.status for one in await deliveries(app)} == {Status.FAILED}
    await submit(app, "mail.send")
    await engine.drain()
    assert [seen.path for seen in receiver.seen] == ["/oncall"]


async def test_callbacks_that_fail_do_not_rest_the_hook_at_the_same_address(
    tmp_path: Path, holdfast_engine: MakeEngine
) -> None:
    async with Receiver(*[answer(500)] * FAILURES_MAX, answer(200)) as shared:
        app = telling_app(tmp_path, hooks={"ops": hook(shared, "TaskCompleted")})
        engine = holdfast_engine(app)
        for _ in range(FAILURES_MAX):
            await (await submit(app, "mail.send", callback=shared.url())).cancel()
        await engine.drain()
        await submit(app, "mail.send")
        await engine.drain()
        assert len(shared.seen) == FAILURES_MAX + 1


async def test_a_process_may_leave_deliveries_to_others(tmp_path: Path) -> None:
    app = telling_app(tmp_path, deliveries=False)
    async with app:
        said = app.worker(heartbeat_thread=False)._describe()
    assert notification.QUEUE not in said.queues
    assert notification.TYPE not in said.types


async def test_a_wait_for_the_receiver_is_no_wait_for_a_newer_file(
    tmp_path: Path, holdfast_engine: MakeEngine
) -> None:
    """A process that does not know the hook yet has ten minutes, whatever went before."""
    async with Receiver(answer(429, "retry-after: 700"), answer(200)) as busy:
        app = telling_app(tmp_path, hooks={"ops": hook(busy, "TaskCompleted")})
        engine = holdfast_engine(app)
        await submit(app, "mail.send")
        await engine.drain()
        taken = app.hooks.hooks.pop("ops")  # type: ignore[attr-defined]
        await engine.advance("17m")
        [delivery] = await deliveries(app)
        assert delivery.failure is None
        app.hooks.hooks["ops"] = taken  # type: ignore[index]
        await engine.advance("10m")
        [delivery] = await deliveries(app)
        assert delivery.status is Status.COMPLETED


async def test_a_hook_that_was_taken_away_suspends_what_was_meant_for_it(
    receiver: Receiver, tmp_path: Path, holdfast_engine: MakeEngine
) -> None:
    app = telling_app(tmp_path, hooks={"ops": hook(receiver, "TaskCompleted")})
    engine = holdfast_engine(app)
    taken = app.hooks.hooks.pop("ops")  # type: ignore[attr-defined]
    await submit(app, "mail.send")
    await engine.drain()
    await engine.advance("9m")
    [delivery] = await deliveries(app)
    assert delivery.failure is None, "another process may have a newer file"
    await engine.advance("5m")
    [delivery] = await deliveries(app)
    assert delivery.status is Status.FAILED
    assert delivery.failure is not None
    assert "no hook 'ops' is configured here" in delivery.failure.message
    app.hooks.hooks["ops"] = taken  # type: ignore[index]
    await app.control.retry(delivery.id)
    await engine.drain()
    assert len(receiver.seen) == 1


async def test_what_is_neither_hook_nor_chat_is_not_sent_to_the_bot(
    receiver: Receiver,
    tmp_path: Path,
    holdfast_engine: MakeEngine,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(notification, "_receiver", lambda _: "pager")
    app = telling_app(
        tmp_path,
        telegram_token="123456:" + "A" * 35,
        telegram_secret="s" * 32,
        telegram_task="mail.send",
        telegram_api=receiver.url(),
    )
    engine = holdfast_engine(app)
    await submit(app, "mail.send", callback=receiver.url())
    await engine.drain()
    await engine.advance("15m")
    [delivery] = await deliveries(app)
    assert delivery.status is Status.FAILED
    assert delivery.failure is not None
    assert "no hook 'pager' is configured here" in delivery.failure.message
    assert not receiver.seen
