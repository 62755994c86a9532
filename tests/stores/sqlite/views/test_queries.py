"""No query looks at more than it needs."""

import re
from collections.abc import Iterator
from pathlib import Path

import apsw
import msgspec
import pytest

from holdfast.domain.task.placement import RESTING
from holdfast.domain.task.state import SUSPENDED, Status
from holdfast.domain.task.task import Task
from holdfast.ports import Filter
from holdfast.stores.sqlite import transaction
from holdfast.stores.sqlite.file import connections
from holdfast.stores.sqlite.statements import SQL
from holdfast.stores.sqlite.tasks.records import RecordRow, readable
from holdfast.stores.sqlite.views import find, measures
from holdfast.testing.clock import START_NOW, ManualClock
from holdfast.testing.contract.drivers.store_driver import StoreDriver
from tests.support.source_tree import PACKAGE
from tests.support.sqlite.sqlite_files import ask, opened

# A row per queue and place, per type and pair of statuses, per type and stage, per refusal, per
# worker, per thrown switch: read whole, on purpose.
SMALL = {"totals", "moves", "timings", "refusals", "workers", "switches"}
SMALL |= {"sqlite_schema", "col", "idx", "CONSTANT"}  # and the tables of the file itself
# What a statement was given, and a row per task that runs, of which there are no more than slots.
SMALL |= {"e", "json_each", "jsonb_each", "leases", "l"}
# Ids of a span of time, put in the order of pages: no more of them than `find.DATED_LIMIT`.
SORTED = {"find_suspended", "find_leased"}
SORTED |= {"columns", "indexed_columns"}  # of the tables that the file has
SETTINGS = re.compile(r"PRAGMA|BEGIN|COMMIT|ROLLBACK|CREATE", re.IGNORECASE)
QUERIES = sorted(name for name, text in SQL.items() if not SETTINGS.match(text))
PLACEHOLDER = re.compile(r"\?(\d*)")


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[apsw.Connection]:
    path = tmp_path_factory.mktemp("plans") / "holdfast.db"
    db = connections.open_writer(path, namespace="executor", lock_seconds=1)
    yield db
    db.close()


@pytest.mark.parametrize("name", QUERIES)
def test_no_query_scans_a_table(db: apsw.Connection, name: str) -> None:
    plan = plan_of(db, name)
    scans = [step for step in plan if step.startswith("SCAN") and scanned(step) not in SMALL]
    assert not scans, f"{name}: {scans}"
    sorts = [step for step in plan if "TEMP B-TREE" in step]
    assert not sorts or name in SORTED, f"{name}: {plan}"


def test_the_resting_tasks_of_a_tenant_are_read_from_their_index(db: apsw.Connection) -> None:
    assert "INDEX states_resting" in "\n".join(plan_of(db, "tenant_views"))
    (places,) = re.findall(r"states_resting .* place IN \((.*)\)", SQL["v1"])
    assert {*places.split(", ")} == {f"'{place}'" for place in RESTING}


def test_a_span_of_time_is_read_from_its_index_alone(db: apsw.Connection) -> None:
    plan = "\n".join(plan_of(db, "find_suspended"))
    span = "(status=? AND suspended_at>? AND suspended_at<?)"
    assert f"USING COVERING INDEX states_suspended {span}" in plan
    assert "SEARCH s USING INDEX states_id (id=?)" in plan


def plan_of(db: apsw.Connection, name: str) -> list[str]:
    numbered = [int(n) for n in PLACEHOLDER.findall(SQL[name]) if n]
    values = (1,) * (max(numbered) if numbered else SQL[name].count("?"))
    return [str(row[3]) for row in db.execute("EXPLAIN QUERY PLAN " + SQL[name], values)]


def scanned(step: str) -> str:
    return step.split()[1]


@pytest.mark.parametrize(
    ("name", "index"),
    [
        ("ready_of_queue", "q USING PRIMARY KEY (queue=?)"),
        ("ready_head", "q USING PRIMARY KEY (queue=?)"),
        ("ready_delete", "PRIMARY KEY (queue=? AND number=?)"),
        ("line_ids", "states_line"),
        ("due_now", "states_due"),
        ("outdated_tasks", "states_kept"),
        ("journal_request", "journal_version (n=? AND version=?)"),
        ("find_group", "states_group (status=? AND type=? AND queue=? AND id<?)"),
        ("find_next_group", "states_group ((status,type,queue,id)>(?,?,?,?))"),
        ("find_tenant", "states_tenant"),
        ("find_plan", "states_plan"),
        ("find_error", "states_error (error=? AND status=? AND id<?)"),
        ("find_suspended_tenant", "states_suspended_tenant (tenant=? AND status=? AND id<?)"),
        (
            "find_many_suspended",
            "states_suspended (status=? AND suspended_at>? AND suspended_at<?)",
        ),
        ("find_any", "states_id"),
        ("triggers_due", "triggers_due (at>? AND at<?)"),
        ("triggers_first", "triggers_due (at>?)"),
        ("triggers_lapsed", "triggers_leased ((boot,until)<(?,?))"),
        ("triggers_first_lease", "triggers_leased (boot>?)"),
        ("triggers_any", "triggers_1 (id>?)"),
        ("triggers_of_status", "triggers_status (status=? AND id>?)"),
        ("triggers_of_tenant", "triggers_tenant (tenant=? AND id>?)"),
        ("outdated_triggers", "triggers_kept"),
        ("plans_due", "plans_due (due>? AND due<?)"),
        ("plans_first", "plans_due (due>?)"),
        ("plans_lapsed", "plans_leased ((boot,until)<(?,?))"),
        ("plans_first_lease", "plans_leased (boot>?)"),
        ("plans_any", "plans_created ((created_at,id)<(?,?))"),
        ("plans_of_status", "plans_status (status=? AND (created_at,id)<(?,?))"),
        ("outdated_plans", "plans_kept"),
        ("error_next", "COVERING INDEX states_error (error>?)"),
        ("error_count", "COVERING INDEX states_error (error=? AND status=?)"),
        ("checkpoints_open", "COVERING INDEX checkpoints_open (settled_at=?)"),
        ("switches_of", "PRIMARY KEY (switch=?)"),
        ("timings_of", "PRIMARY KEY (type=? AND stage=? AND outcome=?)"),
        ("audits_after", "INTEGER PRIMARY KEY (rowid>?)"),
        ("audits_oldest", "INTEGER PRIMARY KEY (rowid>?)"),
    ],
)
def test_a_question_is_answered_by_its_own_index(
    db: apsw.Connection, name: str, index: str
) -> None:
    assert index in plan_of(db, name)[0]


@pytest.mark.parametrize(
    ("name", "index"),
    [
        ("standings_of", "s USING INDEX states_id (id=?)"),
        ("state_put", "states USING INTEGER PRIMARY KEY (rowid=?)"),
        ("state_stay", "states USING INTEGER PRIMARY KEY (rowid=?)"),
        ("lease_delete", "leases USING INTEGER PRIMARY KEY (rowid=?)"),
        ("line_heads", "states USING COVERING INDEX states_line (tenant=? AND line>?)"),
        ("tenants_get", "v USING PRIMARY KEY (tenant=?)"),
        ("find_leased", "s USING INTEGER PRIMARY KEY (rowid=?)"),
        ("triggers_of", "t USING INDEX sqlite_autoindex_triggers_1 (id=?)"),
        ("triggers_lease", "triggers USING COVERING INDEX sqlite_autoindex_triggers_1 (id=?)"),
        ("unfinished_among", "s USING INDEX states_id (id=?)"),
        ("plan_members_of", "m USING PRIMARY KEY (n=?)"),
        ("plan_members_wait", "plan_members USING PRIMARY KEY (n=? AND number=?)"),
        ("plan_events_of", "v USING INDEX plan_events_version (n=? AND version>?)"),
        ("locks_held", "s USING INTEGER PRIMARY KEY (rowid=?)"),
    ],
)
def test_each_of_a_set_is_found_by_an_index(db: apsw.Connection, name: str, index: str) -> None:
    assert f"SEARCH {index}" in plan_of(db, name)


def test_every_statement_is_used() -> None:
    code = "".join(p.read_text() for p in (PACKAGE / "stores" / "sqlite").rglob("*.py"))
    made = {f"{table}_delete" for table in re.findall(r'"(\w+)"', code)} | set(transaction.WRITES)
    steps = {f"v{n}" for n in range(1, connections.VERSION + 1)}
    unused = {name for name in SQL if f'"{name}"' not in code} - made - steps
    assert unused == set()


async def test_a_look_for_few_among_many_is_bounded_and_goes_on_at_its_cursor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(find, "LOOK_LIMIT", 20)
    clock = ManualClock()
    async with opened(tmp_path / "holdfast.db", clock) as store:
        driver = StoreDriver(store, clock)
        rare = await driver.submit(tenant="t", type="rare")
        await driver.submit_many(50, tenant="t", type="common")
        where, cursor, pages = Filter(tenant="t", type="rare"), None, 0
        found: list[str] = []
        while pages == 0 or cursor is not None:
            page = await store.views.find(where, limit=5, cursor=cursor)
            found += [task.id for task in page.tasks]
            cursor, pages = page.cursor, pages + 1
        assert found == [rare.id]
        assert pages == 3


async def test_the_next_group_is_found_past_all_the_tasks_of_this_one(tmp_path: Path) -> None:
    """SQLite's plan looks the same when it passes them one by one, so its steps are counted."""
    path, clock = tmp_path / "holdfast.db", ManualClock()
    async with opened(path, clock) as store:
        driver = StoreDriver(store, clock)
        await driver.submit_many(500, type="a")
        await driver.submit(type="b")
    db, steps = connections.open_reader(path), 0

    def step() -> bool:
        nonlocal steps
        steps += 1
        return False

    db.set_progress_handler(step, 10)
    group = (str(Status.PENDING), "a", "default")
    found = db.execute(SQL["find_next_group"], (*group, find.TOP)).fetchone()
    db.close()
    assert found == (str(Status.PENDING), "b", "default")
    assert steps < 20


FAILED = (Status.FAILED,)
ONE_OF_MANY = {
    "status and type": Filter(statuses=FAILED, type="rare"),
    "status and tenant": Filter(statuses=FAILED, tenant="rare"),
    "status and queue": Filter(statuses=FAILED, queue="rare"),
    "status and error": Filter(statuses=FAILED, error="{error}"),
    "status and age": Filter(statuses=FAILED, updated_before=START_NOW + 1),
    "both suspended statuses and type": Filter(statuses=tuple(SUSPENDED), type="rare"),
    "type": Filter(type="rare"),
    "queue": Filter(queue="rare"),
}


class Reads:
    """Counts the records that are read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        monkeypatch.setattr(find, "readable", self._readable)
        monkeypatch.setattr(measures, "readable", self._readable)

    def _readable(self, row: RecordRow) -> Task | None:
        self.count += 1
        return readable(row)


@pytest.mark.parametrize("asked", ONE_OF_MANY)
async def test_one_among_many_suspended_tasks_is_found_without_reading_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: str
) -> None:
    clock = ManualClock()
    async with opened(tmp_path / "holdfast.db", clock) as store:
        driver = StoreDriver(store, clock)
        names = {"tenant": "rare", "type": "rare", "queue": "rare"}
        rare = await driver.suspend(await driver.start(**names), error="RareError")
        clock.advance(10)
        await driver.submit_many(50)
        for claimed in await driver.claim(limit=50):
            await driver.suspend(claimed.task)
        where, reads = ONE_OF_MANY[asked], Reads(monkeypatch)
        if where.error is not None:
            assert rare.failure is not None
            where = msgspec.structs.replace(where, error=rare.failure.fingerprint)
        page = await store.views.find(where, limit=5)
        assert (page.tasks, page.cursor, reads.count) == ((rare,), None, 1)


async def test_causes_are_counted_without_reading_more_than_one_task_of_each_that_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    async with opened(tmp_path / "holdfast.db", clock) as store:
        driver = StoreDriver(store, clock)
        await driver.submit_many(60)
        for n, claimed in enumerate(await driver.claim(limit=60)):
            await driver.suspend(claimed.task, error=f"Error{n % 10}" if n < 50 else "Frequent")
        reads = Reads(monkeypatch)
        frequent, *others = await store.views.error_groups(limit=4)
        assert (frequent.count, [group.count for group in others]) == (10, [5, 5, 5])
        assert reads.count == 4


async def test_a_cause_is_told_by_the_newest_of_its_tasks_that_can_be_read(tmp_path: Path) -> None:
    path, clock = tmp_path / "holdfast.db", ManualClock()
    async with opened(path, clock) as store:
        driver = StoreDriver(store, clock)
        tasks = [await driver.suspend(await driver.start()) for _ in range(3)]
        lost = await driver.suspend(await driver.start(), error="LostError")
        ask(path, "UPDATE tasks SET head = '{' WHERE n >= ?", tasks[2].order)
        (group,) = await store.views.error_groups(limit=10)
        assert (group.newest, group.count) == (tasks[1], 3)
        assert lost.failure is not None
        assert group.fingerprint != lost.failure.fingerprint


@pytest.mark.parametrize("limit", ["GROUPS_LIMIT", "DATED_LIMIT"])
async def test_past_its_limits_a_filter_still_finds_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    clock = ManualClock()
    async with opened(tmp_path / "holdfast.db", clock) as store:
        driver = StoreDriver(store, clock)
        await driver.suspend(await driver.start(type="a"))
        await driver.suspend(await driver.start(type="b"))
        where = Filter(statuses=FAILED, updated_before=clock.now() + 1)
        page = await store.views.find(where, limit=5)
        assert len(page.tasks) == 2
        monkeypatch.setattr(find, limit, 1)
        assert await store.views.find(where, limit=5) == page
        one_type = msgspec.structs.replace(where, type="a")
        assert (await store.views.find(one_type, limit=5)).tasks == page.tasks[1:]
