"""The judge of plans reports what is wrong with them, whichever drivers were killed.

Everything that holds for tasks without a plan holds for the tasks of a plan, too (`tasks.py`). For
the plans themselves there are three witnesses: their own events, in which each slot is given and
taken back; the claims of their tasks; and the ledger, in which drivers wrote what the store had
handed to them and accepted from them. The function of a zombie may still run at the same time as
another: only what was committed counts.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from holdfast.domain.plan import events as pe
from holdfast.domain.plan.events import PlanEvent
from holdfast.domain.plan.members import RESTS
from holdfast.domain.plan.plan import (
    ENDED,
    SLOTTED,
    Member,
    MemberState,
    Plan,
    PlanStatus,
    PlanTasks,
)
from holdfast.domain.task.events import Event
from holdfast.domain.task.task import Task
from verify.chaos.judges.tasks import (
    CLOCK_SECONDS,
    ClaimSpan,
    History,
    TaskVerdict,
    judge,
    walk_events,
)
from verify.chaos.ledger import LedgerEntry, LineKind

AGAIN = (MemberState.FAILED, MemberState.ROLLED_BACK)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRecords:
    plan: Plan
    tasks: PlanTasks
    members: Mapping[int, Member]
    events: Sequence[PlanEvent]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanHistory:
    expected: Mapping[str, PlanStatus]  # plan → how it has to end
    plans: Mapping[str, PlanRecords]
    beside: History  # the tasks, the ledger, the doctor


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanVerdict:
    tasks: TaskVerdict
    lost: Sequence[str]  # plans, or tasks of theirs, that did not end as they should
    crowded: Sequence[str]  # more at once than max_concurrency
    disorder: Sequence[str]  # waves out of order, versions with gaps
    two_drivers: Sequence[str]
    plans: int
    waves: int
    halts: int
    rolled_back: int
    pauses: int
    drivers: int
    stale: int

    @property
    def complaints(self) -> list[str]:
        found = [*self.lost, *self.crowded, *self.disorder, *self.two_drivers]
        return [*found, *self.tasks.complaints]


def judge_plans(history: PlanHistory) -> PlanVerdict:
    walks = [_Walk(records) for records in history.plans.values()]
    for walk in walks:
        walk.run()
    lines = history.beside.lines
    events = Counter(type(e) for of in history.plans.values() for e in of.events)
    ids = history.plans.keys()
    return PlanVerdict(
        tasks=judge(history.beside),
        lost=[*_report_lost(history), *(said for walk in walks for said in walk.lost)],
        crowded=[
            *(said for walk in walks for said in walk.crowded),
            *(said for of in history.plans.values() for said in _side_by_side(of, history.beside)),
        ],
        disorder=[
            *(said for walk in walks for said in walk.disorder),
            *(said for of in history.plans.values() for said in _too_early(of, history.beside)),
        ],
        two_drivers=[said for plan_id in ids for said in _two_drivers(plan_id, lines)],
        plans=len(history.plans),
        waves=events[pe.WaveStarted],
        halts=events[pe.PlanHalted],
        rolled_back=events[pe.PlanRolledBack],
        pauses=events[pe.PlanPaused],
        drivers=sum(line.kind is LineKind.DRIVES for line in lines),
        stale=sum(line.kind is LineKind.STALE and line.task in ids for line in lines),
    )


# -- by the plan's own events


@dataclass(slots=True)
class _Walk:
    """One plan's events, read in order."""

    records: PlanRecords
    states: dict[int, MemberState] = field(default_factory=dict)
    wave: int = 0  # the present one, from 1; 0: none has started
    wave_ended_at: float | None = None
    lost: list[str] = field(default_factory=list)
    crowded: list[str] = field(default_factory=list)
    disorder: list[str] = field(default_factory=list)

    def run(self) -> None:
        self._check_versions()
        for event in self.records.events:
            self._step(event)
        kept = {index: member.state for index, member in self.records.members.items()}
        if kept != self.states:
            plan_id = self.records.plan.id
            self.disorder.append(f"plan {plan_id}: its members are not what its events say")

    def _check_versions(self) -> None:
        plan = self.records.plan
        versions = sorted({event.version for event in self.records.events})
        if versions != list(range(1, plan.version + 1)):
            said = f"plan {plan.id}: the versions of its events are not 1 to {plan.version}"
            self.disorder.append(said)

    def _step(self, event: PlanEvent) -> None:
        match event:
            case pe.PlanAdvanced(moved=moves):
                self._move(event, [(index, MemberState(state)) for index, state in moves])
            case pe.PlanRetried():
                self._retry()
            case pe.PlanRollingBack():
                self._roll_back(event)
            case pe.WaveEnded(wave=wave):
                self._end_wave(event, wave)
            case pe.WaveStarted(wave=wave):
                self._start_wave(event, wave)

    def _move(self, event: PlanEvent, moves: Sequence[tuple[int, MemberState]]) -> None:
        plan = self.records.plan
        for index, state in moves:
            if state is MemberState.WAITING:
                self.states.pop(index, None)
                continue
            self.states[index] = state
            if state is MemberState.ADMITTED and plan.wave_of(index) + 1 > self.wave:
                self.disorder.append(f"{_at(event)} task {index} was let go in wave {self.wave}")
        slotted = sum(state in SLOTTED for state in self.states.values())
        if plan.max_concurrency is not None and slotted > plan.max_concurrency:
            self.crowded.append(f"{_at(event)} {slotted} slots, at most {plan.max_concurrency}")

    def _retry(self) -> None:
        """Let the failed ones wait again, and take the plan back to the first wave of them."""
        plan = self.records.plan
        again = [index for index, state in self.states.items() if state in AGAIN]
        for index in again:
            del self.states[index]
            self.wave = min(self.wave, plan.wave_of(index) + 1)
        self.wave_ended_at = None

    def _roll_back(self, event: pe.PlanRollingBack) -> None:
        """Asked for once more by a person: what could not be undone is tried again."""
        for index, state in self.states.items():
            if event.by is not None and state is MemberState.ROLLBACK_FAILED:
                self.states[index] = MemberState.FAILED

    def _end_wave(self, event: PlanEvent, wave: int) -> None:
        if wave != self.wave:
            self.disorder.append(f"{_at(event)} wave {wave} ended in wave {self.wave}")
        self.wave_ended_at = event.at
        span = self.records.plan.span(wave - 1)
        if going := [index for index in span if self.states.get(index) not in ENDED]:
            self.disorder.append(f"{_at(event)} wave {wave} ended with tasks {going} not ended")

    def _start_wave(self, event: PlanEvent, wave: int) -> None:
        soak_seconds = self.records.plan.soak_seconds
        if wave != self.wave + 1:
            self.disorder.append(f"{_at(event)} wave {wave} started after wave {self.wave}")
        if wave > 1 and self.wave_ended_at is None:
            self.disorder.append(f"{_at(event)} wave {wave} started before the last had ended")
        elif self.wave_ended_at is not None and self._ran(wave - 1):
            soaked = event.at - self.wave_ended_at
            if soaked + CLOCK_SECONDS < soak_seconds:
                said = f"{_at(event)} wave {wave} started after a soak of {soaked:.3f} s"
                self.disorder.append(said)
        self.wave, self.wave_ended_at = wave, None

    def _ran(self, wave: int) -> bool:
        """Return whether the wave ran; a wave that let none go shows nothing."""
        retried = any(isinstance(event, pe.PlanRetried) for event in self.records.events)
        return wave > 0 and not retried


# -- by the claims of its tasks


def _claims(of: PlanRecords, beside: History) -> Iterator[tuple[int, ClaimSpan]]:
    for index, task_id in enumerate(of.tasks.ids):
        if task_id in beside.records:
            for claim in walk_events(*beside.records[task_id]).claims:
                yield index, claim


def _side_by_side(of: PlanRecords, beside: History) -> Iterator[str]:
    """Compare by event times: a claim ends at the latest when its commit is decided on."""
    most = of.plan.max_concurrency
    if most is None:
        return
    steps: list[tuple[float, int]] = []
    for _, claim in _claims(of, beside):
        ended = claim.began if claim.ended is None else claim.ended
        if ended - claim.began > CLOCK_SECONDS:
            steps += [(claim.began + CLOCK_SECONDS, 1), (ended, -1)]
    at_once = 0
    for at, step in sorted(steps):
        at_once += step
        if at_once > most:
            yield f"plan {of.plan.id}: {at_once} tasks at once at {at:.3f}, at most {most}"


def _too_early(of: PlanRecords, beside: History) -> Iterator[str]:
    started: dict[int, float] = {}
    for event in of.events:
        if isinstance(event, pe.WaveStarted):
            started.setdefault(event.wave, event.at)
    for index, claim in _claims(of, beside):
        wave = of.plan.wave_of(index) + 1
        if wave not in started or claim.began + CLOCK_SECONDS < started[wave]:
            yield f"plan {of.plan.id}: task {index} ran at {claim.began:.3f}, before wave {wave}"


# -- lost


def _report_lost(history: PlanHistory) -> Iterator[str]:
    answered = {line.key for line in history.beside.lines if line.kind is LineKind.ACK}
    for plan_id, end in history.expected.items():
        if plan_id not in answered:
            yield f"plan {plan_id} was never answered"
        if plan_id not in history.plans:
            yield f"plan {plan_id} is not in the store"
            continue
        of = history.plans[plan_id]
        if of.plan.status is not end:
            yield f"plan {plan_id} is {of.plan.status} ({of.plan.reason}) and should be {end}"
        for index, task_id in enumerate(of.tasks.ids):
            yield from _lost_task(of, index, history.beside.records.get(task_id))


def _lost_task(
    of: PlanRecords, index: int, found: tuple[Task, Sequence[Event]] | None
) -> Iterator[str]:
    member = of.members.get(index)
    said = f"plan {of.plan.id}: task {index}"
    if found is None:
        yield f"{said} is not in the store"
    elif member is None or member.state is not RESTS.get(found[0].status):
        yield f"{said} is {found[0].status}, and its plan has it as {member and member.state}"


# -- two drivers


def _two_drivers(plan_id: str, lines: Sequence[LedgerEntry]) -> Iterator[str]:
    """Each take-over raises the fence, and nobody writes under one that is lower than the last."""
    handed: defaultdict[int, list[str]] = defaultdict(list)
    wrote: set[tuple[int, int]] = set()
    for line in lines:
        if line.task != plan_id:
            continue
        if line.kind is LineKind.DRIVES:
            handed[line.fence].append(line.by)
        elif line.kind is LineKind.WROTE:
            wrote.add((int(line.key), line.fence))
    for fence, drivers in handed.items():
        if len(drivers) > 1:
            yield f"plan {plan_id}: fence {fence} was handed to {sorted(drivers)}"
    for (last, before), (version, fence) in pairwise(sorted(wrote)):
        if version == last:
            yield f"plan {plan_id} v{version}: written under the fences {before} and {fence}"
        elif fence < before:
            yield f"plan {plan_id} v{version}: written under fence {fence}, after {before}"


def _at(event: PlanEvent) -> str:
    return f"plan {event.plan_id} v{event.version}:"
