"""Chaos over stores and drivers that are broken on purpose: the judge must find each defect."""

from pathlib import Path

import pytest

from tests.support.programs import complaints_in_rounds, run_python
from tests.support.source_tree import ROOT

LOST, DOUBLE, TWO_OWNERS = range(3)


def judged(subject, sabotage, *rules, **harm):
    folder = Path(sys.argv[1])
    given = dict(
        name="broken", subject=Subject(subject), store=f"sqlite:///{folder}/broken.db",
        folder=folder, tenants=24, kills=10, zombies=4, seed=5, sabotage=sabotage,
        seconds=30 * float(sys.argv[2]),
        kill_every_seconds=0.2, workers=6, slots=8, tasks=72 if subject == "triggers" else 8,
    )
    verdict = run_round(Plan(**{**given, **harm})).verdict
    print(*(len(getattr(verdict, rule)) for rule in rules))
"""

FIRED_IN_TWO_STEPS = (
    BEGIN
    + """
from holdfast.domain.trigger.trigger import Changed
from holdfast.stores.sqlite.store import SqliteStore
from holdfast.stores.sqlite.triggers.store import SqliteTriggers


def broken():
    opened, apply = SqliteStore.open, SqliteTriggers.apply

    async def open(self):
        await opened(self)
        self.triggers._tasks = self

    async def first_the_trigger_then_its_tasks(self, batch, *, depth_limit):
        alone = [replace(change, submissions=()) for change in batch]
        outcomes = await apply(self, alone, depth_limit=depth_limit)
        for _ in range(50):  # time to be killed in
            await self._tasks.stats()
        pairs = zip(batch, outcomes, strict=True)
        tasks = [s for c, o in pairs if isinstance(o, Changed) for s in c.submissions]
        await self._tasks.insert(tasks, depth_limit=depth_limit)
        return outcomes

    SqliteStore.open, SqliteTriggers.apply = open, first_the_trigger_then_its_tasks


judged("triggers", broken, "miscounted", "unanswered")
"""
)

FIRED_WITHOUT_VERSIONS_AND_KEYS = (
    BEGIN
    + """
from holdfast.stores.sqlite.triggers import verbs
from holdfast.stores.sqlite.triggers.rows import body_of
from holdfast.stores.sqlite.transaction import Txn


def broken():
    apply, add = verbs.TriggerBatch.apply, Txn.add

    def last_writer_wins(self, write):
        change = write.change
        stored = self._triggers.get(change.after.id)
        if stored is not None and change.before.owner is not None:
            before = replace(change.before, version=stored.version)
            after = replace(change.after, version=stored.version + 1)
            change = replace(change, before=before, after=after)
        return apply(
            self, verbs.EncodedTriggerChange(change, body_of(change.after), write.tasks)
        )

    def without_keys(self, name, *values, **terms):
        return None if name == "key_put" else add(self, name, *values, **terms)

    verbs.TriggerBatch.apply, Txn.add = last_writer_wins, without_keys


judged("triggers", broken, "doubled", "miscounted", zombies=10)
"""
)

TWO_SLOTS_TOO_MANY = (
    BEGIN
    + """
from holdfast.runtime.plans.snapshot import PlanSnapshot


def broken():
    room_after = PlanSnapshot.room_after
    PlanSnapshot.room_after = lambda self, moves: room_after(self, moves) + 2


judged("plans", broken, "crowded")
"""
)

WAVES_ALL_AT_ONCE = (
    BEGIN
    + """
from itertools import islice

from holdfast.runtime.plans.driver import Driver


def broken():
    Driver._candidates = lambda self, book: islice(book.waiting(book.plan.total), 50)


judged("plans", broken, "disorder")
"""
)

PLANS_WITHOUT_FENCES = (
    BEGIN
    + """
from holdfast.runtime.plans.driver import Driver
from holdfast.stores.sqlite.plans import verbs as plan_verbs
from holdfast.stores.sqlite.plans.rows import body_of, events_body_of


def broken():
    apply = plan_verbs.apply

    async def keep(self):
        return True

    def last_writer_wins(txn, write, lease_seconds):
        change, row = write.change, plan_verbs.load_row(txn, write.change.after.id)
        if change.lease is not None:
            version = row.version + 1
            events = tuple(replace(event, version=version) for event in change.events)
            after = replace(change.after, version=version)
            change = replace(change, after=after, events=events)
            write = plan_verbs.EncodedPlanChange(
                change, body_of(after), events_body_of(events)
            )
        return apply(txn, write, lease_seconds)

    Driver._keep = keep
    plan_verbs._may_write = lambda row, change: True
    plan_verbs.apply = last_writer_wins


judged("plans", broken, "two_drivers", zombies=14)
"""
)


@pytest.mark.parametrize(
    "program",
    [
        FIRED_IN_TWO_STEPS,
        FIRED_WITHOUT_VERSIONS_AND_KEYS,
        TWO_SLOTS_TOO_MANY,
        WAVES_ALL_AT_ONCE,
        PLANS_WITHOUT_FENCES,
    ],
    ids=["fired-in-two-steps", "fired-blindly", "two-slots-too-many", "all-waves", "no-fences"],
)
def test_what_is_broken_is_found_out(program: str, tmp_path: Path) -> None:
    found = list[int]()
    for found in counted_in_rounds(program, tmp_path):
        if all(found):
            return
    raise AssertionError(f"complaints of {name}: {counts}")


def test_the_code_that_each_sabotage_replaces_is_there() -> None:
    done = run_python(ROOT, "-m", "tests.support.verify.chaos_sabotage", "--check")
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("store", ["sqlite", "redis"])
def test_a_store_that_compares_nothing_is_found_out(store: str, tmp_path: Path) -> None:
    assert_found(f"{store}-compares-nothing", tmp_path, DOUBLE, TWO_OWNERS)


@pytest.mark.slow
def test_a_store_that_lets_a_tenant_s_tasks_run_side_by_side_is_found_out(tmp_path: Path) -> None:
    assert_found("redis-without-lines", tmp_path, TWO_OWNERS)


def test_a_server_that_forgets_when_it_is_killed_is_found_out(tmp_path: Path) -> None:
    assert_found("redis-forgetful", tmp_path, LOST)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["fired-in-two-steps", "fired-blindly", "two-slots-too-many", "all-waves", "no-fences"],
)
def test_what_is_broken_is_found_out(name: str, tmp_path: Path) -> None:
    assert_found(name, tmp_path)
