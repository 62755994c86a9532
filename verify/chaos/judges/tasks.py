"""The judge of tasks reports what is wrong in a history, whatever was killed. It is pure.

There are two witnesses: the records and events of the store, and the ledger that the stages wrote
outside it. A commit counts as the holder's only if the ledger says that its effect was done under
the fence that the store had given out last.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from holdfast import Status
from holdfast.domain.task import events as ev
from holdfast.domain.task import task as tk
from holdfast.domain.task.events import Event
from holdfast.domain.task.task import Task
from holdfast.ports import Finding
from verify.chaos.ledger import LedgerEntry, LineKind

CLOCK_SECONDS = 0.001  # two readings of one wall clock may differ by so much
NOBODY = 0  # no fence
LATE_SECONDS = 2.0  # L1: taken over within the lease and these
STILL_LEASES = 0.7

ENDS_OF_A_CLAIM = (
    ev.LeaseLost,
    ev.TaskYielded,
    ev.TaskRetryScheduled,
    ev.TaskFailedEvent,
    ev.TaskCompleted,
    ev.TaskPaused,
    ev.TaskCancelledEvent,
    ev.TaskRolledBackEvent,
    ev.TaskRollbackFailed,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    expected: Mapping[str, Status]  # submit key → how it has to end
    records: Mapping[str, tuple[Task, Sequence[Event]]]  # by task id
    lines: Sequence[LedgerEntry]
    findings: Sequence[Finding]  # of the doctor
    lease_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskVerdict:
    lost: Sequence[str]
    double: Sequence[str]
    two_owners: Sequence[str]
    disorder: Sequence[str]  # gaps in versions, stages or undos out of order
    doctor: Sequence[str]
    tasks: int
    stages: int
    undos: int
    retries: int
    poison: int
    stale: int
    repeated_submits: int
    swept: Sequence[float]  # seconds from a lease's end to the task's return to its queue
    taken_over: Sequence[float]  # seconds from a lease's end to the next holder
    late: int  # swept over 2 s after the lease's end, not counting the time that follows
    stood_still_seconds: float  # a process frozen inside a write kept all others from theirs

    @property
    def complaints(self) -> list[str]:
        return [*self.lost, *self.double, *self.two_owners, *self.disorder, *self.doctor]


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """A stage or undo that the store has committed."""

    task: str
    key: str  # task/epoch/stage, with /undo for an undo
    fence: int


@dataclass(slots=True, kw_only=True)
class ClaimSpan:
    task: str
    line: str  # whose turn it is: the tenant's, or the task's own without one
    worker: str
    fence: int
    began: float
    ended: float | None = None
    lost: bool = False


@dataclass(slots=True)
class Walk:
    """One task's events, read in order."""

    task: Task
    claims: list[ClaimSpan] = field(default_factory=list)
    commits: list[Commit] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    epoch: int = 1

    def step(self, event: Event) -> None:
        match event:
            case ev.TaskStarted():
                self._start(event)
            case ev.StageCompleted():
                self._commit(f"{self.task.id}/{event.epoch}/{event.stage}", event)
            case ev.StageUndone(had_undo=True):
                self._commit(f"{self.task.id}/{self.epoch}/{event.stage}/undo", event)
            case ev.TaskRetried(from_checkpoint=False) | ev.CheckpointDiscarded():
                self.epoch += 1
        if isinstance(event, ENDS_OF_A_CLAIM):
            self._end(event)

    def _start(self, event: ev.TaskStarted) -> None:
        if self._open is not None:
            self.wrong.append(f"{_at(event)} started while fence {self._open.fence} held it")
        line = self.task.tenant or self.task.id
        self.claims.append(
            ClaimSpan(
                task=self.task.id,
                line=line,
                worker=event.worker,
                fence=event.fence,
                began=event.at,
            )
        )

    def _commit(self, key: str, event: Event) -> None:
        if self._open is None:
            self.wrong.append(f"{_at(event)} committed {key}, and nobody held it")
        fence = self._open.fence if self._open else NOBODY
        self.commits.append(Commit(task=self.task.id, key=key, fence=fence))

    def _end(self, event: Event) -> None:
        claim = self._open
        if claim is None:
            if not isinstance(
                event, ev.TaskPaused | ev.TaskCancelledEvent
            ):  # an operator's, at rest
                self.wrong.append(f"{_at(event)} ended, and nobody held it")
            return
        if isinstance(event, ev.LeaseLost) and event.fence != claim.fence:
            self.wrong.append(f"{_at(event)} lost fence {event.fence}, not {claim.fence}")
        claim.ended, claim.lost = event.at, isinstance(event, ev.LeaseLost)

    @property
    def _open(self) -> ClaimSpan | None:
        return self.claims[-1] if self.claims and self.claims[-1].ended is None else None


def judge(history: History) -> TaskVerdict:
    walks = [walk_events(task, events) for task, events in history.records.values()]
    claims = [claim for walk in walks for claim in walk.claims]
    commits = [commit for walk in walks for commit in walk.commits]
    events = [event for _, of_task in history.records.values() for event in of_task]
    still = _stood_still(history)
    swept, taken_over, late = _take_overs(claims, history, still)
    acks = Counter((line.key, line.task) for line in history.lines if line.kind is LineKind.ACK)
    return TaskVerdict(
        lost=list(_report_lost(history)),
        double=list(_report_double_commits(commits)),
        two_owners=[
            *(complaint for walk in walks for complaint in walk.wrong),
            *_interleaved_claims(claims),
            *_not_the_holders(commits, history.lines),
            *_overlapping_effects(commits, walks, history.lines),
        ],
        disorder=[wrong for record in history.records.values() for wrong in _disorder(*record)],
        doctor=[f"doctor: {f.invariant} {f.task_id} {f.message}" for f in history.findings],
        tasks=len(history.records),
        stages=_count(events, ev.StageCompleted),
        undos=_count(events, ev.StageUndone),
        retries=_count(events, ev.TaskRetryScheduled),
        poison=sum(
            isinstance(e, ev.TaskFailedEvent) and e.failure.kind is tk.FailureKind.POISON
            for e in events
        ),
        stale=sum(line.kind is LineKind.STALE for line in history.lines),
        repeated_submits=acks.total() - len(acks),
        swept=swept,
        taken_over=taken_over,
        late=late,
        stood_still_seconds=sum(end - begin for begin, end in still),
    )


def walk_events(task: Task, events: Sequence[Event]) -> Walk:
    walk = Walk(task)
    for event in events:
        walk.step(event)
    return walk


def _count(events: Sequence[Event], kind: type[Event]) -> int:
    return sum(isinstance(event, kind) for event in events)


def _at(event: Event) -> str:
    return f"task {event.task_id} v{event.version}:"


# -- lost


def _report_lost(history: History) -> Iterator[str]:
    answers: defaultdict[str, set[str]] = defaultdict(set)
    for line in history.lines:
        if line.kind is LineKind.ACK:
            answers[line.key].add(line.task)
    for key, end in history.expected.items():
        ids = answers[key]
        if len(ids) != 1:
            yield f"submit {key}: {len(ids)} tasks were answered: {sorted(ids)}"
        for task_id in ids:
            yield from _ended_wrong(history, key, task_id, end)


def _ended_wrong(history: History, key: str, task_id: str, end: Status) -> Iterator[str]:
    if task_id not in history.records:
        yield f"submit {key}: task {task_id} was accepted and is not in the store"
        return
    task, _ = history.records[task_id]
    if task.status is not end:
        why = task.failure.summary if task.failure else task.reason
        yield f"task {task_id} is {task.status} ({why}) and should be {end}"


# -- double commits


def _report_double_commits(commits: Sequence[Commit]) -> Iterator[str]:
    for key, times in Counter(commit.key for commit in commits).items():
        if times > 1:
            yield f"{key} was committed {times} times"


# -- two owners


def _interleaved_claims(claims: Sequence[ClaimSpan]) -> Iterator[str]:
    for line in _by_line(claims):
        for first, second in pairwise(sorted(line, key=lambda claim: claim.fence)):
            if first.fence == second.fence:
                yield f"{first.line}: fence {first.fence} was given out twice"
            if first.ended is None or first.ended > second.began + CLOCK_SECONDS:
                yield (
                    f"{first.line}: fence {second.fence} ({second.task}) began at "
                    f"{second.began:.3f}, fence {first.fence} ({first.task}) ended {first.ended}"
                )


def _by_line(claims: Sequence[ClaimSpan]) -> list[list[ClaimSpan]]:
    lines: defaultdict[str, list[ClaimSpan]] = defaultdict(list)
    for claim in claims:
        lines[claim.line].append(claim)
    return list(lines.values())


def _not_the_holders(commits: Sequence[Commit], lines: Sequence[LedgerEntry]) -> Iterator[str]:
    done = {(line.key, line.fence) for line in lines if line.kind is LineKind.END}
    for commit in commits:
        if commit.fence != NOBODY and (commit.key, commit.fence) not in done:
            yield f"{commit.key} was committed under fence {commit.fence}, which never did it"


def _overlapping_effects(
    commits: Sequence[Commit], walks: Sequence[Walk], lines: Sequence[LedgerEntry]
) -> Iterator[str]:
    """Report committed effects of one line that began before those of the last fence had ended, by
    the times in the ledger. A zombie's effects in vain are not committed and do not count."""
    whose = {walk.task.id: walk.task.tenant or walk.task.id for walk in walks}
    began: dict[tuple[str, int], float] = {}
    ended: dict[tuple[str, int], float] = {}
    for line in lines:
        if line.kind is LineKind.BEGIN:
            began[line.key, line.fence] = line.at
        elif line.kind is LineKind.END:
            ended[line.key, line.fence] = line.at
    spans: defaultdict[str, list[tuple[int, float, float, str]]] = defaultdict(list)
    for commit in commits:
        at = commit.key, commit.fence
        if at in began and at in ended:
            spans[whose[commit.task]].append((commit.fence, began[at], ended[at], commit.key))
    for of_line in spans.values():
        for (_, _, end, first), (_, begin, _, second) in pairwise(sorted(of_line)):
            if begin + CLOCK_SECONDS < end:
                yield f"{second} began {end - begin:.3f} s before {first} ended"


# -- order


def _disorder(task: Task, events: Sequence[Event]) -> Iterator[str]:
    versions = sorted({event.version for event in events})
    if versions != list(range(1, task.version + 1)):
        yield f"task {task.id}: versions {versions} are not 1 to {task.version}"
    done: dict[int, list[str]] = defaultdict(list)
    for event in events:
        if isinstance(event, ev.StageCompleted):
            done[event.epoch].append(event.stage)
    for epoch, stages in done.items():
        if tuple(stages) != task.stages[: len(stages)]:
            yield f"task {task.id}: epoch {epoch} went through {stages}"
    if task.status is Status.COMPLETED and tuple(done[task.epoch]) != task.stages:
        yield f"task {task.id} completed after {done[task.epoch]}"
    undone = [task.stages.index(e.stage) for e in events if isinstance(e, ev.StageUndone)]
    if undone != sorted(undone, reverse=True):
        yield f"task {task.id}: undone in the order {undone}"


# -- how long it took


def _take_overs(
    claims: Sequence[ClaimSpan], history: History, still: Sequence[tuple[float, float]]
) -> tuple[list[float], list[float], int]:
    """Measure each take-over from the end of the lapsed lease, which the worker's last beat had
    renewed."""
    beats: defaultdict[str, list[float]] = defaultdict(list)
    for line in history.lines:
        if line.kind is LineKind.BEAT:
            beats[line.by].append(line.asked)
        elif line.kind is LineKind.UNANSWERED:  # at the latest
            beats[line.by].append(line.at)
    following = _following(claims)
    swept, taken_over, late = [], [], 0
    for claim in claims:
        if not claim.lost or claim.ended is None:
            continue
        before = [asked for asked in beats[claim.worker] if asked <= claim.ended]
        lapsed = max([claim.began, *before]) + history.lease_seconds
        swept.append(claim.ended - lapsed)
        late += claim.ended - lapsed - _overlap(lapsed, claim.ended, still) > LATE_SECONDS
        if claim.fence in following:
            taken_over.append(following[claim.fence].began - lapsed)
    return sorted(swept), sorted(taken_over), late


def _following(claims: Sequence[ClaimSpan]) -> dict[int, ClaimSpan]:
    """Return the next claim of the same task, by the fence of the claim before it."""
    following: dict[int, ClaimSpan] = {}
    by_task: dict[str, ClaimSpan] = {}
    for claim in sorted(claims, key=lambda claim: claim.fence, reverse=True):
        if claim.task in by_task:
            following[claim.fence] = by_task[claim.task]
        by_task[claim.task] = claim
    return following


def _stood_still(history: History) -> list[tuple[float, float]]:
    """Return the spans in which the store answered nobody, though each worker beats several times
    in a lease."""
    answered = sorted(
        [
            *(line.at for line in history.lines if line.kind is LineKind.BEAT),
            *(
                event.at
                for _, events in history.records.values()
                for event in events
                if isinstance(event, ev.TaskStarted | ev.LeaseLost | ev.TaskDue)
            ),
        ]
    )
    return [(a, b) for a, b in pairwise(answered) if b - a > STILL_LEASES * history.lease_seconds]


def _overlap(begin: float, end: float, spans: Sequence[tuple[float, float]]) -> float:
    return sum(max(0.0, min(end, b) - max(begin, a)) for a, b in spans)
