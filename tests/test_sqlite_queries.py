"""No query looks at more than it needs."""

import re
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from holdfast.ports import Filter
from holdfast.stores.sqlite import find, schema
from holdfast.stores.sqlite.statements import SQL
from holdfast.testing.clock import ManualClock
from holdfast.testing.contract.hands import Hands
from tests.source_tree import PACKAGE
from tests.sqlite_files import opened

# A row per queue and place, per pair of statuses, per refusal, per worker: read whole, on purpose.
SMALL = {"totals", "moves", "refusals", "workers", "sqlite_schema", "CONSTANT"}
SETTINGS = re.compile(r"PRAGMA|BEGIN|COMMIT|ROLLBACK|CREATE", re.IGNORECASE)
QUERIES = sorted(name for name, text in SQL.items() if not SETTINGS.match(text))
PLACEHOLDER = re.compile(r"\?(\d*)")


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[apsw.Connection]:
    path = tmp_path_factory.mktemp("plans") / "holdfast.db"
    db = schema.open_writer(path, namespace="executor", lock_seconds=1)
    yield db
    db.close()


@pytest.mark.parametrize("name", QUERIES)
def test_no_query_scans_a_table(db: apsw.Connection, name: str) -> None:
    plan = plan_of(db, name)
    scans = [step for step in plan if step.startswith("SCAN") and scanned(step) not in SMALL]
    assert not scans, f"{name}: {scans}"
    assert not [step for step in plan if "TEMP B-TREE" in step], f"{name}: {plan}"


def plan_of(db: apsw.Connection, name: str) -> list[str]:
    numbered = [int(n) for n in PLACEHOLDER.findall(SQL[name]) if n]
    values = (1,) * (max(numbered) if numbered else SQL[name].count("?"))
    return [str(row[3]) for row in db.execute("EXPLAIN QUERY PLAN " + SQL[name], values)]


def scanned(step: str) -> str:
    return step.split()[1]


@pytest.mark.parametrize(
    ("name", "index"),
    [
        ("ready_of_queue", "tasks_ready"),
        ("line_head", "tasks_line"),
        ("due_now", "tasks_due"),
        ("leases_lapsed", "tasks_leased"),
        ("leases_of_other_boots", "tasks_leased"),
        ("outdated_tasks", "tasks_kept"),
        ("event_request", "events_version"),
        ("find_status", "tasks_status"),
        ("find_type", "tasks_type"),
        ("find_queue", "tasks_queue"),
        ("find_tenant", "tasks_tenant"),
        ("find_plan", "tasks_plan"),
        ("find_error", "tasks_error"),
        ("find_any", "tasks_id"),
    ],
)
def test_a_question_is_answered_by_its_own_index(
    db: apsw.Connection, name: str, index: str
) -> None:
    assert index in plan_of(db, name)[0]


def test_every_statement_is_used() -> None:
    code = "".join(p.read_text() for p in (PACKAGE / "stores" / "sqlite").glob("*.py"))
    made = {f"{table}_delete" for table in re.findall(r'"(\w+)"', code)}
    steps = {f"v{n}" for n in range(1, schema.VERSION + 1)}
    unused = {name for name in SQL if f'"{name}"' not in code} - made - steps
    assert unused == set()


async def test_a_look_for_few_among_many_is_bounded_and_goes_on_at_its_cursor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(find, "LOOK_LIMIT", 20)
    clock = ManualClock()
    async with opened(tmp_path / "holdfast.db", clock) as store:
        hands = Hands(store, clock)
        rare = await hands.submit(tenant="t", type="rare")
        await hands.submit_many(50, tenant="t", type="common")
        where, cursor, pages = Filter(tenant="t", type="rare"), None, 0
        found: list[str] = []
        while pages == 0 or cursor is not None:
            page = await store.find(where, limit=5, cursor=cursor)
            found += [task.id for task in page.tasks]
            cursor, pages = page.cursor, pages + 1
        assert found == [rare.id]
        assert pages == 3
