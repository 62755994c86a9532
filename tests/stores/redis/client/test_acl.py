"""The ACL lines of docs/redis.md are enough for everything, and nothing in them is too much."""

import asyncio
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import pytest
import redis
from typer.testing import CliRunner

from holdfast import Context, Holdfast
from holdfast.cli.exit_codes import Exit
from holdfast.cli.root import cli
from holdfast.domain.audit import Audit
from holdfast.domain.errors import HoldfastError, StoreUnusable
from holdfast.domain.plan.plan import WAITING, PlanStatus
from holdfast.domain.task.state import SUSPENDED, Command
from holdfast.domain.task.task import Progress
from holdfast.domain.task.transition import Existing
from holdfast.ports import Filter, Kept
from holdfast.stores.redis.encoding.record import day
from holdfast.stores.redis.store import RedisStore
from holdfast.testing.clock import ManualClock
from holdfast.testing.contract.drivers.plan_driver import ADMITTED, PlanStoreDriver
from holdfast.testing.contract.drivers.store_driver import ASKER, StoreDriver
from holdfast.testing.contract.drivers.trigger_driver import TriggerDriver
from tests.support.redis.redis_servers import StartRedis
from tests.support.runtime.helpers import BOUND_SECONDS
from tests.support.source_tree import PACKAGE, ROOT, files_under, text_of
from verify.servers import Cluster, RedisServer

DAY = 86_400.0
DOCUMENT = ROOT / "docs" / "redis.md"
SOURCES = PACKAGE / "stores" / "redis"
CONTAINERS = {"xgroup", "xinfo", "config", "command", "cluster"}
NO_COMMANDS = "faults.py"  # there are the words of errors
CLUSTERED = {"asking", "cluster|slots"}


def lines() -> tuple[str, str, str]:
    """For one server, for a Cluster, and what is optional: each as it stands in the document."""
    found = re.findall(r"^ACL SETUSER holdfast .*$", text_of(DOCUMENT), re.MULTILINE)
    single, clustered, optional = found
    return single, clustered, optional


def commands_in(line: str) -> set[str]:
    return set(re.findall(r"\+([a-z|]+)", line))


def used(known: Sequence[str]) -> set[str]:
    """Every command of the server whose name is quoted in the scripts and modules."""
    pattern = re.compile(r"""['"]([A-Z]{3,})['"](?:,\s*['"]([A-Z-]{3,})['"])?""")
    words: set[str] = set()
    for path in files_under(SOURCES, ".lua", ".py"):
        if path.name == NO_COMMANDS:
            continue
        for one, two in pattern.findall(text_of(path)):
            name = one.lower()
            words.add(f"{name}|{two.lower()}" if name in CONTAINERS else name)
    return {word for word in words if word.partition("|")[0] in known}


def test_the_lines_name_the_commands_that_are_used_and_no_others(redis_server: RedisServer) -> None:
    with redis_server.client() as client:
        known = list(client.command())
    single, clustered, optional = map(commands_in, lines())
    assert clustered == single | CLUSTERED
    assert not single & optional
    assert single | CLUSTERED | optional == used(known)


# -- as that user


class Place:
    """A namespace of the user's own, and an administrator who may do damage there."""

    def __init__(self, url: str, admin: redis.Redis, prefix: str = "executor") -> None:
        self.url, self.prefix = url, prefix
        self._ask: Callable[..., Any] = admin.execute_command

    def damage(self, command: str, name: str, *args: str) -> None:
        self._ask(command, f"{self.prefix}:{name}", *args)


async def live(place: Place) -> None:
    """Everything that a store, a worker and an operator do."""
    clock = ManualClock()
    store = RedisStore(place.url, clock, time=clock.times)
    await store.open()
    try:
        driver = StoreDriver(store, clock)
        await run(driver)
        await look(driver)
        await schedule(driver)
        await mend(driver, place)
        await clean(driver)
    finally:
        await store.close()
    await work(place.url)
    await asyncio.to_thread(command, place.url)


async def run(driver: StoreDriver) -> None:
    store, clock = driver.store, driver.clock
    await driver.submit_many(2, tenant="a", key=None, plan="p")
    task = await driver.take()
    assert await driver.renew(task, progress=Progress(fraction=0.5)) == [True]
    first = await driver.done(task, seen=1)
    task = await driver.commit(first)
    assert await driver.commit(first) == task  # a repeat
    await driver.suspend(task)
    await driver.complete(await driver.take())
    await driver.ask(Command.RETRY, task)
    await driver.fail(await driver.take(), retry_seconds=60)
    clock.advance(60)
    assert (await store.tasks.promote(limit=10)).count == 1
    await driver.take("dead")
    clock.advance(31)
    assert await store.tasks.expire(limit=10, count_crashes=True) == 1
    task = await driver.complete(await driver.take())
    await driver.roll_back(task)
    await driver.complete(await driver.start(key="k", keep_seconds=0))
    assert isinstance((await driver.insert(driver.submission(key="k")))[0], Existing)
    entry = Audit(task_id=task.id, command="pause", by=ASKER, at=clock.now(), before="X", after="X")
    await store.admin.audit(entry)
    for worker in ("w-1", "dead"):
        await store.tasks.leave(worker)


async def look(driver: StoreDriver) -> None:
    store = driver.store
    await driver.suspend(await driver.finish_stage(await driver.start(tenant="b")))
    for _ in range(2):
        await driver.submit(tenant="c", queue="other")
    assert (await store.views.stats()).heads
    assert (await store.views.find(Filter(tenant="c"), limit=10)).tasks
    suspended = Filter(statuses=tuple(SUSPENDED), updated_after=0)
    assert len((await store.views.find(suspended, limit=10)).tasks) == 1
    [lined] = await store.views.tenants(["c"], line_limit=10)
    assert len(lined.line) == 1
    assert [view.waiting for view in await store.views.tenants(["c"])] == [1]
    assert await store.views.workers(live_within_seconds=60) == []
    assert await store.admin.audits(limit=10)
    [newest] = (await store.views.find(Filter(tenant="b"), limit=10)).tasks
    assert (await driver.detail(newest)).checkpoint
    assert await store.views.checkpoint(newest.id)
    assert await store.views.peek([newest.id])
    assert not await store.admin.doctor(fix=False, limit=100)


async def schedule(driver: StoreDriver) -> None:
    """Triggers and plans."""
    triggers = TriggerDriver(driver.store, driver.clock, driver)
    plans = PlanStoreDriver(driver.store, driver.clock)
    await triggers.fire(await triggers.start(name="a"))
    await driver.complete(await driver.take())
    await triggers.settle(await triggers.save("b"))
    await triggers.save_due("c")
    assert await triggers.due() == await triggers.claim_ids() == ["c"]
    assert await triggers.all_ids(limit=1) == ["a", "b", "c"]
    assert await triggers.port.remove("c")
    plan = await plans.drive(await plans.start(name="p"), moves={0: ADMITTED})
    plan = await plans.drive(plan, moves={0: WAITING}, status=PlanStatus.COMPLETED)
    await plans.ask(plan, status=PlanStatus.ROLLING_BACK)
    assert await plans.renew(await plans.take_one())
    assert await plans.all_ids() == ["p"]
    assert len(await plans.port.events("p", limit=10)) == plan.version + 1
    await plans.create_settled(name="q", keep_seconds=0)


async def mend(driver: StoreDriver, place: Place) -> None:
    kept = await driver.complete(await driver.start(tenant="d", key="k"))
    running = await driver.start(tenant="e", key="k")
    broken, ready = [await driver.submit() for _ in range(2)]
    place.damage("DEL", "key:d|k")
    place.damage("EXPIRE", "key:e|k", "1000")
    place.damage("DEL", f"index:time:{day(kept.created_at)}")
    place.damage("SADD", "index:time:1999-12-31", ready.id)
    place.damage("DEL", "lock:tenant:e")
    place.damage("HSET", f"task:{broken.id}", "failures", "many")
    place.damage("DEL", f"events:{running.id}")
    place.damage("ZADD", "leases", "1", "nobody")
    place.damage("HSET", "counts", "default ready", "99")
    place.damage("ZADD", "triggers:due", "1", "nobody")
    for name in ("triggers:due", "plans:due", "plans"):
        place.damage("DEL", name)
    place.damage("HSET", "plan:p:members", "1", '["admitted",1]')
    place.damage("HSET", "plan:p", "counts", '[{"admitted":1}]')
    found = await driver.store.admin.doctor(fix=True, limit=100)
    assert len(found) > 5
    left = await driver.store.admin.doctor(fix=False, limit=100)
    assert not left


async def clean(driver: StoreDriver) -> None:
    driver.clock.advance(400 * DAY)
    for kind in Kept:
        for dry_run in (True, False):
            await driver.store.admin.prune(kind, older_than_seconds=0, limit=100, dry_run=dry_run)
    assert not await driver.store.admin.audits(limit=10)


async def work(url: str) -> None:
    """By the server's own time, with the bell."""
    app = Holdfast(url)

    @app.task("acl.echo")
    async def echo(ctx: Context, text: str) -> str:
        return text

    async with app.running():
        handle = await echo.submit("hello", tenant="t")
        assert await handle.result(timeout=BOUND_SECONDS) == "hello"


def command(url: str) -> None:
    for words in ("doctor --fix", "stats", "tasks list", "prune --older-than 0s"):
        result = CliRunner().invoke(cli, words.split(), env={"HOLDFAST_STORE": url})
        assert result.exit_code in (Exit.OK, Exit.FAILED), result.output  # it may not see settings
        assert "error:" not in result.stderr


def admitted(server: RedisServer, *acl: str) -> str:
    """The lines given to the server, and the URL for the user that they make."""
    with server.client() as client:
        for line in acl:
            client.execute_command(*line.replace(">PASSWORD", ">pw").split())
    return server.url.replace("redis://", "redis://holdfast:pw@")


def denied(server: RedisServer) -> set[str]:
    with server.client() as client:
        found = {entry["object"] for entry in client.acl_log(100)}
        client.acl_log_reset()
    return found


@pytest.mark.parametrize("optional", [False, True])
async def test_as_that_user_everything_works(start_redis: StartRedis, optional: bool) -> None:
    server = start_redis(appendonly=True)
    needed, _, more = lines()
    url = admitted(server, needed, *([more] if optional else []))
    with server.client() as admin:
        await live(Place(url, admin))
    told = {name.partition("|")[0] for name in denied(server)}
    looked_at = {name.partition("|")[0] for name in commands_in(more)}
    assert told == (set() if optional else looked_at - {"role"})


async def test_as_that_user_everything_works_on_a_cluster() -> None:
    _, needed, more = lines()
    with Cluster(replicas=False, appendonly=True) as cluster:
        for server in cluster.servers:
            admitted(server, needed, more)
        url = cluster.url.replace("cluster://", "cluster://holdfast:pw@") + "?partitions=1"
        with cluster.master_of("{executor-00}:meta").client() as admin:
            await live(Place(url, admin, "{executor-00}"))
        assert set.union(*(denied(server) for server in cluster.servers)) == set()


async def test_that_user_sees_no_other_names(start_redis: StartRedis) -> None:
    server = start_redis()
    url = admitted(server, lines()[0])
    with pytest.raises(StoreUnusable, match=r"'holdfast'.*docs/redis.md"):
        await RedisStore(url, ManualClock(), "other").open()


@pytest.mark.slow
async def test_without_any_one_of_the_commands_something_is_refused(
    start_redis: StartRedis,
) -> None:
    server = start_redis(appendonly=True)
    needed, _, more = lines()
    spared = []
    with server.client() as admin:
        for name in sorted(commands_in(needed)):
            admin.flushall()
            admin.script_flush()
            without = [word for word in needed.split() if word != f"+{name}"]
            url = admitted(server, "ACL DELUSER holdfast", " ".join(without), more)
            with suppress(HoldfastError, AssertionError):
                await live(Place(url, admin))
            if not denied(server):
                spared.append(name)
    assert spared == []
