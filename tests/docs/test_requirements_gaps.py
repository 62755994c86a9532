"""Small parts of requirements that no other test showed: see docs/internals/requirements.md."""

import tempfile
from collections.abc import AsyncIterator
from dataclasses import FrozenInstanceError, replace
from pathlib import Path

import pytest

from holdfast import Retry, Status
from holdfast.errors import StoreUnavailable
from tests.support.redis.redis_outages import Crew
from tests.support.redis.redis_servers import StartRedis
from tests.support.redis.redis_stores import Bench, benched
from verify.servers import RedisServer

WAITING = 3000
STAGES = tuple(f"stage-{number}" for number in range(40))
LARGE = "x" * 20_000


@pytest.fixture
async def bench(redis_server: RedisServer, redis_namespace: str) -> AsyncIterator[Bench]:
    async with benched(redis_server, redis_namespace) as bench:
        yield bench


def test_a_retry_policy_is_replaced_whole() -> None:
    """P1."""
    policy = Retry(max=3)
    with pytest.raises(FrozenInstanceError):
        policy.max = 5  # type: ignore[misc]
    assert replace(policy, max=5) == Retry(max=5)
    assert policy.max == 3


async def test_two_environments_share_a_server_and_never_touch(
    redis_server: RedisServer, redis_namespace: str, bench: Bench
) -> None:
    """P3: the same tenant and the same key under two names are two tasks."""
    async with benched(redis_server, f"{redis_namespace}.test") as other:
        task = await bench.driver.submit(tenant="t", key="k", payload=1)
        assert other.names() <= {"meta"}
        assert await other.driver.claim() == []
        theirs = await other.driver.start(tenant="t", key="k", payload=2)
        before = {name: other.ask("TYPE", name) for name in other.names()}
        assert (await bench.driver.complete(await bench.driver.take())).id == task.id
        assert {name: other.ask("TYPE", name) for name in other.names()} == before
        assert (await other.driver.tenant("t")).locked_by == theirs.id
        assert (await other.driver.complete(theirs)).status is Status.COMPLETED


async def test_what_was_answered_outlives_a_server_that_is_killed(
    start_redis: StartRedis,
) -> None:
    """Q2: durable before it is acknowledged, with Redis set as docs/guarantees.md asks for."""
    server = start_redis(appendonly=True, appendfsync="always")
    async with benched(server, "executor") as bench:
        ids = await bench.driver.submit_many(20, tenant="t")
        server.kill()
    server.start()
    async with benched(server, "executor") as again:
        assert all(await again.store.views.load(ids))
        assert await again.driver.claim_ids() == ids[:1]


def files_in(folder: Path) -> list[Path]:
    return list(folder.rglob("*"))


async def test_what_is_refused_in_an_outage_is_kept_in_no_file(
    start_redis: StartRedis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Q2: whoever was told no may send it again, and nothing comes after."""
    server = start_redis(appendonly=True)
    monkeypatch.chdir(tmp_path)
    for name in ("HOME", "TMPDIR"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    crew = Crew(server.port)
    async with crew.app:
        server.kill()
        with pytest.raises(StoreUnavailable):
            await crew.submit(1)
        assert files_in(tmp_path) == []
        server.start()
        assert await crew.ids() == set()
    assert files_in(tmp_path) == []


async def test_the_cost_of_a_stage_does_not_grow_with_the_stages_before_it(bench: Bench) -> None:
    """P16: results are beside the checkpoint, one field for each stage."""
    task = await bench.driver.start(stages=STAGES)
    for done in range(1, len(STAGES)):
        task = await bench.driver.finish_stage(task, LARGE)
        assert bench.ask("HLEN", f"stages:{task.id}") == done
    names = sum(len(name) for name in STAGES)
    assert bench.ask("STRLEN", f"ckpt:{task.id}") < names + 1000
    saved = await bench.store.views.checkpoint(task.id)
    assert saved is not None
    assert set(saved.stage_durations) == set(STAGES[:-1])


async def test_the_stream_of_a_queue_is_never_trimmed(bench: Bench) -> None:
    """Q3."""
    ids = await bench.driver.submit_many(WAITING)
    assert bench.ask("XLEN", "queue:tasks") == WAITING
    assert await bench.driver.claim_ids(limit=10) == ids[:10]
