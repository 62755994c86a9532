"""A plan whose tasks live in other partitions than it does, and triggers, on a real Cluster."""

from collections.abc import Iterator

import pytest

from holdfast import Context, FailureRate, Holdfast, Permanent, PlanStatus, Retry
from verify.servers import Cluster

TENANTS = [f"t-{number:02}" for number in range(24)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(replicas=False, appendonly=True) as started:
        yield started


@pytest.fixture
def url(cluster: Cluster) -> str:
    return f"{cluster.url}?partitions=8"


async def test_a_plan_over_many_partitions_halts_and_is_rolled_back(
    url: str, redis_namespace: str
) -> None:
    app = Holdfast(url, namespace=redis_namespace)
    flow = app.workflow("upgrade", payload=str, retry=Retry(max=1))
    undone: list[str | None] = []

    @flow.stage
    async def prepare(ctx: Context, payload: str) -> None: ...

    @prepare.undo
    async def restore(ctx: Context, payload: str) -> None:
        undone.append(ctx.tenant)

    @flow.stage
    async def finish(ctx: Context, payload: str) -> None:
        if ctx.tenant == "t-03":
            raise Permanent("no")

    async with app.running():
        tasks = [flow.on("7", tenant=tenant) for tenant in TENANTS]
        rule = FailureRate(0.1)
        waves = ("2", "25%", "100%")
        plan = await app.plan("up-7", tasks, max_concurrency=3, waves=waves, halt_on=rule)
        parts = {handle.id.rpartition(".p")[2] for handle in await plan.tasks()}
        assert len(parts) > 1, "its tasks are in several partitions"
        assert (await plan.wait("120s")).status is PlanStatus.HALTED
        await plan.rollback()
        assert (await plan.wait("120s")).status is PlanStatus.ROLLED_BACK
        assert {"t-00", "t-01", "t-03"} <= set(undone)
        assert len(undone) == len(set(undone))
        assert await app.store.admin.doctor(fix=False, limit=10) == []


async def test_a_trigger_fires_where_it_lives(url: str, redis_namespace: str) -> None:
    app = Holdfast(url, namespace=redis_namespace)

    @app.task("echo")
    async def echo(ctx: Context, text: str) -> str:
        return text

    async with app.running():
        for tenant in (None, "t-1", "t-2"):
            trigger = await app.schedule.every("1h", echo, "x", tenant=tenant)
            handle = await trigger.fire()
            assert await handle.result("120s") == "x"
            assert handle.id.rpartition(".p")[2] == trigger.id.rpartition(".p")[2]
        assert await app.store.admin.doctor(fix=False, limit=10) == []
