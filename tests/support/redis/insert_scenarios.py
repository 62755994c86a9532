"""Scenarios that go through every branch of the straight insert, each run on both ways.

A scenario also says which scripts the straight way has sent: the new one, the new one and then the
general one, or the general one alone.
"""

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from msgspec.structs import replace

from holdfast.domain.errors import HoldfastError, PartlyUnavailable
from holdfast.domain.task.events import TaskCreated
from holdfast.domain.task.state import Status
from holdfast.domain.task.transition import Submission
from holdfast.ports import Filter, Switch
from holdfast.stores.redis.client.client import Script
from holdfast.testing.contract.drivers.store_driver import NO_LIMIT, StoreDriver
from holdfast.testing.contract.drivers.switch_driver import SwitchDriver
from tests.support.redis.path_comparison import Ways

STRAIGHT = ["insert_tasks"]
TURNED_AWAY = ["insert_tasks", "insert"]
GENERAL = ["insert"]
FOREIGN_STREAM = 4  # a reason for which insert_tasks.lua turns a batch away
LAST_ENTRY = "18446744073709551615-18446744073709551615"  # no stream takes another after it

Row: TypeAlias = dict[str, Any]
Scenario: TypeAlias = Callable[[Ways], Awaitable[None]]
SCENARIOS: list[Scenario] = []


def scenario(run: Scenario) -> Scenario:
    SCENARIOS.append(run)
    return run


async def insert(ways: Ways, *rows: Row, depth_limit: int = NO_LIMIT) -> list[str]:
    """Insert a batch both ways, and return the scripts that the straight way has sent for it."""
    ways.scripts()
    await ways.compare(lambda d: answers(d, [submission(d, row) for row in rows], depth_limit))
    return ways.scripts()


def submission(driver: StoreDriver, row: Row) -> Submission:
    """Build a submission; `later` seconds lie between the present and its creation."""
    row = dict(row)
    if later := row.pop("later", 0.0):
        at = driver.clock.now() + later
        row |= {"created_at": at, "updated_at": at, "status_since": at}
    return driver.submission(**row)


async def answers(driver: StoreDriver, batch: list[Submission], depth_limit: int) -> list[object]:
    """Return the answers, with the names of errors in the place of errors."""
    try:
        found: Any = await driver.insert(*batch, depth_limit=depth_limit)
    except PartlyUnavailable as error:
        found = error.answers
    except HoldfastError as error:
        return [type(error).__name__]
    return [type(one).__name__ if isinstance(one, HoldfastError) else one for one in found]


async def complete_running(driver: StoreDriver) -> list[str]:
    running = await driver.store.views.find(Filter(statuses=(Status.RUNNING,)), limit=100)
    return [(await driver.complete(task)).id for task in running.tasks]


async def work(ways: Ways, *queues: str) -> None:
    """Claim and complete until nothing is ready: what was inserted can be run in its order."""
    for _ in range(10):
        claimed = await ways.compare(lambda d: d.claim(queues=queues or ("default",)))
        if not claimed:
            return
        await ways.compare(complete_running)
    raise AssertionError("there is no end to it")


# -- what is usual


@scenario
async def insert_one_task(ways: Ways) -> None:
    assert await insert(ways, {}) == STRAIGHT
    assert await insert(ways, {"tenant": "t", "key": "k", "plan": "p"}) == STRAIGHT
    await work(ways)


@scenario
async def insert_a_mixture(ways: Ways) -> None:
    rows: list[Row] = [
        {},
        {"tenant": "t", "key": "k", "later": 0.25, "payload": {"a": "ü"}},
        {"queue": "mail", "type": "test.mail", "later": 0.5},
        {"tenant": "t", "key": "other"},
        {"tenant": "u", "plan": "p", "later": 0.75},
        {"key": "k", "user": {"name": "ann"}, "trace_id": "trace"},
        {"tenant": "v", "trace_id": "another", "effects": "mine", "callback": "https://x.test/"},
        {"stages": ("only",), "keep_seconds": 0.0, "retry_max": 7, "workflow": True, "hold": True},
        {"queue": "mail", "tenant": "t"},
        {"tenant": "t", "plan": "q", "key": "third"},
        {"stages": tuple(f"stage-{n}" for n in range(20))},
        {"stages": tuple(f"stage-{n}" for n in range(20)), "tenant": "w"},
    ]
    assert await insert(ways, *rows) == STRAIGHT
    assert await insert(ways, *({**row, "key": None} for row in rows)) == STRAIGHT
    await work(ways, "default", "mail")


@scenario
async def insert_many_of_a_kind(ways: Ways) -> None:
    assert await insert(ways, *[{"plan": "p"}] * 50) == STRAIGHT
    rows = [{"tenant": f"t-{n % 7}", "later": n / 8} for n in range(40)]
    assert await insert(ways, *rows) == STRAIGHT
    await work(ways)


@scenario
async def insert_a_line_keeps_its_order(ways: Ways) -> None:
    assert await insert(ways, *({"tenant": "t", "later": n / 8} for n in range(4))) == STRAIGHT
    assert await insert(ways, {"tenant": "u"}, {"tenant": "t"}, {"tenant": "t"}) == STRAIGHT
    assert await insert(ways, {"tenant": "t"}) == STRAIGHT
    await work(ways)


@scenario
async def insert_copies_of_a_task_that_is_ready_and_of_one_in_a_line(ways: Ways) -> None:
    await insert(ways, {"tenant": "b"})
    tenants = ("a", "b", "c", "b", "a", "d", "c")
    rows = [{"tenant": tenant, "later": n / 8} for n, tenant in enumerate(tenants)]
    assert await insert(ways, *rows) == STRAIGHT
    assert await insert(ways, *rows[::-1]) == STRAIGHT
    await work(ways)


@scenario
async def insert_a_line_that_a_resting_workflow_holds(ways: Ways) -> None:
    await ways.compare(lambda d: d.suspend_new(tenant="t", hold=True))
    assert await insert(ways, {"tenant": "t"}, {"tenant": "u"}) == STRAIGHT


@scenario
async def insert_only_tasks_in_lines_ring_no_bell(ways: Ways) -> None:
    await insert(ways, {"tenant": "t"})
    assert await insert(ways, {"tenant": "t"}) == STRAIGHT


@scenario
async def insert_as_many_tasks_as_fit(ways: Ways) -> None:
    await insert(ways, {"queue": "q"}, {"queue": "q"}, {})
    rows: list[Row] = [{"queue": "q"}, {"tenant": "t"}, {"queue": "q", "tenant": "t"}]
    assert await insert(ways, *rows, depth_limit=4) == STRAIGHT
    assert await insert(ways, {"queue": "q"}, depth_limit=5) == STRAIGHT
    assert await insert(ways, {"queue": "q"}, depth_limit=5) == TURNED_AWAY


@scenario
async def insert_indexes_that_are_of_another_program(ways: Ways) -> None:
    names = ("index:tasks:t", "index:plan:p", "index:time:2023-11-14", "line:t")
    for name in (*names, "index:status:PENDING"):
        ways.ask("SET", name, "foreign")
    assert await insert(ways, *[{"tenant": "t", "plan": "p"}] * 3) == STRAIGHT
    for way in (ways.straight, ways.general):
        assert len(way.store._parts.first._strangers) == len(names) + 1
    for name in (*names, "index:status:PENDING"):
        ways.ask("DEL", name)
    await ways.compare(mend)


async def mend(driver: StoreDriver) -> None:
    await driver.store.admin.doctor(fix=True, limit=100)


# -- what the store finds unusual


@scenario
async def insert_a_task_that_is_there(ways: Ways) -> None:
    await insert(ways, {"id": "again", "tenant": "t"}, {})
    rows: list[Row] = [{"tenant": "t"}, {"id": "again", "tenant": "t"}, {"tenant": "t"}]
    assert await insert(ways, *rows) == TURNED_AWAY


@scenario
async def insert_a_task_of_which_only_a_tombstone_is_there(ways: Ways) -> None:
    await ways.compare(lambda d: d.run(id="gone", keep_seconds=0))
    assert await insert(ways, {}, {"id": "gone"}) == TURNED_AWAY


@scenario
async def insert_a_key_that_is_taken(ways: Ways) -> None:
    await insert(ways, {"tenant": "t", "key": "k"}, {"key": "k"})
    assert await insert(ways, {"tenant": "t", "key": "k"}, {}) == TURNED_AWAY
    assert await insert(ways, {"key": "k", "payload": "another"}) == TURNED_AWAY
    assert await insert(ways, {"tenant": "u", "key": "k"}) == STRAIGHT


@scenario
async def insert_keys_of_another_program(ways: Ways) -> None:
    for name in ("key:|k", "index:tenant:t", "queue:tasks:bad"):
        ways.ask("HSET", name, "of", "another program")
    await insert(ways, {"tenant": "u"})
    assert await insert(ways, {"key": "k"}, {}) == TURNED_AWAY
    assert await insert(ways, {"tenant": "u"}, {"tenant": "t"}) == TURNED_AWAY
    reasons = note_reasons(ways)
    assert await insert(ways, {"queue": "good"}, {"queue": "bad"}) == TURNED_AWAY
    assert reasons == [FOREIGN_STREAM]  # and not that it met the stream while it wrote
    for name in ("key:|k", "index:tenant:t", "queue:tasks:bad"):
        ways.ask("DEL", name)
    await ways.compare(mend)


def note_reasons(ways: Ways) -> list[int]:
    """Return a list that gets the number of each reason for which a batch is turned away."""
    part, reasons = ways.straight.store._parts.first, list[int]()
    write = part.write

    async def write_and_note(script: Script, *args: Any) -> Any:
        answer = await write(script, *args)
        if answer[0] == b"unusual":
            reasons.append(answer[1])
        return answer

    part.write = write_and_note  # type: ignore[method-assign]
    return reasons


@scenario
async def insert_a_queue_whose_intake_is_off(ways: Ways) -> None:
    await ways.compare(lambda d: SwitchDriver(d.store, d.clock).off(Switch.INTAKE, "shut"))
    assert await insert(ways, {"queue": "shut"}, {}) == TURNED_AWAY
    assert await insert(ways, {}) == STRAIGHT


@scenario
async def insert_more_tasks_than_fit(ways: Ways) -> None:
    await insert(ways, {}, {"tenant": "t"}, {"tenant": "t"})
    rows: list[Row] = [{"tenant": "t"}, {"queue": "q"}, {"tenant": "u"}, {}]
    assert await insert(ways, *rows, depth_limit=5) == TURNED_AWAY


@scenario
async def insert_a_tenant_whose_active_task_rests(ways: Ways) -> None:
    await ways.compare(lambda d: d.suspend_new(tenant="t"))
    assert await insert(ways, {"tenant": "t"}, {"tenant": "t"}) == TURNED_AWAY
    await work(ways)


@scenario
async def insert_a_tenant_whose_active_task_is_gone(ways: Ways) -> None:
    ways.ask("SET", "index:tenant:t", "gone")
    assert await insert(ways, {"tenant": "t"}, {"tenant": "t"}) == TURNED_AWAY


@scenario
async def insert_a_batch_that_comes_too_late(ways: Ways) -> None:
    for way in (ways.straight, ways.general):
        part = way.store._parts.first
        part.give_up_time = lambda: "1.0"  # type: ignore[method-assign]
    assert await insert(ways, {}) == [*TURNED_AWAY, "insert"]
    for way in (ways.straight, ways.general):
        part = way.store._parts.first
        part.give_up_time = lambda: "9999999999.0"  # type: ignore[method-assign]
    assert await insert(ways, {}) == STRAIGHT


@scenario
async def insert_a_write_that_fails_in_the_middle(ways: Ways) -> None:
    ways.ask("XADD", "queue:tasks:bad", LAST_ENTRY, "taskId", "nobody")
    rows: list[Row] = [
        {"tenant": "t", "key": "k"},
        {"queue": "bad", "tenant": "u"},
        {"tenant": "v", "key": "k"},
    ]
    ways.scripts()
    await ways.compare(lambda d: fail_in_the_middle(d, rows))
    assert ways.scripts() == TURNED_AWAY
    ways.ask("DEL", "queue:tasks:bad")
    await ways.compare(mend)


async def fail_in_the_middle(driver: StoreDriver, rows: list[Row]) -> str:
    try:
        await driver.insert(*(submission(driver, row) for row in rows))
    except Exception as error:  # the server's own, which has no name with us
        return type(error).__name__
    return "nothing has failed"


# -- what the client finds unusual


@scenario
async def insert_what_a_plan_holds_back(ways: Ways) -> None:
    assert await insert(ways, {}, {"held": True, "plan": "p"}) == GENERAL


@scenario
async def insert_the_same_task_twice(ways: Ways) -> None:
    assert await insert(ways, {"id": "twice"}, {"id": "twice"}) == GENERAL


@scenario
async def insert_the_same_key_twice(ways: Ways) -> None:
    assert await insert(ways, {"key": "k"}, {"key": "k"}) == GENERAL
    assert await insert(ways, {"key": "k", "tenant": "t"}, {"key": "k", "tenant": "u"}) == STRAIGHT


@scenario
async def insert_two_days(ways: Ways) -> None:
    assert await insert(ways, {}, {"later": 86_400.0}) == GENERAL


@scenario
async def insert_two_statuses(ways: Ways) -> None:
    assert await insert(ways, {}, {"status": Status.ROLLING_BACK}) == GENERAL


@scenario
async def insert_a_task_that_has_run_elsewhere(ways: Ways) -> None:
    assert await insert(ways, {"last_completed": 0}, {}) == GENERAL


@scenario
async def insert_events_of_its_own(ways: Ways) -> None:
    def eventful(driver: StoreDriver) -> Submission:
        plain = driver.submission()
        (created,) = plain.events
        assert isinstance(created, TaskCreated)
        return replace(plain, events=(created, created))

    ways.scripts()
    await ways.compare(lambda d: d.insert(eventful(d)))
    assert ways.scripts() == GENERAL
