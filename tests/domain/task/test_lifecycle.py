"""Any legal sequence of decisions keeps what must always hold of a record."""

import msgspec
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from holdfast.domain.task import decide, operate
from holdfast.domain.task.checkpoint import Checkpoint, CheckpointVerdict, judge
from holdfast.domain.task.placement import DUE, LOSE, PLACE_AFTER, START, Next, Place, fits
from holdfast.domain.task.retry import Retry
from holdfast.domain.task.state import OPERATOR, Command, Status
from holdfast.domain.task.task import Lease, Task
from holdfast.domain.task.transition import Transition
from holdfast.testing.contract.drivers.store_driver import OPERATE
from tests.support.task_records import BY, NOW, done, failed, failure, task

NAMES = ("one", "two", "three", "four", "five")


class Lifecycle(RuleBasedStateMachine):
    """One record; the machine plays store, holder and operator."""

    task: Task
    checkpoint: Checkpoint | None
    committed: list[tuple[int, int]]  # (epoch, stage) since the last start from scratch
    undone: list[int]
    now = NOW

    @initialize(stages=st.integers(1, 5), is_held=st.booleans())
    def submit(self, stages: int, is_held: bool) -> None:
        status = Status.CREATED if is_held else Status.PENDING
        place = Place.HELD if is_held else Place.READY
        self.task = task(status, stages=NAMES[:stages], version=1, place=place)
        self.checkpoint, self.committed, self.undone = None, [], []

    # -- the store

    @precondition(lambda self: self.task.place is START.leaves)
    @rule()
    def claim(self) -> None:
        fence = self.task.fence + 1
        lease = Lease(owner="w", fence=fence, id=f"l-{fence}", until=0.0)
        self.task = msgspec.structs.replace(
            self.task,
            status=START.to[self.task.status],
            version=self.task.version + 1,
            place=START.enters,
            lease=lease,
            fence=fence,
        )

    @precondition(lambda self: self.task.place is LOSE.leaves)
    @rule(counted=st.booleans())
    def lose(self, counted: bool) -> None:
        self.task = msgspec.structs.replace(
            self.task,
            status=LOSE.to[self.task.status],
            version=self.task.version + 1,
            place=LOSE.enters,
            lease=None,
            crashes=self.task.crashes + counted,
            interrupted=True,
        )

    @precondition(lambda self: self.task.place is DUE.leaves)
    @rule()
    def come_due(self) -> None:
        self.task = msgspec.structs.replace(
            self.task,
            status=DUE.to[self.task.status],
            version=self.task.version + 1,
            place=DUE.enters,
        )

    # -- the holder

    @precondition(lambda self: self.runs)
    @rule()
    def finish_stage(self) -> None:
        index = self.task.last_completed + 1
        assert (self.task.epoch, index) not in self.committed
        self.committed.append((self.task.epoch, index))
        if index == len(self.task.stages) - 1:
            self.write(decide.complete(self.task, done(), now=self.now))
        else:
            made = decide.stage_done(self.task, done(), checkpoint=self.checkpoint, now=self.now)
            self.write(made)

    @precondition(lambda self: self.runs)
    @rule(retry_seconds=st.sampled_from([None, 0.0, 60.0]))
    def fail_stage(self, retry_seconds: float | None) -> None:
        made = decide.stage_failed(
            self.task, failed(retry_seconds), Retry(), checkpoint=self.checkpoint, now=self.now
        )
        self.write(made)

    @precondition(
        lambda self: self.runs and (self.task.pause_requested or self.task.cancel_requested)
    )
    @rule()
    def meet_the_request(self) -> None:
        self.write(decide.boundary(self.task, now=self.now))

    @precondition(lambda self: self.runs)
    @rule()
    def start_over(self) -> None:
        self.committed = []
        self.write(decide.start_over(self.task, "too old", now=self.now))

    @precondition(lambda self: self.task.lease is not None)
    @rule()
    def suspend(self) -> None:
        self.write(decide.suspend(self.task, failure(), now=self.now))

    @precondition(lambda self: self.task.lease is not None)
    @rule(interrupted=st.booleans(), delay_seconds=st.sampled_from([0.0, 5.0]))
    def give_back(self, interrupted: bool, delay_seconds: float) -> None:
        self.write(
            decide.give_back(
                self.task,
                "stopping",
                now=self.now,
                interrupted=interrupted,
                delay_seconds=delay_seconds,
            )
        )

    @precondition(lambda self: self.rolls_back and self.task.next_undo >= 0)
    @rule()
    def undo(self) -> None:
        self.undone.append(self.task.next_undo)
        self.write(
            decide.stage_undone(
                self.task, had_undo=True, data={}, duration_seconds=1.0, now=self.now
            )
        )

    @precondition(lambda self: self.rolls_back and self.task.next_undo >= 0)
    @rule(retry_seconds=st.sampled_from([None, 60.0]))
    def fail_undo(self, retry_seconds: float | None) -> None:
        self.write(decide.undo_failed(self.task, failed(retry_seconds), Retry(), now=self.now))

    @precondition(lambda self: self.rolls_back and self.task.next_undo < 0)
    @rule()
    def finish_rollback(self) -> None:
        begun_first = self.undone[0] if self.undone else -1
        assert self.undone == list(range(begun_first, -1, -1)), "each stage once, in reverse"
        self.write(decide.rolled_back(self.task, now=self.now))

    # -- the operator

    @rule(command=st.sampled_from(sorted(OPERATOR)), from_checkpoint=st.booleans())
    def ask(self, command: Command, from_checkpoint: bool) -> None:
        if not self.task.can(command):
            return
        ask = operate.OperatorRequest(by=BY, now=self.now, request=f"r-{self.task.version}")
        if command is Command.RETRY:
            transition = operate.retry(self.task, ask, from_checkpoint=from_checkpoint)
        else:
            transition = OPERATE[command](self.task, ask)
        if transition.drop_stages:
            self.committed, self.undone = [], []
        assert self.task.lease is None or transition.next is Next.STAY
        self.write(transition)

    def write(self, transition: Transition) -> None:
        """What a store does with it."""
        before, after = self.task, transition.after
        assert transition.expects == before.version
        assert after.version == before.version + 1
        assert transition.lease == (
            before.lease.id if before.lease and not transition.audit else None
        )
        assert {event.version for event in transition.events} == {after.version}
        if transition.drop_checkpoint:
            self.checkpoint = None
        if transition.checkpoint is not None:
            assert (
                self.checkpoint is None or transition.checkpoint.version > self.checkpoint.version
            )
            self.checkpoint = transition.checkpoint
        self.now += 1
        lease = before.lease if transition.next is Next.STAY else None
        place = PLACE_AFTER.get(transition.next, before.place)
        self.task = msgspec.structs.replace(after, lease=lease, place=place)

    @property
    def runs(self) -> bool:
        return self.task.lease is not None and self.task.status is Status.RUNNING

    @property
    def rolls_back(self) -> bool:
        return self.task.lease is not None and self.task.status is Status.ROLLING_BACK

    # -- what must always hold

    @invariant()
    def progress_is_in_range(self) -> None:
        assert -1 <= self.task.last_completed < len(self.task.stages)
        assert -1 <= self.task.next_undo <= self.task.last_completed + 1
        assert self.task.next_undo < len(self.task.stages)

    @invariant()
    def a_task_is_dated_exactly_when_it_has_settled(self) -> None:
        assert self.task.settled == (self.task.settled_at is not None)

    @invariant()
    def the_place_suits_the_status(self) -> None:
        assert fits(self.task.status, self.task.place), (self.task.status, self.task.place)
        assert (self.task.place is Place.LEASED) == (self.task.lease is not None)

    @invariant()
    def only_a_task_that_runs_is_held(self) -> None:
        if self.task.lease is not None:
            assert self.task.status in (Status.RUNNING, Status.ROLLING_BACK)

    @invariant()
    def what_rests_has_no_request_waiting(self) -> None:
        resting = {Status.PAUSED, Status.FAILED, Status.ROLLBACK_FAILED, Status.RETRYING}
        if self.task.settled or self.task.status in resting:
            assert not self.task.pause_requested
            assert not self.task.cancel_requested

    @invariant()
    def failures_stay_under_their_limit(self) -> None:
        assert self.task.failures <= Retry().max
        if self.task.status is Status.RETRYING:
            assert 0 < self.task.failures < Retry().max

    @invariant()
    def the_checkpoint_agrees_with_the_record(self) -> None:
        if self.checkpoint is None:
            return
        verdict, why = judge(self.checkpoint, self.task.stages, now=self.now, max_age_seconds=None)
        assert verdict is CheckpointVerdict.GOOD, why
        assert self.checkpoint.last_completed_stage_index == self.task.last_completed

    @invariant()
    def a_completed_task_has_gone_through_all_its_stages(self) -> None:
        if self.task.status is Status.COMPLETED:
            assert self.task.last_completed == len(self.task.stages) - 1
            assert self.checkpoint is None
        if self.task.status is Status.ROLLED_BACK:
            assert (self.task.last_completed, self.checkpoint) == (-1, None)


TestLifecycle = Lifecycle.TestCase
TestLifecycle.settings = settings(
    max_examples=150,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
