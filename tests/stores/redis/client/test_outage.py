"""Redis gone under load (Q2, Q6): nothing is accepted, nothing is doubled, all comes back.

The lease is 4 s here, the time-out 1 s: the outage of 30 s and more that a lease of 30 s must
live through, scaled down. The last test is the whole of it, with the settings as they come. All of
this is real time, so a test that fails while the machine itself stood still is done again.
"""

import asyncio
import logging
from collections.abc import AsyncIterator

import pytest
import redis

from holdfast.clock import SystemClock
from holdfast.domain.task.events import LeaseLost, TaskStarted
from holdfast.domain.task.task import Task
from holdfast.errors import StoreUnavailable
from holdfast.ports import Store, Topic
from holdfast.stores.redis.partition import LATE_SECONDS
from holdfast.stores.redis.store import RedisStore
from holdfast.testing import ManualClock
from holdfast.testing.contract.drivers.store_driver import LEASE_SECONDS as HELD_SECONDS
from holdfast.testing.contract.drivers.store_driver import StoreDriver
from tests.support.redis.redis_outages import (
    BOUND_SECONDS,
    TRIES,
    Crew,
    Outage,
    Way,
    assert_nothing_doubled,
    counted_losses,
    deaf,
    frozen,
    killed,
    mute,
    undisturbed,
)
from tests.support.redis.redis_servers import AS_IT_COMES_SECONDS, StartRedis
from verify.servers import RedisServer, until

LEASE_SECONDS = 4.0
TASKS = 30
SERVER_TIMEOUT_SECONDS = 1.5
HEARD_SECONDS = 0.1  # by so much at most a store is wrong about the server's time
# Given up when it is run.
MUCH_TOO_LATE_SECONDS = SERVER_TIMEOUT_SECONDS - LATE_SECONDS - HEARD_SECONDS


@pytest.fixture
def server(start_redis: StartRedis) -> RedisServer:
    # With everysec a write waits for a sync that is under way: kill -9 may lose it.
    return start_redis(appendonly=True, appendfsync="always")


def crew_on(outage: Outage) -> Crew:
    return Crew(outage.port, timeout="1s", lease=LEASE_SECONDS)


def critical(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelno == logging.CRITICAL]


async def refused(crew: Crew, number: int) -> None:
    """The store is away for as long as the test wants: that this returns is that it is told."""
    async with asyncio.timeout(BOUND_SECONDS):
        with pytest.raises(StoreUnavailable):
            await crew.submit(number)


@pytest.mark.parametrize("way", [killed, frozen, deaf, mute])
@undisturbed
async def test_an_outage_longer_than_the_lease_doubles_nothing_and_ends_by_itself(
    server: RedisServer, way: Way, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.clear()
    async with way(server) as outage:
        crew = crew_on(outage)
        async with crew.app.running(workers=2, slots=TASKS // 3):
            handles = [await crew.submit(number) for number in range(TASKS)]
            results = [asyncio.create_task(handle.result()) for handle in handles]
            accepted = {handle.id for handle in handles}
            await crew.until(lambda: len(crew.reached) == 2 * (TASKS // 3))

            outage.begin()
            await refused(crew, TASKS)
            crew.log.append("told")
            assert len(critical(caplog)) == 1
            await crew.until(lambda: crew.stopped == crew.reached)
            assert crew.log[0] == "told"  # the stages had gone on, until their lease's own time
            crew.gate.set()
            outage.end()

            async with asyncio.timeout(BOUND_SECONDS):
                assert await asyncio.gather(*results) == [2 * n for n in range(TASKS)]
            again = await crew.submit(TASKS)
            async with asyncio.timeout(BOUND_SECONDS):
                assert await again.result() == 2 * TASKS
            assert await crew.ids() == accepted | {again.id}
            await assert_nothing_doubled(crew, accepted | {again.id})
            assert await counted_losses(crew, accepted) == []
            assert await crew.app.store.admin.doctor(fix=False, limit=10) == []
            assert "the store answers again" in caplog.messages


@pytest.mark.parametrize("way", [killed, deaf, frozen])
@undisturbed
async def test_what_was_refused_while_nothing_arrives_was_not_accepted(
    server: RedisServer, way: Way
) -> None:
    async with way(server) as outage:
        crew = crew_on(outage)
        async with crew.app:
            other = (await crew.submit(0)).id  # the server knows the script from now on
            await hear(crew.app.store)
            outage.begin()
            await refused(crew, 1)
            outage.end()
            assert await crew.ids() == {other}


@pytest.mark.parametrize("way", [mute])
@undisturbed
async def test_what_was_accepted_and_not_answered_is_found_by_its_key(
    server: RedisServer, way: Way
) -> None:
    async with way(server) as outage:
        crew = crew_on(outage)
        async with crew.app:
            other = (await crew.submit(0)).id  # the server knows the script from now on
            outage.begin()
            await refused(crew, 1)
            outage.end()
            [first] = await crew.ids() - {other}
            assert (await crew.submit(1)).id == first
            assert await crew.ids() == {first, other}


@pytest.mark.parametrize("way", [killed, frozen])
@undisturbed
async def test_an_outage_shorter_than_the_lease_costs_no_stage(
    server: RedisServer, way: Way
) -> None:
    async with way(server) as outage:
        crew = Crew(outage.port, timeout="1s", lease=600)
        async with crew.app.running(workers=2):
            handles = [await crew.submit(number) for number in range(TASKS)]
            results = [asyncio.create_task(handle.result()) for handle in handles]
            await crew.until(lambda: len(crew.reached) == TASKS)
            outage.begin()
            await refused(crew, TASKS)
            crew.gate.set()  # their commits wait for the store
            await refused(crew, TASKS + 1)
            outage.end()
            async with asyncio.timeout(BOUND_SECONDS):
                assert await asyncio.gather(*results) == [2 * n for n in range(TASKS)]
            assert set(crew.runs.values()) == {1}
            assert not crew.stopped
            await assert_nothing_doubled(crew, {handle.id for handle in handles})


@pytest.mark.parametrize("way", [killed, frozen, deaf])
@undisturbed
async def test_who_waits_hears_the_bell_again_after_an_outage(
    server: RedisServer, way: Way
) -> None:
    async with way(server) as outage:
        here, there = crew_on(outage), Crew(server.port, lease=LEASE_SECONDS)
        async with here.app:
            waiting = asyncio.create_task(until_ready(here))
            outage.begin()
            await refused(here, 1)
            outage.end()
            for number in range(2, 5):
                async with there.app:
                    await there.submit(number)
                async with asyncio.timeout(BOUND_SECONDS):
                    await waiting
                waiting = asyncio.create_task(until_ready(here))
                await asyncio.sleep(0)
            waiting.cancel()


async def until_ready(crew: Crew) -> None:
    store = crew.app.store
    await store.wait(Topic.READY, store.ticket(Topic.READY), timeout=2 * BOUND_SECONDS)


# -- what comes too late


@pytest.fixture
async def driver(server: RedisServer) -> AsyncIterator[StoreDriver]:
    store = RedisStore(server.url, SystemClock())
    await store.open()
    yield StoreDriver(store, ManualClock())
    await store.close()


@pytest.fixture
async def hasty(server: RedisServer) -> AsyncIterator[StoreDriver]:
    """Who gives up soon. It knows the server's time, as a worker does after its first sweep."""
    store = RedisStore(f"{server.url}?timeout={SERVER_TIMEOUT_SECONDS}s", SystemClock())
    for _ in range(TRIES):
        try:
            await store.open()
            await hear(store)
        except StoreUnavailable:
            await store.close()
        else:
            yield StoreDriver(store, ManualClock())
            await store.close()
            return
    pytest.fail(f"the server did not answer in time {TRIES} times")


async def hear(store: Store) -> None:
    """Each sweep's answer tells the server's time, the better the sooner it comes."""
    clock = SystemClock()
    async with asyncio.timeout(BOUND_SECONDS):
        while True:
            began = clock.steady()
            await sweep(store)
            if clock.steady() - began < HEARD_SECONDS:
                return


async def sweep(store: Store) -> int:
    return await store.tasks.expire(limit=10, count_crashes=True)


def time_of(client: redis.Redis) -> float:
    seconds, microseconds = client.time()
    return float(seconds + microseconds / 1e6)


async def test_a_sweep_that_comes_too_late_takes_nothing_and_leaves_time_for_a_beat(
    server: RedisServer, driver: StoreDriver, hasty: StoreDriver
) -> None:
    """The time it leaves is short: who was not run for as long as that cannot judge it."""
    with server.client() as client:
        for number in range(TRIES):
            task = await driver.start(queue=f"q-{number}")
            client.zadd("executor:leases", {task.id: 0})  # it has lapsed
            client.hdel("executor:meta", "grace")
            server.pause()
            with pytest.raises(StoreUnavailable):  # and done all the same, when the server goes on
                await sweep(hasty.store)
            server.resume()
            grace = until(lambda: client.hget("executor:meta", "grace"), "it came too late")
            taken = await sweep(driver.store)
            if time_of(client) < float(grace):
                assert taken == 0
                assert await driver.renew(task) == [True]
                return
    pytest.fail(f"the time for a beat was over {TRIES} times")


async def test_a_grace_that_is_far_away_is_none(server: RedisServer, driver: StoreDriver) -> None:
    """The server's clock was set back."""
    task = await driver.submit()
    await driver.claim(lease_seconds=0.001)
    with server.client() as client:
        client.hset("executor:meta", "grace", "9999999999")
    async with asyncio.timeout(BOUND_SECONDS):
        while await sweep(driver.store) == 0:
            pass
    assert isinstance(await driver.last_event(task), LeaseLost)


async def test_the_lease_of_a_claim_that_comes_too_late_runs_from_when_it_was_asked_for(
    server: RedisServer, driver: StoreDriver, hasty: StoreDriver
) -> None:
    await driver.claim()  # the server knows the script from now on
    task = await driver.submit()
    server.pause()
    with pytest.raises(StoreUnavailable):
        await hasty.claim("gone")
    server.resume()
    async with asyncio.timeout(BOUND_SECONDS):
        while not isinstance(started := await driver.last_event(task), TaskStarted):
            pass
    assert await until_of(driver, task) < started.at + HELD_SECONDS - MUCH_TOO_LATE_SECONDS


async def test_the_lease_of_a_beat_that_comes_too_late_runs_from_when_it_was_asked_for(
    server: RedisServer, driver: StoreDriver, hasty: StoreDriver
) -> None:
    task = await driver.start()
    await driver.renew(task)
    before = await until_of(driver, task)
    server.pause()
    with pytest.raises(StoreUnavailable):
        await hasty.renew(task)
    server.resume()
    async with asyncio.timeout(BOUND_SECONDS):
        while await until_of(driver, task) == before:
            pass
    now = (await driver.store.views.stats()).now
    assert await until_of(driver, task) < now + HELD_SECONDS - MUCH_TOO_LATE_SECONDS


async def until_of(driver: StoreDriver, task: Task) -> float:
    lease = (await driver.load(task.id)).lease
    assert lease is not None
    return lease.until


@pytest.mark.slow
@pytest.mark.parametrize("way", [killed, frozen])
@undisturbed
async def test_thirty_seconds_without_redis_with_the_settings_as_they_come(
    server: RedisServer, way: Way
) -> None:
    async with way(server) as outage:
        crew = Crew(outage.port, timeout=f"{AS_IT_COMES_SECONDS}s")
        async with crew.app.running(workers=2, slots=TASKS // 3):
            handles = [await crew.submit(number) for number in range(TASKS)]
            results = [asyncio.create_task(handle.result()) for handle in handles]
            await crew.until(lambda: len(crew.reached) == 2 * (TASKS // 3))
            began = crew.app.clock.steady()
            outage.begin()
            await refused(crew, TASKS)
            await crew.until(lambda: crew.stopped == crew.reached)
            never = crew.app.store.ticket(Topic.READY)
            while crew.app.clock.steady() - began < 31:
                await refused(crew, TASKS)
                await crew.app.store.wait(Topic.READY, never, timeout=1)
            crew.gate.set()
            outage.end()
            async with asyncio.timeout(BOUND_SECONDS):
                assert await asyncio.gather(*results) == [2 * n for n in range(TASKS)]
            accepted = {handle.id for handle in handles}
            await assert_nothing_doubled(crew, accepted)
            assert await counted_losses(crew, accepted) == []
            assert (await crew.submit(TASKS)).id in await crew.ids()
            assert len(await crew.ids()) == TASKS + 1
