"""Keys of another program under names of ours that carry a name: the tasks do not suffer."""

import asyncio
import logging
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from holdfast.domain.errors import PartlyUnavailable, StoreForeign
from holdfast.domain.task.state import Command
from holdfast.domain.task.transition import Inserted
from holdfast.runtime.committer import Gather
from tests.support.redis.redis_stores import Bench, benched
from verify.servers import RedisServer

DAY = "2023-11-14"  # when the test's clock begins
INDEXES = [
    "index:tasks:t",
    "index:plan:p",
    f"index:time:{DAY}",
    "index:status:PENDING",
    "index:status:RUNNING",
    "index:status:COMPLETED",
    "index:tenant:t",
    "lock:tenant:t",
    "line:t",
    "resting:t",
    "back:default",
]


@pytest_asyncio.fixture
async def bench(redis_server: RedisServer, redis_namespace: str) -> AsyncIterator[Bench]:
    async with benched(redis_server, redis_namespace) as bench:
        yield bench


@pytest.mark.parametrize("name", INDEXES)
async def test_work_goes_on_and_the_key_is_named(
    bench: Bench, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    driver = bench.driver
    bench.ask("HSET", name, "of", "another program")
    batch = [driver.submission(tenant=t, plan="p", stages=("only",)) for t in ("s", "t", "u")]
    with caplog.at_level(logging.ERROR):
        assert await driver.insert(*batch) == [Inserted(one.task.id) for one in batch]
        for claimed in await driver.claim():
            parked = await driver.suspend(claimed.task)
            again = await driver.ask(Command.RETRY, parked)
            assert again.id == claimed.task.id
        for claimed in await driver.claim():
            assert (await driver.complete(claimed.task)).settled
    assert bench.ask("HGETALL", name) == {"of": "another program"}
    if name not in ("line:t", "back:default"):  # nothing of ours was to be written there
        assert f"{bench.name(name)} holds something of another program" in caplog.text
    bench.ask("DEL", name)
    await bench.store.admin.doctor(fix=True, limit=100)
    assert await bench.store.admin.doctor(fix=False, limit=100) == []


async def test_a_queue_that_cannot_be_used_takes_nothing_and_spares_the_others(
    bench: Bench,
) -> None:
    driver = bench.driver
    bench.ask("SET", "queue:tasks:mail", "foreign")
    good, bad = driver.submission(), driver.submission(queue="mail")
    with pytest.raises(PartlyUnavailable) as answered:
        await driver.insert(good, bad)
    inserted, refused = answered.value.answers
    assert inserted == Inserted(good.task.id)
    assert isinstance(refused, StoreForeign)
    assert bench.name("queue:tasks:mail") in str(refused)
    assert await bench.store.views.load([bad.task.id]) == [None]
    with pytest.raises(StoreForeign):
        await driver.insert(bad)
    bench.ask("DEL", "queue:tasks:mail")


async def test_each_of_a_group_hears_of_its_own_fault(bench: Bench) -> None:
    driver = bench.driver
    first, second = await driver.start(), await driver.start()
    transitions = [await driver.done(task) for task in (first, second)]
    bench.ask("DEL", f"task:{first.id}")
    bench.ask("SET", f"task:{first.id}", "foreign")
    send = Gather(bench.store.tasks.apply)
    outcomes = await asyncio.gather(*map(send, transitions), return_exceptions=True)
    assert [type(one).__name__ for one in outcomes] == ["SerialisationError", "Applied"]
    bench.ask("DEL", f"task:{first.id}")
    await bench.store.admin.doctor(fix=True, limit=100)


async def test_thousands_of_leases_are_renewed_in_several_steps(bench: Bench) -> None:
    driver = bench.driver
    await driver.submit_many(1000)
    tasks = [claimed.task for claimed in await driver.claim(limit=1000)]
    before = int(bench._client.info("commandstats")["cmdstat_evalsha"]["calls"])
    assert await driver.renew(*tasks) == [True] * 1000
    calls = int(bench._client.info("commandstats")["cmdstat_evalsha"]["calls"]) - before
    assert calls >= 10
