"""Usual submits go straight, and leave what the general way leaves; others go the general way."""

import asyncio
from itertools import count
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.ports import Switch
from holdfast.stores.redis.store import RedisStore
from holdfast.testing.clock import ManualClock
from holdfast.testing.contract.drivers.store_driver import StoreDriver
from holdfast.testing.contract.drivers.switch_driver import SwitchDriver
from tests.stores.redis.client.test_acl import admitted, lines
from tests.support.redis.insert_scenarios import (
    SCENARIOS,
    STRAIGHT,
    Scenario,
    complete_running,
    insert,
)
from tests.support.redis.path_comparison import Ways, opened_ways
from tests.support.redis.redis_servers import StartRedis
from verify.servers import RedisServer

NUMBERS = count(1)


def new_namespace() -> str:
    return f"straight-insert-{next(NUMBERS)}"


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda run: run.__name__)
async def test_both_ways_leave_the_same(ways: Ways, scenario: Scenario) -> None:
    await scenario(ways)


async def test_a_large_batch_keeps_its_order_over_several_scripts(ways: Ways) -> None:
    driver = ways.straight.driver
    ways.scripts()
    submitted = await driver.submit_many(250, tenant="t")
    assert ways.scripts() == STRAIGHT * 3
    assert [*await driver.claim_ids(), *await driver.line("t", limit=300)] == submitted


# -- rights that are missing


@pytest.mark.parametrize("command", ["copy", "mget", "mset"])
async def test_without_a_right_that_only_the_straight_way_needs_the_general_way_is_taken(
    start_redis: StartRedis, command: str
) -> None:
    server = start_redis()
    needed, _, optional = lines()
    url = admitted(server, needed.replace(f" +{command}", ""), optional)
    clock = ManualClock()
    store = RedisStore(url, clock, "executor", time=clock.times)
    await store.open()
    try:
        driver = StoreDriver(store, clock)
        for _ in range(2):
            await driver.submit_many(3, tenant="t", key=None)
        (first,) = await driver.claim()
        await driver.complete(first.task)
        assert len(await driver.line("t")) == 4
        assert await store.admin.doctor(fix=False, limit=10) == []
    finally:
        await store.close()


# -- random batches


rows = st.fixed_dictionaries(
    {},
    optional={
        "id": st.sampled_from(["same-1", "same-2", "same-3"]),
        "type": st.sampled_from(["test.a", "test.b"]),
        "tenant": st.sampled_from(["a", "b", "c"]),
        "queue": st.sampled_from(["q", "r"]),
        "key": st.sampled_from(["k-1", "k-2", "k-3", "k-4"]),
        "plan": st.sampled_from(["p", "q"]),
        "payload": st.integers(0, 1),
        "stages": st.sampled_from([("only",), ("one", "two")]),
        "hold": st.booleans(),
        "workflow": st.booleans(),
        "keep_seconds": st.sampled_from([0.0, 1e6]),
        "retry_max": st.integers(0, 2),
        "trace_id": st.sampled_from(["x", "y"]),
        "user": st.sampled_from([{"name": "ann"}, "bob"]),
        "later": st.sampled_from([0.25, 0.5]),
    },
)
QUEUES = ("default", "q", "r")
steps = st.one_of(
    *[st.tuples(st.just("insert"), st.lists(rows, min_size=1, max_size=12))] * 4,
    st.tuples(st.just("insert few"), st.lists(rows, min_size=1, max_size=3)),
    st.tuples(st.just("claim"), st.integers(1, 5)),
    st.tuples(st.just("complete"), st.none()),
    st.tuples(st.just("suspend"), st.none()),
    st.tuples(st.just("switch"), st.booleans()),
)


async def suspend_running(driver: StoreDriver) -> list[str]:
    return [
        (await driver.suspend(claimed.task)).id
        for claimed in await driver.claim("w-2", queues=QUEUES, limit=1)
    ]


async def take_step(ways: Ways, step: str, value: Any) -> None:
    ways.advance(0.125)
    match step:
        case "insert":
            await insert(ways, *value)
        case "insert few":
            await insert(ways, *value, depth_limit=4)
        case "claim":
            await ways.compare(lambda d: d.claim(queues=QUEUES, limit=value))
        case "complete":
            await ways.compare(complete_running)
        case "suspend":
            await ways.compare(suspend_running)
        case "switch":
            await ways.compare(lambda d: set_intake(d, on=value))


async def set_intake(driver: StoreDriver, *, on: bool) -> bool:
    switches = SwitchDriver(driver.store, driver.clock)
    return await (switches.on if on else switches.off)(Switch.INTAKE, "r")


@given(taken=st.lists(steps, min_size=1, max_size=12))
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_random_steps_leave_the_same(
    redis_server: RedisServer, taken: list[tuple[str, Any]]
) -> None:
    async def take_all() -> None:
        async with opened_ways(redis_server, new_namespace()) as ways:
            for step, value in taken:
                await take_step(ways, step, value)

    asyncio.run(take_all())
