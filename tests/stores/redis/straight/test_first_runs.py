"""First runs are handed out on the straight path as on the general one."""

import asyncio
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.domain.audit import Audit
from holdfast.domain.task.state import Command
from holdfast.ports import Switch
from holdfast.testing.contract.drivers.store_driver import ASKER, LEASE_SECONDS, StoreDriver
from tests.support.redis.path_comparison import OneWay, Ways, opened_ways
from verify.servers import RedisServer

QUEUES = ("default", "slow")


async def set_switch(
    driver: StoreDriver, switch: Switch, name: str, *, on: bool, seconds: float | None = None
) -> bool:
    now = driver.clock.now()
    entry = Audit(task_id=name, command=switch, by=ASKER, at=now, before="", after="")
    until = now + seconds if seconds is not None else None
    return await driver.store.admin.set_switch(switch, name, on=on, audit=entry, until=until)


async def drain(ways: Ways, *, limit: int = 100, queues: tuple[str, ...] = QUEUES) -> list[str]:
    """Claim and complete until nothing is ready; return the ids in the order of the claims."""
    ids: list[str] = []
    for _ in range(50):
        claimed = await ways.compare(lambda d: d.claim(queues=queues, limit=limit))
        if not claimed:
            return ids
        ids += [one.task.id for one in claimed]
        for task_id in ids[-len(claimed) :]:
            await ways.compare(partial(complete, task_id=task_id))
    raise AssertionError("there is always more")


async def complete(driver: StoreDriver, task_id: str) -> None:
    await driver.complete(await driver.load(task_id))


def commands(server: RedisServer) -> dict[str, int]:
    """Return how often the server has carried out each command since its counts were reset."""
    with server.client() as client:
        stats: dict[str, Any] = client.info("commandstats")
    return {name.removeprefix("cmdstat_"): facts["calls"] for name, facts in stats.items()}


# -- what is usual


@pytest.mark.parametrize("tenants", [False, True])
async def test_a_batch_of_usual_first_runs_is_read_at_once(
    ways: Ways, redis_server: RedisServer, tenants: bool
) -> None:
    await ways.compare(lambda d: d.start())  # makes the group of the queue
    for n in range(5):
        await ways.compare(partial(StoreDriver.submit, tenant=f"t-{n}" if tenants else None))
    with redis_server.client() as client:
        client.config_resetstat()
    assert len(await ways.straight.driver.claim()) == 5
    sent = commands(redis_server)
    assert (sent["mget"], sent["exists"], sent["hmget"]) == (1, 2 if tenants else 1, 5)
    assert not sent.keys() & {"get", "zrange"}  # the general way sends these
    assert (sent["hset"], sent["zadd"], sent["zrem"]) == (5 + 2 + tenants, 2, 1)
    await ways.general.driver.claim()
    ways.compare_keys()


async def test_first_runs_with_all_that_a_submit_may_say(ways: Ways) -> None:
    said: list[dict[str, Any]] = [
        {"payload": {"text": "ä\n\n"}},
        {"type": "mail.send", "tenant": "t-1", "key": "k-1", "plan": "p-1"},
        {"stages": ("only",), "workflow": True, "hold": True, "tenant": "t-2", "retry_max": 9},
        {"trace_id": "trace", "user": {"id": 7}, "callback": "https://x.test", "effects": "e"},
        {"keep_seconds": 5.0, "type": "mail.send"},
        {"type": "mail.send", "tenant": "t-1"},
    ]
    for fields in said:
        ways.advance(0.123457)
        await ways.compare(partial(StoreDriver.submit, **fields))
        await ways.compare(partial(StoreDriver.submit, queue="slow", **fields | {"key": None}))
    ways.advance(1.1)
    claimed = await ways.compare(lambda d: d.claim(queues=QUEUES))
    assert len(claimed) == 8  # the others wait behind their tenant's first
    for one in claimed:
        assert one.task == await ways.straight.driver.load(one.task.id)
        await ways.compare(partial(complete, task_id=one.task.id))
    assert len(await drain(ways)) == 4


async def test_tasks_come_in_order_of_preference_up_to_the_limit(ways: Ways) -> None:
    ids: dict[str, list[str]] = {"slow": [], "default": []}
    for queue in ids:
        await ways.compare(partial(StoreDriver.start, queue=queue))  # makes its group
    for queue in ("slow", "default", "slow"):
        ways.advance(0.7)
        ids[queue] += await ways.compare(partial(StoreDriver.submit_many, number=3, queue=queue))
    order = [*ids["default"], *ids["slow"]]
    for at in range(0, 8, 2):
        claim = partial(StoreDriver.claim_ids, queues=QUEUES, limit=2)
        assert await ways.compare(claim) == order[at : at + 2]
    assert await drain(ways, queues=("slow",)) == order[8:]
    assert await ways.compare(lambda d: d.claim_ids(queues=QUEUES)) == []


async def test_a_claim_without_limit_queue_or_tasks_gets_nothing(ways: Ways) -> None:
    assert await ways.compare(lambda d: d.claim_ids()) == []
    task = await ways.compare(lambda d: d.submit())
    assert await ways.compare(lambda d: d.claim_ids(limit=0)) == []
    assert await ways.compare(lambda d: d.claim_ids(queues=())) == []
    assert await ways.compare(lambda d: d.claim_ids(queues=("slow", "default"))) == [task.id]


async def test_fences_rise_from_task_to_task_and_from_claim_to_claim(ways: Ways) -> None:
    await ways.compare(lambda d: d.submit_many(4))
    fences = []
    for limit in (3, 1):
        claimed = await ways.compare(lambda d, limit=limit: d.claim(limit=limit))  # type: ignore[misc]
        fences += [one.task.fence for one in claimed]
    assert fences == sorted(set(fences))
    assert len(fences) == 4


async def test_a_repeated_request_gets_what_it_was_given_and_nothing_new(ways: Ways) -> None:
    await ways.compare(lambda d: d.submit_many(2))
    request = partial(StoreDriver.claim, request="again", limit=3)
    first = await ways.compare(request)
    await ways.compare(lambda d: d.submit_many(2))
    again = await ways.compare(request)
    assert [one.task for one in again] == [one.task for one in first]
    assert len(await ways.compare(lambda d: d.claim(limit=3))) == 2


# -- what is not, between what is


async def test_tasks_given_back_and_retried_come_in_their_turn(ways: Ways) -> None:
    given_back = (await ways.compare(lambda d: d.start())).id
    failed = (await ways.compare(lambda d: d.start(tenant="t-1"))).id
    before = await ways.compare(lambda d: d.submit_many(2))
    await ways.compare(partial(again_later, given_back=given_back, failed=failed))
    between = await ways.compare(lambda d: d.submit(tenant="t-2"))
    await ways.compare(lambda d: d.promote_after(60))
    behind = await ways.compare(lambda d: d.submit(type="mail.send"))
    order = [*before, given_back, between.id, failed, behind.id]
    assert await drain(ways, limit=4) == order


async def again_later(driver: StoreDriver, given_back: str, failed: str) -> None:
    await driver.give_back(await driver.load(given_back))
    await driver.fail(await driver.load(failed), retry_seconds=30)


async def test_lapsed_leases_come_first_in_their_queue(ways: Ways) -> None:
    lapsed = await ways.compare(lambda d: d.submit_many(2, queue="slow"))
    await ways.compare(lambda d: d.claim("dead", queues=("slow",)))
    await ways.compare(lambda d: d.lapse())
    wanted = await ways.compare(lambda d: d.submit_many(2))
    new = await ways.compare(lambda d: d.submit_many(2, queue="slow"))
    heir = partial(StoreDriver.claim_ids, worker="heir", queues=QUEUES, limit=3)
    assert await ways.compare(heir) == [*wanted, lapsed[1]]  # the newest submit first
    assert await drain(ways) == [lapsed[0], *new]


async def test_only_the_first_of_a_tenants_line_is_handed_out(ways: Ways) -> None:
    for tenant in ("t-1", "t-2", "t-1", "t-1"):
        await ways.compare(partial(StoreDriver.submit, tenant=tenant))
    assert await ways.compare(lambda d: d.claim_ids(limit=1)) == ["task-000001"]
    await ways.compare(partial(complete, task_id="task-000001"))
    assert await drain(ways) == ["task-000002", "task-000003", "task-000004"]


async def test_a_held_tenants_task_is_left_until_the_release(ways: Ways) -> None:
    hold = partial(set_switch, switch=Switch.HOLD)
    for tenant in ("t-1", "t-2", "t-3"):
        await ways.compare(partial(StoreDriver.submit, tenant=tenant))
    await ways.compare(lambda d: d.submit_many(1))
    await ways.compare(lambda d: hold(d, name="t-2", on=False))
    await ways.compare(lambda d: hold(d, name="t-3", on=False, seconds=5))
    ways.advance(5)  # over by now
    assert await ways.compare(lambda d: d.claim_ids()) == [f"task-{n:06d}" for n in (1, 3, 4)]
    await ways.compare(lambda d: hold(d, name="t-2", on=True))
    assert await ways.compare(lambda d: d.claim_ids()) == ["task-000002"]


async def test_a_queue_whose_claiming_is_off_is_passed_over(ways: Ways) -> None:
    await ways.compare(lambda d: d.submit_many(2))
    await ways.compare(lambda d: d.submit_many(2, queue="slow"))
    claiming = partial(set_switch, switch=Switch.CLAIMING, name="default")
    await ways.compare(lambda d: claiming(d, on=False))
    assert await ways.compare(lambda d: d.claim_ids(queues=QUEUES)) == [
        "task-000003",
        "task-000004",
    ]
    await ways.compare(lambda d: claiming(d, on=True))
    assert len(await drain(ways)) == 2


async def test_what_was_paused_or_cancelled_while_it_waited_is_not_handed_out(ways: Ways) -> None:
    await ways.compare(lambda d: d.submit_many(4))
    for number, command in ((2, Command.PAUSE), (3, Command.CANCEL)):
        task_id = f"task-{number:06d}"
        await ways.compare(partial(ask, command=command, task_id=task_id))
    assert await drain(ways) == ["task-000001", "task-000004"]
    await ways.compare(partial(ask, command=Command.RESUME, task_id="task-000002"))
    assert await drain(ways) == ["task-000002"]


async def ask(driver: StoreDriver, command: Command, task_id: str) -> None:
    await driver.ask(command, await driver.load(task_id))


# -- what is damaged, foreign or in the way


async def submit_among(ways: Ways, at: int = 1, **fields: Any) -> str:
    """Submit three tasks, and return the id of the one at this place, which has the fields."""
    ids = []
    for place in range(3):
        named = fields if place == at else {}
        ids.append((await ways.compare(partial(StoreDriver.submit, **named))).id)
    return str(ids[at])


RECORDS: dict[str, tuple[str, ...]] = {
    "of another version": ("HSET", "version", "7"),
    "with a version that is no number": ("HSET", "version", "x"),
    "in another place": ("HSET", "place", "line"),
    "without a place": ("HDEL", "place"),
    "of another entry": ("HSET", "entry", "1-1"),
    "without an entry": ("HDEL", "entry"),
    "of a status that does not wait": ("HSET", "status", "PAUSED"),
    "of another status that may start": ("HSET", "status", "ROLLING_BACK"),
    "of no status": ("HSET", "status", "WHATEVER"),
    "without a status": ("HDEL", "status"),
    "with an order that is no number": ("HSET", "order", "first"),
    "without an order": ("HDEL", "order"),
    "with a time that is no number": ("HSET", "statusSince", "noon"),
    "that waited from tomorrow on": ("HSET", "statusSince", "9999999999.5"),
    "without a time": ("HDEL", "statusSince"),
    "without a tenant": ("HDEL", "tenantId"),
    "that is gone": ("DEL",),
    "that is a text": ("SET", "foreign"),
}


@pytest.mark.parametrize("record", RECORDS)
@pytest.mark.parametrize(("at", "tenant"), [(0, None), (1, "t-1")])
async def test_a_record(ways: Ways, record: str, at: int, tenant: str | None) -> None:
    task_id = await submit_among(ways, at, tenant=tenant)
    ways.damaged = True
    command, *args = RECORDS[record]
    if command == "SET":
        ways.ask("DEL", f"task:{task_id}")
    ways.ask(command, f"task:{task_id}", *args)
    claimed = await ways.compare(lambda d: d.claim_ids())
    assert {f"task-{n:06d}" for n in (1, 2, 3)} - {task_id} <= set(claimed)
    await ways.compare(lambda d: d.claim_ids("w-2"))


PAYLOADS: dict[str, tuple[str, ...]] = {
    "that is gone": ("DEL",),
    "that is a list": ("RPUSH", "foreign"),
    "that was replaced": ("SET", '\n{"new": 1}'),
    "without a line": ("SET", ""),
    "with a line that cannot be read": ("SET", "{}\n{}"),
}


@pytest.mark.parametrize("payload", PAYLOADS)
async def test_a_payload(ways: Ways, payload: str) -> None:
    task_id = await submit_among(ways)
    ways.damaged = True
    command, *args = PAYLOADS[payload]
    ways.ask("DEL", f"payload:{task_id}")
    ways.ask(command, f"payload:{task_id}", *args)
    claimed = await ways.compare(lambda d: d.claim_ids())
    assert {"task-000001", "task-000003"} <= set(claimed)


LOCKS: dict[str, tuple[str, ...]] = {
    "of another that runs": ("SET", "task-000001"),
    "of nobody": ("SET", "nobody"),
    "of its own": ("SET", "task-000003"),
    "that is a list": ("RPUSH", "foreign"),
}


@pytest.mark.parametrize("lock", LOCKS)
async def test_a_lock(ways: Ways, lock: str) -> None:
    await ways.compare(lambda d: d.start(tenant="t-0"))
    await submit_among(ways)
    await ways.compare(lambda d: d.submit(tenant="t-1"))
    ways.damaged = True
    command, *args = LOCKS[lock]
    ways.ask(command, "lock:tenant:t-1", *args)
    claimed = await ways.compare(lambda d: d.claim_ids())
    assert "task-000005" in claimed or "runs" in lock


ENTRIES: dict[str, tuple[str, ...]] = {
    "of nobody": ("taskId", "nobody", "type", "test.work"),
    "of something else": ("something", "else"),
    "of a task that is ready under another": ("taskId", "task-000001", "type", "test.work"),
    "of a task that is behind": ("taskId", "task-000003", "type", "test.work"),
}


@pytest.mark.parametrize("entry", ENTRIES)
async def test_an_entry(ways: Ways, entry: str) -> None:
    await ways.compare(lambda d: d.submit_many(2))
    ways.ask("XADD", "queue:tasks", "*", *ENTRIES[entry])
    await ways.compare(lambda d: d.submit_many(2))
    assert await drain(ways, limit=4) == [f"task-{n:06d}" for n in range(1, 5)]


def forge(way: OneWay, task_id: str, *fields: str) -> None:
    """Give a task an entry by hand: it is as ready as its record then says."""
    entry = way.ask("XADD", "queue:tasks", "*", "taskId", task_id, *fields)
    way.ask("HSET", f"task:{task_id}", "place", "ready", "entry", entry)


async def test_an_entry_need_not_name_the_type(ways: Ways) -> None:
    await ways.compare(lambda d: d.submit_many(2))
    for way in (ways.straight, ways.general):
        forge(way, "task-000002")
    assert await drain(ways) == ["task-000001", "task-000002"]


@pytest.mark.parametrize("first_has_run", [False, True])
async def test_two_tasks_of_a_tenant_in_one_batch_do_not_run_side_by_side(
    ways: Ways, first_has_run: bool
) -> None:
    await ways.compare(lambda d: d.start())
    if first_has_run:
        first = (await ways.compare(lambda d: d.start(tenant="t-1"))).id
        await ways.compare(partial(give_back, task_id=first))
    else:
        first = (await ways.compare(lambda d: d.submit(tenant="t-1"))).id
    second = (await ways.compare(lambda d: d.submit(tenant="t-1"))).id
    ways.damaged = True
    for way in (ways.straight, ways.general):
        forge(way, second, "type", "test.work")
    ways.ask("DEL", "line:t-1")
    assert await ways.compare(lambda d: d.claim_ids()) == [first]


async def give_back(driver: StoreDriver, task_id: str) -> None:
    await driver.give_back(await driver.load(task_id))


@pytest.mark.parametrize("key", ["queue:tasks", "back:default"])
async def test_a_foreign_key_in_the_place_of_a_queue(ways: Ways, key: str) -> None:
    ids = await ways.compare(lambda d: d.submit_many(2, queue="slow"))
    ways.damaged = True
    ways.ask("SET", key, "foreign")
    claim = partial(StoreDriver.claim_ids, queues=("slow", "default"), limit=3)
    assert await ways.compare(claim) == ids


@pytest.mark.parametrize("key", ["index:status:PENDING", "index:status:RUNNING", "fences"])
async def test_a_foreign_key_in_the_place_of_an_index(ways: Ways, key: str) -> None:
    await ways.compare(lambda d: d.submit_many(2))
    await ways.compare(lambda d: d.submit(tenant="t-1"))
    ways.ask("DEL", key)
    ways.damaged = True
    ways.ask("SET", key, "foreign")
    assert len(await ways.compare(lambda d: d.claim_ids())) == 3


async def test_a_user_who_may_not_read_many_keys_at_once_takes_the_general_way(
    redis_server: RedisServer, redis_namespace: str
) -> None:
    with redis_server.client() as client:
        client.acl_setuser(
            "older", enabled=True, passwords=["+pw"], keys=["*"], commands=["+@all", "-mget"]
        )
        way = OneWay(redis_server, redis_namespace, straight=True, user="older:pw")
        await way.store.open()
        await way.driver.submit_many(3)
        assert len(await way.driver.claim_ids(limit=2)) == 2
        assert len(await way.driver.claim_ids(limit=2)) == 1
        assert not await way.store.admin.doctor(fix=False, limit=10)
        await way.store.close()
        client.acl_deluser("older")


# -- anything in any order

_tenants = st.sampled_from([None, None, "t-1", "t-2"])
_queues = st.sampled_from(QUEUES)
_workers = st.sampled_from(["w-1", "w-2"])
_numbers = st.integers(0, 5)


def _move(name: str, **parts: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.tuples(st.just(name), st.fixed_dictionaries(parts))


_moves = st.one_of(
    _move("submit", number=st.integers(1, 3), tenant=_tenants, queue=_queues),
    _move("claim", worker=_workers, limit=st.integers(1, 4), queues=st.permutations(QUEUES)),
    _move("repeat", worker=_workers),
    _move("give_back", number=_numbers),
    _move("complete", number=_numbers),
    _move("fail", number=_numbers),
    _move("lapse", seconds=st.sampled_from([0.25, 7.5, LEASE_SECONDS + 1])),
    _move("hold", tenant=st.sampled_from(["t-1", "t-2"]), on=st.booleans()),
)


class Player:
    """The moves on one store, by the same numbers on each."""

    def __init__(self, driver: StoreDriver) -> None:
        self._driver = driver
        self._held: dict[str, None] = {}
        self._last: dict[str, dict[str, Any]] = {}
        self._requests = count(1)

    async def submit(self, number: int, **fields: Any) -> object:
        return await self._driver.submit_many(number, **fields)

    async def claim(self, worker: str, **terms: Any) -> object:
        self._last[worker] = {"request": f"r-{next(self._requests)}"} | terms
        return await self.repeat(worker)

    async def repeat(self, worker: str) -> object:
        if worker not in self._last:
            return None
        claimed = await self._driver.claim(worker, **self._last[worker])
        self._held |= dict.fromkeys(one.task.id for one in claimed)
        return claimed

    async def give_back(self, number: int) -> object:
        return await self._end(number, self._driver.give_back)

    async def complete(self, number: int) -> object:
        return await self._end(number, self._driver.complete)

    async def fail(self, number: int) -> object:
        return await self._end(number, partial(self._driver.fail, retry_seconds=5.0))

    async def _end(self, number: int, end: Callable[..., Any]) -> object:
        if not self._held:
            return None
        task_id = list(self._held)[number % len(self._held)]
        del self._held[task_id]
        task = await self._driver.load(task_id)
        return await end(task) if task.lease is not None else None

    async def lapse(self, seconds: float) -> object:
        self._driver.clock.advance(seconds)
        tasks = self._driver.store.tasks
        return await tasks.expire(limit=9, count_crashes=False), await tasks.promote(limit=9)

    async def hold(self, tenant: str, *, on: bool) -> object:
        return await set_switch(self._driver, Switch.HOLD, tenant, on=on)


_examples = count(1)


@settings(max_examples=25)
@given(moves=st.lists(_moves, min_size=5, max_size=25))
def test_any_moves_leave_the_same_keys(redis_server: RedisServer, moves: list[Any]) -> None:
    asyncio.run(play(redis_server, f"any-{next(_examples)}", moves))


async def play(server: RedisServer, namespace: str, moves: list[Any]) -> None:
    async with opened_ways(server, namespace) as ways:
        players = {way.driver: Player(way.driver) for way in (ways.straight, ways.general)}
        for name, parts in moves:
            await ways.compare(lambda d: getattr(players[d], name)(**parts))  # noqa: B023
