"""Random operations on a store and on the memory store: same answers, same state, every step."""

import hashlib
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from holdfast.domain.errors import HoldfastError
from holdfast.domain.task import decide, operate
from holdfast.domain.task.checkpoint import Checkpoint
from holdfast.domain.task.state import OPERATOR, Command, Status, legal
from holdfast.domain.task.task import Progress, Task
from holdfast.domain.task.transition import Submission, Transition
from holdfast.ports import Kept, Renewal
from holdfast.stores.redis.store import RedisStore
from holdfast.stores.sqlite import SqliteStore
from holdfast.testing.clock import ManualClock
from holdfast.testing.contract.drivers.store_driver import ASKER, OPERATE, beat
from tests.support.stores.twin_moves import HOLDER, Decision, finish, undo
from tests.support.stores.twin_stores import Open, Twins
from verify.servers import RedisServer

TENANTS = ["a", "b"]
QUEUES = ["q", "r"]
WORKERS = ["w-1", "w-2"]
SECONDS = [0, 1, 5, 10, 10, 31, 31, 60, 3_600, 90_000]

picks = st.integers(0, 1_000)
submits = st.fixed_dictionaries(
    {
        "tenant": st.sampled_from([*TENANTS, *TENANTS, None]),
        "queue": st.sampled_from(QUEUES),
        "key": st.sampled_from([None, None, "k-1", "k-2"]),
        "payload": st.integers(0, 1),
        "stages": st.integers(1, 3),
        "hold": st.booleans(),
        "workflow": st.booleans(),
        "is_held": st.sampled_from([False, False, False, True]),
        "keep_seconds": st.sampled_from([0.0, 50.0, 1e6]),
    }
)
Pair = tuple[Transition, Transition]
Step = st.SearchStrategy[tuple[str, dict[str, Any]]]


def action(name: str, **arguments: st.SearchStrategy[Any]) -> Step:
    return st.tuples(st.just(name), st.fixed_dictionaries(arguments))


claims = action(
    "claim",
    worker=st.sampled_from(WORKERS),
    queues=st.sampled_from([["q"], ["r"], ["q", "r"], ["r", "q"]]),
    limit=st.integers(1, 4),
    lease_seconds=st.sampled_from([10.0, 30.0]),
)
asks = action("ask", pick=picks, choice=picks, force=st.booleans(), from_checkpoint=st.booleans())
moves = action("move_as_holder", pick=picks, decision=st.sampled_from(HOLDER))
times = action(
    "let_time_pass",
    seconds=st.sampled_from(SECONDS),
    counted=st.booleans(),
    limit=st.sampled_from([1, 99]),
)
# One rule, not one for each: left to itself, hypothesis leaves most rules out of most runs.
steps: Step = st.one_of(
    *[claims] * 3,
    *[moves] * 3,
    *[asks] * 3,
    *[times] * 2,
    *[action("insert", fields=submits, depth_limit=st.sampled_from([3, 1_000, 1_000]))] * 2,
    action("insert_again", pick=picks),
    action("go_on", pick=picks, number=st.integers(1, 3)),
    action("move_as_a_zombie_might", pick=picks, decision=st.sampled_from(HOLDER)),
    action("move_with_a_wrong_lease", pick=picks, decision=st.sampled_from(HOLDER)),
    action("ask_as_if_nobody_held_it", pick=picks),
    action("claim_again", worker=st.sampled_from(WORKERS), limit=st.integers(1, 4)),
    action("ask_too_late", pick=picks, command=st.sampled_from(sorted(OPERATOR))),
    action("write_again", picked=st.lists(picks, min_size=1, max_size=3)),
    action("renew", pick=picks, worker=st.sampled_from(WORKERS), says=st.booleans()),
    action(
        "prune",
        kind=st.sampled_from(Kept),
        older_than_seconds=st.sampled_from([0.0, 40.0, 4_000.0]),
        dry_run=st.booleans(),
    ),
    action(
        "refuse_or_leave",
        pick=picks,
        command=st.sampled_from(sorted(OPERATOR)),
        worker=st.sampled_from(WORKERS),
    ),
)
NEEDS = {
    "move_as_holder": ("held",),
    "go_on": ("held",),
    "move_as_a_zombie_might": ("old",),
    "move_with_a_wrong_lease": ("held",),
    "ask_as_if_nobody_held_it": ("held",),
    "ask": ("tasks",),
    "ask_too_late": ("old",),
    "write_again": ("written",),
    "renew": ("old",),
    "refuse_or_leave": ("tasks",),
}


class TwinStores(RuleBasedStateMachine):
    def __init__(self, make: Open) -> None:
        super().__init__()
        self.twins = Twins(make)
        self.submissions: list[Submission] = []
        self.written: list[Pair] = []
        self.tasks: list[tuple[Task, Task]] = []  # the records as they are
        self.old: list[tuple[Task, Task]] = []  # and as they were when somebody held them
        self.requests = 0
        self.last_claims: dict[str, str] = {}
        self.touched: list[str] = []

    def teardown(self) -> None:
        try:
            self.twins.compare_tasks(self.ids)
            self.twins.examine()
        finally:
            self.twins.close()

    @property
    def ids(self) -> list[str]:
        return [submission.task.id for submission in self.submissions]

    @property
    def held(self) -> list[tuple[Task, Task]]:
        return [pair for pair in self.tasks if pair[0].lease is not None]

    def next_request(self) -> str:
        self.requests += 1
        return f"request-{self.requests}"

    @rule(step=steps)
    def go_a_step(self, step: tuple[str, dict[str, Any]]) -> None:
        name, arguments = step
        if all(getattr(self, what) for what in NEEDS.get(name, ())):
            getattr(self, name)(**arguments)

    # -- submit and claim

    @initialize(many=st.lists(submits, min_size=2, max_size=6))
    def insert_some(self, many: list[dict[str, Any]]) -> None:
        for fields in many:
            self.insert(fields, 1_000)

    def insert(self, fields: dict[str, Any], depth_limit: int) -> None:
        now, is_held, payload = self.twins.clock.now(), fields["is_held"], fields["payload"]
        task = Task(
            id=f"t-{len(self.submissions):04d}",
            type="test",
            stages=("one", "two", "three")[: fields["stages"]],
            created_at=now,
            status=Status.CREATED if is_held else Status.PENDING,
            status_since=now,
            updated_at=now,
            **{name: fields[name] for name in ("tenant", "queue", "key", "hold", "workflow")},
            keep_seconds=fields["keep_seconds"],
        )
        digest = hashlib.sha256(bytes([payload])).hexdigest()
        submission = decide.submit(task, b'{"n":%d}' % payload, digest, held=is_held)
        self.submissions.append(submission)
        self.touched = [task.id]
        self.twins.both(lambda store: store.tasks.insert([submission], depth_limit=depth_limit))

    def insert_again(self, pick: int) -> None:
        submission = self.submissions[pick % len(self.submissions)]
        self.touched = [submission.task.id]
        self.twins.both(lambda store: store.tasks.insert([submission], depth_limit=1_000))

    def claim(self, worker: str, queues: list[str], limit: int, lease_seconds: float) -> None:
        request = self.last_claims[worker] = self.next_request()
        claims = self.twins.both(
            lambda store: store.tasks.claim(
                worker, request=request, queues=queues, limit=limit, lease_seconds=lease_seconds
            )
        )
        self.touched = [claimed.task.id for claimed in claims[0]]
        self.old += [(a.task, b.task) for a, b in zip(*claims, strict=True)]

    def claim_again(self, worker: str, limit: int) -> None:
        """A repeat of the worker's last claim: all of it that is still held, room or not."""
        request = self.last_claims.get(worker, "none")
        self.twins.both(
            lambda store: store.tasks.claim(
                worker, request=request, queues=[], limit=limit, lease_seconds=10.0
            )
        )

    # -- decide and write

    def move_as_holder(self, pick: int, decision: Decision) -> None:
        self.decide_and_write(self.held[pick % len(self.held)], decision)

    def go_on(self, pick: int, number: int) -> None:
        """What happens most: stages that end well."""
        for _ in range(number):
            if self.held:
                pair = self.held[pick % len(self.held)]
                back = pair[0].status is Status.ROLLING_BACK
                self.decide_and_write(pair, undo if back else finish)
                self.they_look_the_same()

    def move_as_a_zombie_might(self, pick: int, decision: Decision) -> None:
        self.decide_and_write(self.old[pick % len(self.old)], decision)

    def move_with_a_wrong_lease(self, pick: int, decision: Decision) -> None:
        def forged(task: Task, checkpoint: Checkpoint | None, now: float) -> Transition:
            made = decision(task, checkpoint, now)
            return msgspec.structs.replace(made, lease="forged", request=f"forged-{task.version}")

        self.decide_and_write(self.held[pick % len(self.held)], forged)

    def ask(self, pick: int, choice: int, force: bool, from_checkpoint: bool) -> None:
        pair = self.tasks[pick % len(self.tasks)]
        commands = legal(pair[0].status)
        if commands:
            self.ask_for(commands[choice % len(commands)], pair, force, from_checkpoint)

    def ask_too_late(self, pick: int, command: Command) -> None:
        self.ask_for(command, self.old[pick % len(self.old)], force=True, from_checkpoint=True)

    def ask_as_if_nobody_held_it(self, pick: int) -> None:
        model, other = (
            msgspec.structs.replace(task, lease=None, status=Status.PENDING)
            for task in self.held[pick % len(self.held)]
        )
        self.ask_for(Command.CANCEL, (model, other), force=True, from_checkpoint=True)

    def ask_for(
        self, command: Command, pair: tuple[Task, Task], force: bool, from_checkpoint: bool
    ) -> None:
        options: dict[str, bool] = {}
        if command in (Command.RESUME, Command.RETRY, Command.ROLLBACK):
            options["force"] = force
        if command is Command.RETRY:
            options["from_checkpoint"] = from_checkpoint
        asked = operate.OperatorRequest(
            by=ASKER, now=self.twins.clock.now(), request=self.next_request()
        )

        def decision(task: Task, checkpoint: Checkpoint | None, now: float) -> Transition:
            return OPERATE[command](task, asked, **options)

        self.decide_and_write(pair, decision)

    def decide_and_write(self, pair: tuple[Task, Task], decision: Decision) -> None:
        now = self.twins.clock.now()
        found = self.twins.both(lambda store: store.views.checkpoint(pair[0].id))
        try:
            made = decision(pair[0], found[0], now), decision(pair[1], found[1], now)
        except HoldfastError:
            return
        self.written.append(made)
        self.write([made])

    def write_again(self, picked: list[int]) -> None:
        self.write([self.written[pick % len(self.written)] for pick in picked])

    def write(self, pairs: list[Pair]) -> None:
        model, other = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        self.touched = [transition.task_id for transition in model]
        self.twins.both(
            lambda store: store.tasks.apply(model), lambda store: store.tasks.apply(other)
        )

    # -- leases, times, ages

    def renew(self, pick: int, worker: str, says: bool) -> None:
        chosen = self.old[pick % len(self.old) :][:2]
        progress = Progress(fraction=0.5, at=float(pick)) if says else None
        batches = [
            [
                Renewal(task_id=task.id, lease_id=decide.lease_of(task).id, progress=progress)
                for task in side
            ]
            for side in zip(*chosen, strict=True)
        ]
        self.touched = [renewal.task_id for renewal in batches[0]]
        said = beat(worker, running=pick)
        self.twins.both(
            lambda store: store.tasks.renew(said, batches[0], lease_seconds=30.0),
            lambda store: store.tasks.renew(said, batches[1], lease_seconds=30.0),
        )
        self.twins.both(lambda store: store.views.workers(live_within_seconds=30.0))

    def let_time_pass(self, seconds: int, counted: bool, limit: int) -> None:
        self.twins.clock.advance(seconds)
        self.touched = self.ids
        self.twins.both(lambda store: store.tasks.promote(limit=limit))
        self.twins.both(lambda store: store.tasks.expire(limit=1_000, count_crashes=counted))

    def prune(self, kind: Kept, older_than_seconds: float, dry_run: bool) -> None:
        self.touched = self.ids
        self.twins.both(
            lambda store: store.admin.prune(
                kind, older_than_seconds=older_than_seconds, limit=1_000, dry_run=dry_run
            )
        )

    def refuse_or_leave(self, pick: int, command: Command, worker: str) -> None:
        task, _ = self.tasks[pick % len(self.tasks)]
        asked = operate.OperatorRequest(by=ASKER, now=self.twins.clock.now(), request="r")
        entry = operate.refusal(task, command, asked, "illegal-transition")
        self.twins.both(lambda store: store.admin.audit(entry))
        self.twins.both(lambda store: store.tasks.leave(worker))
        self.last_claims.pop(worker, None)

    @invariant()
    def they_look_the_same(self) -> None:
        self.tasks = self.twins.compare(TENANTS)
        self.twins.compare_tasks(self.touched)
        self.touched = []


def profile(examples: int, steps: int) -> settings:
    return settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )


def machine(make: Open) -> type[TwinStores]:
    class Machine(TwinStores):
        def __init__(self) -> None:
            super().__init__(make)

    return Machine


EXAMPLES = {
    "sqlite": 20,
    "redis": 8,
    "redis?straight=off": 4,
}  # of the quick form: a server far away takes its time


@pytest.fixture(params=EXAMPLES)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def make(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    """Each example gets a store of its own."""
    numbers = count(1)
    if kind == "sqlite":
        yield lambda clock: SqliteStore(tmp_path / f"{next(numbers)}.db", clock)
        return
    server: RedisServer = request.getfixturevalue("redis_server")
    namespace: str = request.getfixturevalue("redis_namespace")

    def on_redis(clock: ManualClock) -> RedisStore:
        name = f"{namespace}-{next(numbers)}"
        return RedisStore(server.url + kind.removeprefix("redis"), clock, name, time=clock.times)

    yield on_redis
    with server.client() as client:
        client.unlink("none", *client.scan_iter(f"{namespace}-*", count=1_000))


def test_twin_stores(make: Open, kind: str) -> None:
    run_state_machine_as_test(machine(make), settings=profile(EXAMPLES[kind], steps=80))


@pytest.mark.slow
@pytest.mark.parametrize("part", range(3))
def test_twin_stores_for_long(make: Open, part: int) -> None:
    run_state_machine_as_test(machine(make), settings=profile(examples=150, steps=120))
