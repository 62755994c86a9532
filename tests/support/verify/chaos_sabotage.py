"""Rounds of chaos over stores and drivers that are broken on purpose, each in its own process.

    python -m tests.support.verify.chaos_sabotage fired-blindly FOLDER 1

prints how many complaints the judge has under each heading. `--check` only applies every sabotage,
which fails when the code that it replaces has another name now.
"""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from holdfast.domain.task.task import Task
from holdfast.domain.task.transition import Transition
from holdfast.domain.trigger.trigger import Changed
from holdfast.runtime.plans import driver_lease, poll, snapshot
from holdfast.stores.redis import scripts
from holdfast.stores.redis.client.client import Script
from holdfast.stores.redis.store import RedisStore
from holdfast.stores.redis.tasks.store import RedisTasks
from holdfast.stores.sqlite.plans import verbs as plan_verbs
from holdfast.stores.sqlite.plans.rows import body_of as plan_body_of
from holdfast.stores.sqlite.plans.rows import events_body_of
from holdfast.stores.sqlite.store import SqliteStore
from holdfast.stores.sqlite.tasks import store as task_verbs
from holdfast.stores.sqlite.transaction import Txn
from holdfast.stores.sqlite.triggers import verbs as trigger_verbs
from holdfast.stores.sqlite.triggers.rows import body_of as trigger_body_of
from holdfast.stores.sqlite.triggers.store import SqliteTriggers
from verify.chaos.round_plan import RoundPlan, Subject, do_nothing
from verify.chaos.rounds import run_round

SQLITE, REDIS = "sqlite:///{folder}/broken.db", "redis"
TASK_COMPLAINTS = ("lost", "double", "two_owners")


@dataclass(frozen=True, kw_only=True)
class BrokenRound:
    sabotage: Callable[[], None] = do_nothing
    complaints: Sequence[str] = TASK_COMPLAINTS
    store: str = SQLITE
    seconds: float = 30.0
    harm: dict[str, Any] = field(default_factory=dict)

    def run(self, folder: Path, longer: float) -> list[int]:
        """Run the round, ``longer`` times as long as usual, and count the complaints."""
        plan = RoundPlan(
            name="broken",
            folder=folder,
            store=self.store.format(folder=folder),
            seconds=self.seconds * longer,
            sabotage=self.sabotage,
            **self.harm,
        )
        verdict = run_round(plan).verdict
        return [len(getattr(verdict, name)) for name in self.complaints]


def put(owner: Any, name: str, instead: Any) -> Any:
    """Replace an attribute, which must be there, and return the real one."""
    real = getattr(owner, name)
    setattr(owner, name, instead)
    return real


# -- tasks


def with_present_version(transition: Transition, task: Task | None) -> Transition:
    """Return the late write of a holder as if it had been decided on the present record."""
    if transition.lease is None or task is None or task.version == transition.before.version:
        return transition
    version = task.version + 1
    return replace(
        transition,
        before=replace(transition.before, version=task.version),
        after=replace(transition.after, version=version),
        request=transition.request + " forced",
        lease=task.lease.id if task.lease else None,
        checkpoint=None,
        events=tuple(replace(event, version=version) for event in transition.events),
    )


def let_the_last_writer_win_in_sqlite() -> None:
    def apply(txn: Txn, write: Any, row: Any, *others: Any) -> Any:
        task = None if row is None else task_verbs._record(txn, row)
        forced = with_present_version(write.transition, task)
        if forced is not write.transition:
            write = task_verbs.encode(forced)
        return real(txn, write, row, *others)

    real = put(task_verbs, "_apply", apply)


def let_the_last_writer_win_in_redis() -> None:
    stores: list[RedisStore] = []

    async def open_store(self: RedisStore) -> None:
        stores[:] = [self]
        await real_open(self)

    async def apply(self: RedisTasks, batch: Sequence[Transition]) -> Any:
        tasks = await stores[0].views.load([transition.task_id for transition in batch])
        pairs = zip(batch, tasks, strict=True)
        forced = [with_present_version(t, task) for t, task in pairs]
        return await real_apply(self, forced)

    real_open, real_apply = put(RedisStore, "open", open_store), put(RedisTasks, "apply", apply)


def open_every_tenants_line() -> None:
    """Let scripts answer that no tenant is busy."""
    answers = {
        "local function line_is_open(active)": "return true",
        "local function busy_with(r)": "return false",
    }
    opened = set[str]()
    for name, script in list(vars(scripts).items()):
        if isinstance(script, Script):
            source = script.source
            opened |= {check for check in answers if check in source}
            for check, answer in answers.items():
                source = source.replace(check, f"{check}\n do {answer} end")
            put(scripts, name, Script(script.name, source))
    assert opened == answers.keys(), f"the scripts do not have {answers.keys() - opened}"


# -- triggers


def write_the_trigger_before_its_tasks() -> None:
    stores: list[SqliteStore] = []

    async def open_store(self: SqliteStore) -> None:
        stores[:] = [self]
        await real_open(self)

    async def apply(self: SqliteTriggers, batch: Sequence[Any], *, depth_limit: int) -> Any:
        alone = [replace(change, submissions=()) for change in batch]
        outcomes = await real_apply(self, alone, depth_limit=depth_limit)
        for _ in range(50):  # time in which the process may be killed
            await stores[0].views.stats()
        pairs = zip(batch, outcomes, strict=True)
        tasks = [s for c, o in pairs if isinstance(o, Changed) for s in c.submissions]
        await stores[0].tasks.insert(tasks, depth_limit=depth_limit)
        return outcomes

    real_open = put(SqliteStore, "open", open_store)
    real_apply = put(SqliteTriggers, "apply", apply)


def fire_without_versions_and_keys() -> None:
    def apply(self: trigger_verbs.TriggerBatch, write: trigger_verbs.EncodedTriggerChange) -> Any:
        change = write.change
        stored = self._triggers.get(change.after.id)
        if stored is not None and change.before.owner is not None:
            before = replace(change.before, version=stored.version)
            after = replace(change.after, version=stored.version + 1)
            change = replace(change, before=before, after=after)
        body = trigger_body_of(change.after)
        return real_apply(self, trigger_verbs.EncodedTriggerChange(change, body, write.tasks))

    def add(self: Txn, name: str, *values: Any, **terms: Any) -> Any:
        return None if name == "key_put" else real_add(self, name, *values, **terms)

    real_apply, real_add = put(trigger_verbs.TriggerBatch, "apply", apply), put(Txn, "add", add)


# -- plans


def give_two_slots_too_many() -> None:
    real: Any = put(snapshot.PlanSnapshot, "room_after", lambda self, moves: real(self, moves) + 2)


def start_all_waves_at_once() -> None:
    put(
        poll.TaskPoll,
        "_candidates",
        lambda _, snapshot: islice(snapshot.waiting(snapshot.plan.total), 50),
    )


def drive_plans_without_fences() -> None:
    async def keep(_: driver_lease.DriverLease) -> bool:
        return True

    def apply(txn: Txn, write: Any, lease_seconds: float) -> Any:
        change = write.change
        row = plan_verbs.load_row(txn, change.after.id)
        if change.lease is not None and row is not None:
            version = row.version + 1
            events = tuple(replace(event, version=version) for event in change.events)
            after = replace(change.after, version=version)
            change = replace(change, after=after, events=events)
            body, log = plan_body_of(after), events_body_of(events)
            write = plan_verbs.EncodedPlanChange(change, body, log, write.follows)
        return real(txn, write, lease_seconds)

    put(driver_lease.DriverLease, "keep", keep)
    put(plan_verbs, "_may_write", lambda _row, _change: True)
    real = put(plan_verbs, "apply", apply)


OF_TASKS: dict[str, Any] = {"tenants": 50, "kills": 0, "zombies": 0, "tasks": 300, "seed": 1}
TIMED: dict[str, Any] = {
    "tenants": 24,
    "kills": 10,
    "zombies": 4,
    "seed": 5,
    "kill_every_seconds": 0.2,
    "workers": 6,
    "slots": 8,
}
OF_TRIGGERS = TIMED | {"subject": Subject.TRIGGERS, "tasks": 72}
OF_PLANS = TIMED | {"subject": Subject.PLANS, "tasks": 8}

ROUNDS = {
    "sqlite-compares-nothing": BrokenRound(
        sabotage=let_the_last_writer_win_in_sqlite, harm=OF_TASKS | {"zombies": 20}
    ),
    "redis-compares-nothing": BrokenRound(
        sabotage=let_the_last_writer_win_in_redis,
        store=REDIS,
        seconds=40.0,
        harm=OF_TASKS | {"zombies": 20},
    ),
    "redis-without-lines": BrokenRound(
        sabotage=open_every_tenants_line,
        store=REDIS,
        seconds=15.0,
        harm=OF_TASKS | {"tenants": 5, "tasks": 60, "kills": 5},
    ),
    "redis-forgetful": BrokenRound(
        store=REDIS,
        seconds=15.0,
        harm=OF_TASKS
        | {"tenants": 5, "tasks": 60, "kills": 10, "server_kills": 2, "durable": False},
    ),
    "fired-in-two-steps": BrokenRound(
        sabotage=write_the_trigger_before_its_tasks,
        complaints=("miscounted", "unanswered"),
        harm=OF_TRIGGERS,
    ),
    "fired-blindly": BrokenRound(
        sabotage=fire_without_versions_and_keys,
        complaints=("doubled", "miscounted"),
        harm=OF_TRIGGERS | {"zombies": 10},
    ),
    "two-slots-too-many": BrokenRound(
        sabotage=give_two_slots_too_many, complaints=("crowded",), harm=OF_PLANS
    ),
    "all-waves": BrokenRound(
        sabotage=start_all_waves_at_once, complaints=("disorder",), harm=OF_PLANS
    ),
    "no-fences": BrokenRound(
        sabotage=drive_plans_without_fences,
        complaints=("two_drivers",),
        harm=OF_PLANS | {"zombies": 14},
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", action="store_true")
    parser.add_argument("name", nargs="?", choices=sorted(ROUNDS))
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("longer", nargs="?", type=float)
    given = parser.parse_args()
    if given.check:
        for broken in ROUNDS.values():
            broken.sabotage()
    else:
        print(*ROUNDS[given.name].run(given.folder, given.longer))


if __name__ == "__main__":
    main()
