"""Tasks that follow from others, on Redis: what is in their way, and what they cost."""

import logging
from collections.abc import AsyncIterator

import pytest
from msgspec.structs import replace

from holdfast.domain.errors import SerialisationError, StoreForeign
from holdfast.domain.task.placement import Place
from holdfast.domain.task.state import Command
from holdfast.domain.task.task import Lease
from holdfast.domain.task.transition import Transition
from holdfast.stores.redis import scripts
from holdfast.stores.redis.encoding import submission
from holdfast.stores.redis.encoding.transition import packed_transition
from holdfast.stores.redis.partition import MOVES
from holdfast.testing.contract.drivers.plan_driver import PlanStoreDriver
from holdfast.testing.contract.drivers.store_driver import FOLLOWERS
from holdfast.testing.contract.plans.follow_up_tasks import follower as follower_of
from holdfast.testing.contract.tasks.follow_up_tasks import (
    completes,
    follower_ids,
    is_cancelled,
    with_follower,
)
from tests.support.redis.redis_servers import StartRedis
from tests.support.redis.redis_stores import Bench, benched
from verify.servers import RedisServer

QUEUE = f"queue:tasks:{FOLLOWERS}"


@pytest.fixture
async def bench(redis_server: RedisServer, redis_namespace: str) -> AsyncIterator[Bench]:
    async with benched(redis_server, redis_namespace) as bench:
        yield bench


# -- keys of another program


async def test_a_queue_that_cannot_be_used_holds_nothing_up(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    """The work is done and must be written; what follows is found again when the key is free."""
    driver, plans = bench.driver, PlanStoreDriver(bench.store, bench.clock)
    bench.ask("SET", QUEUE, "foreign")
    transition = with_follower(driver, await completes(driver))
    plan = await plans.start()
    of_plan = follower_of(driver, plan, "of-plan")
    with caplog.at_level(logging.ERROR):
        assert (await driver.commit(transition)).place is Place.SETTLED
        await plans.commit(replace(await plans.decide(plan), follows=(of_plan,)))
    assert f"{bench.name(QUEUE)} holds something of another program" in caplog.text
    assert bench.ask("GET", QUEUE) == "foreign"
    bench.ask("DEL", QUEUE)
    await bench.store.admin.doctor(fix=True, limit=100)
    claimed = await driver.claim_ids(queues=(FOLLOWERS,))
    assert sorted(claimed) == ["follower", "of-plan"]
    assert await bench.store.admin.doctor(fix=False, limit=100) == []


async def test_a_key_that_cannot_be_read_is_met_before_anything_is_written(bench: Bench) -> None:
    driver, plans = bench.driver, PlanStoreDriver(bench.store, bench.clock)
    bench.ask("HSET", "key:|k", "of", "another program")
    transition = with_follower(driver, await is_cancelled(driver), key="k")
    before = await driver.detail(transition.before)
    with pytest.raises(SerialisationError, match=r"key:\|k is of another type"):
        await driver.apply(transition)
    assert await driver.detail(transition.before) == before
    plan = await plans.start()
    stood = await plans.all_of(plan.id)
    change = replace(await plans.decide(plan), follows=transition.follows)
    with pytest.raises(StoreForeign, match=r"key:\|k"):
        await plans.port.apply(change)
    assert await plans.all_of(plan.id) == stood
    assert await follower_ids(driver) == []
    bench.ask("DEL", "key:|k")
    await driver.commit(transition)


# -- no memory left


async def test_what_follows_from_work_that_ends_gets_through_a_full_memory(
    start_redis: StartRedis,
) -> None:
    server = start_redis(appendonly=True, lines=["maxmemory-policy noeviction"])
    async with benched(server, "full") as bench:
        transition = with_follower(bench.driver, await completes(bench.driver))
        with server.client() as client:
            client.config_set("maxmemory", client.info("memory")["used_memory"])
        await bench.driver.commit(transition)
        assert await follower_ids(bench.driver) == ["follower"]
        assert await bench.store.admin.doctor(fix=False, limit=10) == []


# -- what it costs


async def test_where_nothing_follows_nothing_is_told_of_it(bench: Bench) -> None:
    transition = await completes(bench.driver)
    assert b"follows" not in packed_transition(transition, 1)
    assert b"follows" in packed_transition(with_follower(bench.driver, transition), 1)
    assert "local function met_before" not in scripts.APPLY.source
    assert "local function met_before" in scripts.APPLY_WITH_FOLLOW_UPS.source


async def test_followers_count_among_what_one_step_takes(bench: Bench) -> None:
    driver = bench.driver
    tasks = [await driver.submit() for _ in range(MOVES)]
    plain = [driver.request(Command.CANCEL, task) for task in tasks]
    with_one = [
        replace(one, follows=(driver.follower(task, f"of-{task.id}"),))
        for one, task in zip(plain, tasks, strict=True)
    ]
    many = tuple(driver.follower(tasks[0], f"many-{n}") for n in range(2 * MOVES))
    assert await steps_of(bench, [*with_one[1:], replace(plain[0], follows=many)]) == 3
    assert len(await follower_ids(driver)) == MOVES - 1 + 2 * MOVES


async def steps_of(bench: Bench, batch: list[Transition]) -> int:
    """In how many scripts they are written."""
    before = scripts_run(bench)
    await bench.store.tasks.apply(batch)
    return scripts_run(bench) - before


def scripts_run(bench: Bench) -> int:
    return int(bench._client.info("commandstats")["cmdstat_evalsha"]["calls"])


# -- records of before


def test_a_line_of_a_task_that_was_born_before_callbacks_is_read() -> None:
    line = b'["mail",1.5,["send"],"t","k",true,true,"slow","p","trace",null,9.0,4,"PENDING"]'
    lease = Lease(owner="w", fence=7, id="lease", until=99.0)
    task = submission.first_claimed("task-1", line, lease=lease, order=1, wall=2.0)
    assert (task.type, task.retry_max, task.callback) == ("mail", 4, None)
