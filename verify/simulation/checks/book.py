"""The memory of the checks outside of the store: earlier records, and which process ran what."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from holdfast.domain.task import events as ev
from holdfast.domain.task.state import Status
from holdfast.domain.task.task import Task
from verify.simulation.loop import Process

Breach = tuple[str, str]  # the invariant's name, and what was seen
LAST_STEPS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """The first breach of an invariant in a run."""

    invariant: str
    message: str
    step: int
    at: float
    task_id: str | None
    events: tuple[str, ...] = ()
    steps: tuple[str, ...] = ()


@dataclass(slots=True, kw_only=True)
class Invocation:
    """One call of a stage's or an undo's function."""

    process: Process
    task_id: str
    key: str
    stage: str
    fence: int
    undo: bool
    began_at: float  # by the store's clock
    began_steady: float = 0.0  # by the loop's
    stubborn: bool = False  # it ignores a cancel
    returned: bytes | None = None
    ended_at: float | None = None  # None: it runs, or its process died

    @property
    def lasted_seconds(self) -> float:
        """Return how long the call ran until its process died; infinite while the process lives."""
        return self.process.died_at - self.began_steady


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """A hold of a tenant, set by a person."""

    since_steady: float
    until: float | None  # by the wall clock of the store


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordMove:
    """One record, before and after a step; None: it was not there, or is gone."""

    before: Task | None
    after: Task | None
    events: tuple[ev.Event, ...]
    gone: bool = False  # settled, and not kept: ``after`` is its last record

    @property
    def task(self) -> Task:
        task = self.after or self.before
        assert task is not None
        return task


@dataclass(slots=True)
class WorldBook:
    stop: Callable[[], None]
    steps: int = 0
    broken: Broken | None = None
    counts: Counter[str] = field(default_factory=Counter)
    tasks: dict[str, Task] = field(default_factory=dict)
    events: dict[str, list[ev.Event]] = field(default_factory=lambda: defaultdict(list))
    gone: dict[str, Task] = field(default_factory=dict)
    fences: Counter[str] = field(default_factory=Counter)
    active: dict[str, str] = field(default_factory=dict)  # per tenant, the task claimed last
    applied: set[tuple[str, str, int]] = field(default_factory=set)
    claims: dict[str, tuple[str, frozenset[str]]] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)
    keys: dict[tuple[str | None, str], str] = field(default_factory=dict)
    completed: set[tuple[str, int, str]] = field(default_factory=set)
    undone: set[tuple[str, int, str]] = field(default_factory=set)
    undoable: set[tuple[str, int, str]] = field(default_factory=set)  # committed with an undo
    invocations: dict[tuple[str, int], Invocation] = field(default_factory=dict)  # key, fence
    holders: dict[int, Invocation] = field(default_factory=dict)  # per fence, its last call
    begun: dict[tuple[str, int], set[str]] = field(default_factory=lambda: defaultdict(set))
    asked_at: dict[str, int] = field(default_factory=dict)  # version at which a request was left
    holds: dict[str, Hold] = field(default_factory=dict)  # by tenant
    held_at: dict[int, int] = field(default_factory=dict)  # per fence, its holder's last write
    trace: hashlib.blake2b = field(default_factory=lambda: hashlib.blake2b(digest_size=16))
    recent: deque[str] = field(default_factory=lambda: deque(maxlen=LAST_STEPS))

    def hold_of(self, tenant: str | None, wall: float) -> Hold | None:
        """Return the hold of a tenant that is not over."""
        hold = self.holds.get(tenant or "")
        over = hold is None or (hold.until is not None and hold.until <= wall)
        return None if over else hold

    def present_call(self, task: Task) -> Invocation | None:
        """Return the call that the holder of the task is in, or None when it has begun none.

        The record cannot say which stage that is: a worker whose code has other stages names them
        in the record with its next commit, not when it begins. So a call is the present one as
        long as its stage is not committed in this epoch.
        """
        call = self.holders.get(task.fence)
        undo = task.status is Status.ROLLING_BACK
        if call is None or call.undo is not undo or f"{task.id}/{task.epoch}/" not in call.key:
            return None
        committed = self.undone if undo else self.completed
        return None if (task.id, task.epoch, call.stage) in committed else call

    def beside(self, run: Invocation) -> list[Invocation]:
        """Return the calls that ran in the same process at the same time."""
        end = float("inf") if run.ended_at is None else run.ended_at
        return [
            other
            for other in self.invocations.values()
            if other.process is run.process
            and other is not run
            and other.began_at < end
            and (other.ended_at is None or other.ended_at > run.began_at)
        ]

    def note(self, at: float, line: str) -> None:
        """Add a line to the trace; two runs of a seed must have the same lines."""
        text = f"{self.steps} {at:.6f} {line}"
        self.trace.update(text.encode())
        self.recent.append(text)

    def fail(self, invariant: str, message: str, at: float, task_id: str | None = None) -> None:
        """Note a breach and stop the run; only the first breach counts."""
        if self.broken is None:
            events = self.events.get(task_id, []) if task_id else []
            self.broken = Broken(
                invariant=invariant,
                message=message,
                step=self.steps,
                at=at,
                task_id=task_id,
                events=tuple(_format_event(event) for event in events[-LAST_STEPS:]),
                steps=tuple(self.recent),
            )
        self.stop()

    def judge(self, breaches: Iterable[Breach], at: float, task_id: str | None = None) -> None:
        for invariant, message in breaches:
            self.fail(invariant, message, at, task_id)
            return


def _format_event(event: ev.Event) -> str:
    facts = {
        name: getattr(event, name)
        for name in event.__struct_fields__
        if name not in ("task_id", "version", "at", "failure", "by")
    }
    details = " ".join(f"{name}={value}" for name, value in facts.items())
    return f"v{event.version} at {event.at:.3f} {ev.name_of(event)} {details}".rstrip()
