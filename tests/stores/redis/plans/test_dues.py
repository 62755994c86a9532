"""Triggers and plans on Redis: what cannot be read or does not agree, a full memory, their size."""

import logging
from collections.abc import AsyncIterator, Callable

import pytest

from holdfast.domain.errors import SerialisationError, StoreForeign, StoreFull
from holdfast.domain.plan.plan import MemberState, PlanStatus
from holdfast.domain.trigger.trigger import Changed, NoRoom, TriggerStatus
from holdfast.ports.trigger_shortcuts import TriggerShortcuts
from holdfast.stores.redis import scripts
from holdfast.stores.redis.encoding import plan_trigger_hash
from holdfast.testing.contract.drivers.plan_driver import ADMITTED, COMPLETED, PlanStoreDriver
from holdfast.testing.contract.drivers.trigger_driver import TriggerDriver
from tests.stores.redis.client.test_full import LARGE, fill
from tests.support.redis.redis_servers import StartRedis
from tests.support.redis.redis_stores import Bench, benched
from verify.servers import RedisServer

LIMIT = 100
SLOTS = 10_000


class Dues(Bench):
    """With a scheduler's and a driver's hands."""

    triggers: TriggerDriver
    plans: PlanStoreDriver


def with_driver(bench: Bench) -> Dues:
    bench.__class__ = Dues
    assert isinstance(bench, Dues)
    bench.triggers = TriggerDriver(bench.store, bench.clock, bench.driver)
    bench.plans = PlanStoreDriver(bench.store, bench.clock)
    return bench


@pytest.fixture
async def bench(redis_server: RedisServer, redis_namespace: str) -> AsyncIterator[Dues]:
    async with benched(redis_server, redis_namespace) as bench:
        yield with_driver(bench)


@pytest.fixture
def server(start_redis: StartRedis) -> RedisServer:
    return start_redis(appendonly=True, lines=["maxmemory-policy noeviction"])


async def told(bench: Dues, *, fix: bool = False) -> list[str]:
    return [finding.message for finding in await bench.store.admin.doctor(fix=fix, limit=LIMIT)]


# -- what cannot be read


UNREADABLE_TRIGGER: dict[str, tuple[str, ...]] = {
    "a schedule of no kind": ("HSET", "trigger:bad", "kind", "never"),
    "a time that is none": ("HSET", "trigger:bad", "createdAt", "yesterday"),
    "no version": ("HDEL", "trigger:bad", "version"),
    "a status that is none": ("HSET", "trigger:bad", "misfire", "perhaps"),
    "another's record": ("HSET", "trigger:bad", "id", "other"),
    "bytes that are no text": ("HSET", "trigger:bad", "reason", "\udcff"),
}


@pytest.mark.parametrize("name", UNREADABLE_TRIGGER)
async def test_a_trigger_that_cannot_be_read_stops_none_of_its_neighbours(
    bench: Dues, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    for one in ("a", "bad", "c"):
        await bench.triggers.save_due(one)
    command, key, *args = UNREADABLE_TRIGGER[name]
    bench.ask(command, key, *(arg.encode(errors="surrogateescape") for arg in args))
    assert await bench.triggers.due() == ["a", "c"]
    with caplog.at_level(logging.WARNING):
        assert await bench.triggers.claim_ids() == ["a", "c"]
    assert "bad" in caplog.text
    caplog.clear()
    bench.clock.advance(3600)
    assert await bench.triggers.claim_ids() == ["a", "c"]  # it is not met again
    assert caplog.text == ""
    (says,) = await told(bench, fix=True)
    assert says.startswith("trigger bad: ")
    assert await bench.triggers.claim_ids() == []
    assert await bench.triggers.all_ids() == ["a", "c"]
    with pytest.raises(SerialisationError):
        await bench.store.triggers.find("bad")
    again = await bench.triggers.save_due("bad")
    assert await bench.triggers.claim_ids() == [again.id]
    assert await told(bench) == []


async def test_a_trigger_under_a_key_of_another_program_is_told(bench: Dues) -> None:
    await bench.triggers.save_due("a")
    held = await bench.triggers.start(name="bad")
    bench.ask("DEL", "trigger:bad")
    bench.ask("SET", "trigger:bad", "foreign")
    bench.clock.advance(31)
    assert await bench.triggers.claim_ids() == ["a"]
    for ask in (
        bench.store.triggers.find("bad"),
        bench.triggers.fire(held),
        bench.triggers.save("bad"),
    ):
        with pytest.raises(StoreForeign, match="trigger:bad"):
            await ask
    assert await bench.triggers.tasks() == []
    assert any("trigger:bad is a string" in says for says in await told(bench))
    bench.ask("DEL", "trigger:bad")
    await told(bench, fix=True)


@pytest.mark.parametrize(
    "damage", [("waves", "[]"), ("version", "many"), ("counts", "{}"), ("planId", "other")]
)
async def test_a_plan_that_cannot_be_read_stops_none_of_its_neighbours(
    bench: Dues, caplog: pytest.LogCaptureFixture, damage: tuple[str, str]
) -> None:
    for one in ("a", "bad", "c"):
        await bench.plans.ready(one)
    bench.ask("HSET", "plan:bad", *damage)
    with caplog.at_level(logging.WARNING):
        assert await bench.plans.claim_ids() == ["a", "c"]
    assert "plan bad" in caplog.text
    bench.clock.advance(3600)
    assert await bench.plans.claim_ids() == ["a", "c"]
    (says,) = await told(bench, fix=True)
    assert says.startswith("plan bad: ")
    assert await bench.plans.claim_ids() == []
    assert list(await bench.store.plans.load(["bad"])) == [None]
    bench.ask("DEL", "plan:bad")
    await told(bench, fix=True)
    assert await told(bench) == []


async def test_a_plan_with_members_of_another_program_is_not_half_written(bench: Dues) -> None:
    plan = await bench.plans.start(name="p")
    bench.ask("SET", "plan:p:members", "foreign")
    before = bench.ask("HGETALL", "plan:p")
    with pytest.raises(StoreForeign, match="plan:p:members"):
        await bench.plans.drive(plan, moves={0: ADMITTED})
    assert bench.ask("HGETALL", "plan:p") == before
    bench.ask("DEL", "plan:p:members")


async def test_a_plan_made_anew_inherits_nothing(bench: Dues) -> None:
    plan = await bench.plans.start(name="p")
    await bench.plans.drive(plan, moves={0: ADMITTED})
    bench.ask("DEL", "plan:p")
    again = await bench.plans.create("p")
    assert await bench.store.plans.members("p") == {}
    assert len(await bench.store.plans.events("p", limit=10)) == 1
    assert bench.ask("ZRANGE", "plan:p:admitted", 0, -1) == []
    assert (again.version, again.fence, again.lease) == (1, 0, None)
    await told(bench, fix=True)


@pytest.mark.parametrize("key", ["plan:p", "plan:p:members", "plan:p:admitted", "plan:p:events"])
async def test_a_plan_is_not_made_over_keys_of_another_program(bench: Dues, key: str) -> None:
    bench.ask("SET", key, "foreign")
    before = bench.names()
    with pytest.raises(StoreForeign, match=key):
        await bench.plans.create("p")
    assert bench.names() == before
    bench.ask("DEL", key)


@pytest.mark.parametrize("name", ["lease:a", "a:members", "", "a b", "*"])
async def test_a_name_that_none_can_have_is_not_found(bench: Dues, name: str) -> None:
    await bench.triggers.take(await bench.triggers.save("a"))
    await bench.plans.start(name="a")
    assert await bench.store.triggers.find(name) is None
    assert await TriggerShortcuts(bench.store).remove(name) is False
    assert list(await bench.store.plans.load([name, "a"])) == [None, await one_plan(bench)]
    assert await bench.store.plans.tasks(name) is None
    assert await bench.store.plans.members(name) == {}


async def one_plan(bench: Dues) -> object:
    ((plan,),) = [(await bench.store.plans.find(limit=1)).plans]
    return plan


# -- what does not agree


def plain(command: str, *args: object) -> Callable[[Dues], object]:
    return lambda bench: bench.ask(command, *args)  # type: ignore[arg-type]


DAMAGE: dict[str, Callable[[Dues], object]] = {
    "a trigger is not listed": plain("ZREM", "triggers", "waits"),
    "a declared trigger is not listed": plain("DEL", "triggers:declared"),
    "a trigger that no code declares is listed": plain("ZADD", "triggers:declared", 0, "waits"),
    "a trigger that waits is nowhere": plain("ZREM", "triggers:due", "waits"),
    "a trigger waits for another time": plain("ZADD", "triggers:due", 1, "waits"),
    "a trigger that is leased waits, too": plain("ZADD", "triggers:due", 1, "leased"),
    "a lease is not in the list": plain("DEL", "triggers:leased"),
    "a lease ends at another time": plain("ZADD", "triggers:leased", 1, "leased"),
    "a trigger that waits is leased, too": plain("ZADD", "triggers:leased", 1, "waits"),
    "an ended trigger is not listed": plain("DEL", "triggers:ended"),
    "a trigger that waits has ended": plain("ZADD", "triggers:ended", 1, "waits"),
    "a trigger without a record is due": plain("ZADD", "triggers:due", 1, "nobody"),
    "a trigger without a record is declared": plain("ZADD", "triggers:declared", 0, "nobody"),
    "a trigger without a record is listed": plain("ZADD", "triggers", 0, "nobody"),
    "a plan is not listed": plain("DEL", "plans"),
    "a plan without a record is listed": plain("ZADD", "plans", 0, "2026-01-01 nobody"),
    "a plan without a record is due": plain("ZADD", "plans:due", 1, "nobody"),
    "a driven plan is not looked at again": plain("ZREM", "plans:due", "driven"),
    "a plan that is ready is not looked at": plain("ZREM", "plans:due", "ready"),
    "a plan is looked at another time": plain("ZADD", "plans:due", 1, "driven"),
    "a plan that has settled is looked at": plain("ZADD", "plans:due", 1, "settled"),
    "a slot is forgotten": plain("DEL", "plan:driven:admitted"),
    "a slot is too much": plain("ZADD", "plan:driven:admitted", 3, "driven.task-3"),
    "a slot is another's": lambda b: (
        b.ask("DEL", "plan:driven:admitted"),
        b.ask("ZADD", "plan:driven:admitted", 0, "driven.task-9"),
    ),
}


@pytest.fixture
async def stocked(bench: Dues) -> Dues:
    await bench.triggers.save("waits", due_in=63.25)
    await bench.triggers.take(await bench.triggers.save("leased", declared=True))
    await bench.triggers.settle(await bench.triggers.save("ended"))
    plan = await bench.plans.start(name="settled")
    await bench.plans.drive(plan, status=PlanStatus.COMPLETED)
    plan = await bench.plans.start(name="driven")
    await bench.plans.drive(plan, moves={0: ADMITTED, 1: COMPLETED})
    await bench.plans.ready("ready", delay_seconds=9)
    assert await told(bench) == []
    return bench


@pytest.mark.parametrize("name", DAMAGE)
async def test_what_does_not_agree_is_found_and_mended(stocked: Dues, name: str) -> None:
    before = everything(stocked)
    DAMAGE[name](stocked)
    found = await told(stocked)
    assert found
    assert everything(stocked) != before
    assert await told(stocked, fix=True) == found
    assert await told(stocked) == []
    assert everything(stocked) == before


def everything(bench: Dues) -> dict[str, object]:
    triggers = ("triggers", *(f"triggers:{name}" for name in "declared due leased ended".split()))
    plans = ("plans", "plans:due", "plan:driven:admitted", "plans:settled")
    return {name: bench.ask("ZRANGE", name, 0, -1, "WITHSCORES") for name in (*triggers, *plans)}


async def test_a_plan_that_miscounts_its_members_is_told(stocked: Dues) -> None:
    stocked.ask("HDEL", "plan:driven:members", 1)
    (says,) = await told(stocked, fix=True)
    assert says.startswith("plan driven counts {'admitted': 1, 'completed': 1} in wave 0")
    stocked.ask("HSET", "plan:driven:members", 1, '["completed",3]')


async def test_our_keys_are_no_strangers_to_the_doctor(stocked: Dues) -> None:
    stocked.ask("SET", "triggers:due:x", "of another program")
    assert await told(stocked) == []


# -- a full memory


async def test_with_the_memory_full_what_adds_is_refused_and_what_ends_gets_through(
    server: RedisServer,
) -> None:
    async with benched(server, "full") as made:
        bench = with_driver(made)
        triggers, plans = bench.triggers, bench.plans
        fires, ends = await triggers.save_due("fires"), await triggers.save_due("ends")
        plan = await plans.start(name="p")
        fill(server)
        with pytest.raises(StoreFull):
            await triggers.save("more", reason=LARGE)
        with pytest.raises(StoreFull):
            await plans.create("more", digest=LARGE)
        held = {one.id: one for one in (await triggers.claim()).records}
        assert set(held) == {fires.id, ends.id}
        with pytest.raises(StoreFull):
            await triggers.fire(held["fires"])
        assert await triggers.load(fires) == held["fires"]
        assert await triggers.tasks() == []
        put_off = triggers.change(held["fires"], fire_time=held["fires"].fire_time)
        assert isinstance(await triggers.apply(put_off), Changed)
        await triggers.settle(held["ends"])
        assert await plans.renew(plan) is True
        plan = await plans.drive(plan, moves={0: ADMITTED})
        await plans.drive(plan, moves={0: COMPLETED}, status=PlanStatus.COMPLETED)
        assert await triggers.port.remove(ends.id) is True
        assert await told(bench) == []


# -- firing


async def test_nothing_is_written_of_a_change_whose_second_queue_cannot_be_used(
    bench: Dues,
) -> None:
    bench.ask("SET", "queue:tasks:mail", "foreign")
    held = await bench.triggers.start(name="a")
    tasks = [
        bench.triggers.submission(held, key=f"k-{queue}", queue=queue)
        for queue in ("default", "mail")
    ]
    before = bench.names()
    with pytest.raises(StoreForeign, match="queue:tasks:mail"):
        await bench.triggers.commit(bench.triggers.change(held, *tasks))
    assert bench.names() == before
    assert await bench.triggers.load(held) == held
    bench.ask("DEL", "queue:tasks:mail")


async def test_a_change_that_found_no_room_takes_none_from_the_next(bench: Dues) -> None:
    first, second = [await bench.triggers.start(name) for name in "ab"]
    three = [bench.triggers.submission(first, key=f"k-{n}") for n in range(3)]
    changes = [bench.triggers.change(first, *three), bench.triggers.decide_fire(second)]
    found = await bench.store.triggers.apply(changes, depth_limit=2)
    assert [type(one) for one in found] == [NoRoom, Changed]
    assert len(await bench.triggers.tasks()) == 1


async def test_a_batch_of_firings_goes_in_many_short_steps(bench: Dues) -> None:
    names = [f"t-{n:03}" for n in range(70)]
    for name in names:
        await bench.triggers.save_due(name)
    leased = (await bench.triggers.claim(limit=60)).records
    assert [one.id for one in leased] == names[:60]
    changes = [
        bench.triggers.decide_fire(one) if n % 5 else bench.triggers.change(one)
        for n, one in enumerate(leased)
    ]
    found = await bench.store.triggers.apply(changes, depth_limit=1000)
    made = [len(one.tasks) for one in found if isinstance(one, Changed)]
    assert made == [1 if n % 5 else 0 for n in range(60)]
    assert await bench.triggers.claim_ids() == names[60:]


async def test_what_is_written_is_counted_so_that_a_loss_is_noticed(bench: Dues) -> None:
    def writes() -> int:
        return int(bench.ask("HGET", "meta", "writes") or 0)

    held = await bench.triggers.start(name="a")
    assert writes() == 2
    await bench.triggers.fire(held)  # the change, and its task
    assert writes() == 4
    await bench.plans.start()  # created, sealed, handed out
    assert writes() == 7


# -- size


async def test_ten_thousand_tasks_are_written_once_and_not_read_by_the_way(bench: Dues) -> None:
    assert plan_trigger_hash.TASKS.name not in plan_trigger_hash.PLAN_NAMES
    for script in (scripts.PLAN_CLAIM, scripts.PLAN_APPLY, scripts.PLAN_RENEW):
        assert plan_trigger_hash.TASKS.name not in script.source
        assert "HGETALL" not in script.source
    plan = await bench.plans.start(name="p", size=SLOTS, waves=(1, SLOTS))
    plan = await bench.plans.drive(plan, moves=dict.fromkeys(range(500), ADMITTED))
    moves = dict.fromkeys(range(500), COMPLETED) | dict.fromkeys(range(500, 1000), ADMITTED)
    plan = await bench.plans.drive(plan, moves=moves)
    assert plan.count(MemberState.COMPLETED) == 500
    admitted = bench.ask("ZRANGE", "plan:p:admitted", 0, -1, "WITHSCORES")
    assert admitted == [[f"p.task-{n}", float(n)] for n in range(500, 1000)]
    assert len(await bench.store.plans.members("p")) == 1000
    tasks = await bench.store.plans.tasks("p")
    assert tasks is not None
    assert len(tasks.ids) == SLOTS
    assert await told(bench) == []


async def test_a_status_that_the_store_does_not_know_of_is_data(bench: Dues) -> None:
    """No script names one."""
    names = [*TriggerStatus]
    for script in vars(scripts).values():
        source = getattr(script, "source", "")
        assert not [name for name in names if f"'{name}'" in source]
