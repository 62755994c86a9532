"""The clock of the tests: it stands still until it is moved, and timers fire on the way."""

import asyncio
import threading

import pytest

from holdfast.domain.errors import InvalidInput
from holdfast.ports import Clock
from holdfast.testing.clock import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def test_it_is_a_clock(clock: ManualClock) -> None:
    port: Clock = clock
    assert port.now() != port.steady(), "code that mixes them up must be caught"


def test_time_passes_only_when_it_is_moved(clock: ManualClock) -> None:
    now, steady = clock.now(), clock.steady()
    assert (clock.now(), clock.steady()) == (now, steady)
    clock.advance("1m30s")
    clock.advance(0.5)
    assert (clock.now(), clock.steady()) == (now + 90.5, steady + 90.5)


def test_time_does_not_go_back(clock: ManualClock) -> None:
    with pytest.raises(InvalidInput):
        clock.advance(-1)


def test_the_wall_clock_can_be_set_and_no_time_passes(clock: ManualClock) -> None:
    fired: list[str] = []
    clock.call_later(10, lambda: fired.append("timer"))
    now, steady = clock.now(), clock.steady()
    clock.jump(3_600)
    clock.jump(-7_200)
    assert (clock.now(), clock.steady(), fired) == (now - 3_600, steady, [])
    clock.advance(10)
    assert fired == ["timer"]


def test_timers_fire_in_order_each_at_its_moment(clock: ManualClock) -> None:
    start, fired = clock.now(), list[tuple[str, float]]()

    def at(name: str) -> None:
        fired.append((name, clock.now() - start))

    clock.call_later(20, lambda: at("late"))
    clock.call_later(5, lambda: at("early"))
    clock.call_later(5, lambda: at("early too"))
    clock.call_later(31, lambda: at("not yet"))
    clock.advance(30)
    assert fired == [("early", 5), ("early too", 5), ("late", 20)]
    assert clock.next_timer_seconds == 1


def test_a_timer_may_set_the_next(clock: ManualClock) -> None:
    beats: list[float] = []

    def beat() -> None:
        beats.append(clock.steady())
        clock.call_later(10, beat)

    start = clock.steady()
    clock.call_later(10, beat)
    clock.advance(35)
    assert beats == [start + 10, start + 20, start + 30]


def test_a_cancelled_timer_does_not_fire(clock: ManualClock) -> None:
    fired: list[str] = []
    clock.call_later(1, lambda: fired.append("one"))
    clock.call_later(2, lambda: fired.append("two")).cancel()
    clock.advance(10)
    assert fired == ["one"]
    assert clock.next_timer_seconds is None


def test_a_timer_of_the_past_fires_with_the_next_move(clock: ManualClock) -> None:
    fired: list[str] = []
    clock.call_later(-5, lambda: fired.append("now"))
    clock.advance(0)
    assert fired == ["now"]


async def test_those_who_wake_get_their_turn_before_time_goes_on(clock: ManualClock) -> None:
    woken: list[float] = []

    async def sleep(seconds: float) -> None:
        future = asyncio.get_running_loop().create_future()
        clock.call_later(seconds, lambda: future.set_result(None))
        await future

    async def sleeper() -> None:
        for _ in range(3):
            await sleep(10)
            woken.append(clock.steady())

    start = clock.steady()
    task = asyncio.create_task(sleeper())
    await clock.elapse("1m")
    assert woken == [start + 10, start + 20, start + 30]
    assert clock.steady() == start + 60
    await task


def test_a_timer_fires_on_the_loop_that_set_it(clock: ManualClock) -> None:
    set_up, done = threading.Event(), list[int]()

    async def wait_for_timer() -> None:
        fired = asyncio.Event()

        def fire() -> None:
            done.append(threading.get_ident())
            fired.set()

        clock.call_later(5, fire)
        set_up.set()
        await fired.wait()

    thread = threading.Thread(target=lambda: asyncio.run(wait_for_timer()))
    thread.start()
    set_up.wait()
    clock.advance(5)
    thread.join()
    assert done == [thread.ident]
