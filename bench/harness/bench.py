"""One run of the benchmark: who takes part, how often, until when; and calls of adapters."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from bench.harness import processes
from bench.harness.cpu import LoadMeter
from bench.harness.engines import MeasuredEngine
from bench.harness.processes import CaseFailed, ChildProcess, without_places
from bench.harness.trial_stores import TrialStore, TrialStores
from bench.peers.board import Board
from bench.report.figures import LOAD, Book, Figure, Who, note_once

CALL_SECONDS = 90.0
LAST_CALL_SECONDS = 10.0  # what was begun in time may come to its end
FOR_WORKFLOWS = ("stages", "recovery")
FAILURES_MAX = 2  # after that a case is not tried again
PEERS_TO_OURS = 3  # so many cases of peers for each repetition of ours between them


class CaseResult(msgspec.Struct, kw_only=True):
    """The result of one run of a case: values by measure, each with its unit."""

    values: dict[str, tuple[float, str]]
    notes: list[str] = []


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """Something to be measured in each run."""

    question: str
    who: Who
    case: Mapping[str, int | str]
    run: Callable[[], CaseResult]
    runs: int | None = None  # of this case; else as many as of all others
    main: tuple[str, str] = ("rate", "tasks/s")  # where a problem is written down
    about: float = 5.0  # seconds that one run takes on two cores, as far as one can tell
    beside: Case | None = None  # run back to back with it; both are counted, or neither

    @property
    def seconds(self) -> float:
        """Return the seconds of one run, with the case beside it."""
        return self.about + (self.beside.about if self.beside else 0.0)

    def __str__(self) -> str:
        details = " ".join(f"{name}={value}" for name, value in self.case.items())
        return f"{self.question}: {self.who.label} ({self.who.settings}) {details}".rstrip()


class Bench:
    def __init__(
        self,
        trial_stores: TrialStores,
        ours: MeasuredEngine,
        peers: Sequence[MeasuredEngine] = (),
        *,
        ceiling: MeasuredEngine | None = None,
        runs: int = 3,
        quick: bool = False,
        seconds: float = math.inf,
    ) -> None:
        self.trial_stores, self.ours, self.peers = trial_stores, ours, peers
        self.ceiling = ceiling
        self.runs, self.quick = runs, quick
        self.book = Book()
        self._ends_at = self._part_ends_at = time.monotonic() + seconds

    # -- measuring

    def allot(self, seconds: float) -> None:
        """Set the time limit of the next part."""
        self._part_ends_at = min(self._ends_at, time.monotonic() + seconds)

    def measure(self, cases: Sequence[Case]) -> None:
        """Measure all cases in each run, ours and others in turn, and note failures."""
        failures: dict[str, int] = {}
        for run in range(max((case.runs or self.runs for case in cases), default=0)):
            wanted = [case for case in cases if run < (case.runs or self.runs)]
            for case in alternating(wanted):
                if failures.get(str(case), 0) < FAILURES_MAX and not self._measure(case, run):
                    failures[str(case)] = failures.get(str(case), 0) + 1

    def _measure(self, case: Case, run: int) -> bool:
        main = self._main_figure(case)
        if self.seconds_left <= 0:
            if not main.values:
                note_once(main.problems, "not run: the time for it was over")
            return True
        both = in_turn(case, run)
        results = [self._attempt(one, run) for one in both]
        found = [result for result in results if result is not None]
        if len(found) < len(both):
            return False
        for one, result in zip(both, found, strict=True):
            self._record(one, result)
        return True

    def _attempt(self, case: Case, run: int) -> CaseResult | None:
        """Run a case once; note why it failed, or how busy others kept the machine meanwhile."""
        meter, begun = LoadMeter(), time.monotonic()
        try:
            result = case.run()
        except Exception as error:
            problem = without_places(f"{type(error).__name__}: {error}")
            note_once(self._main_figure(case).problems, problem)
            self._tell(case, run, f"failed: {problem}", begun)
            return None
        if result.values:
            load = (meter.busy_cores(), "cores")
            result = msgspec.structs.replace(result, values={**result.values, LOAD: load})
        said = ", ".join(f"{m} {v:,.4g} {u}" for m, (v, u) in result.values.items())
        said += "".join(f" [{note}]" for note in result.notes)
        self._tell(case, run, said, begun)
        return result

    def _record(self, case: Case, result: CaseResult) -> None:
        for measure, (value, unit) in result.values.items():
            figure = self.book.figure(case.question, case.who, case.case, measure, unit)
            figure.values.append(value)
        for note in result.notes:
            note_once(self._main_figure(case).notes, note)

    def _main_figure(self, case: Case) -> Figure:
        return self.book.figure(case.question, case.who, case.case, *case.main)

    def _tell(self, case: Case, run: int, said: str, begun: float) -> None:
        took = time.monotonic() - begun
        print(f"  run {run + 1}  {case}: {said}  ({took:.1f} s)", file=sys.stderr, flush=True)

    @property
    def whole_seconds_left(self) -> float:
        return self._ends_at - time.monotonic()

    @property
    def seconds_left(self) -> float:
        return self._part_ends_at - time.monotonic()

    # -- adapters

    def engine(self, who: Who) -> MeasuredEngine:
        known = (self.ours, *self.peers, *filter(None, (self.ceiling,)))
        return next(one for one in known if one.name == who.engine)

    def whos(self, ability: str, *settings: str) -> list[Who]:
        """Return all engines that can do this on each of their stores, ours first.

        A quick run asks peers that were made for workflows only about workflows.
        """
        found = []
        for engine in (self.ours, *self.peers):
            beside = self.quick and engine is not self.ours and "stages" in engine.can
            if ability in engine.can and not (beside and ability not in FOR_WORKFLOWS):
                wanted = settings[:1] if engine is self.ours else settings
                found += [engine.on(store, one) for one in wanted for store in engine.stores]
        return found

    def call(
        self,
        who: Who,
        role: str,
        trial: TrialStore,
        *,
        seconds: float = CALL_SECONDS,
        **options: object,
    ) -> dict[str, Any]:
        command = self.engine(who).command(
            role, url=trial.url, settings=who.settings, **set_options(options)
        )
        left = self._ends_at - time.monotonic()
        try:
            return processes.call(command, seconds=min(seconds, max(left, LAST_CALL_SECONDS)))
        except CaseFailed as error:
            raise CaseFailed(f"{role}: {error}") from error

    def start_worker(
        self, who: Who, trial: TrialStore, board: Path, size: int, **more: object
    ) -> ChildProcess:
        options = {"url": trial.url, "settings": who.settings, "board": board, "size": size}
        return ChildProcess(self.engine(who).command("work", **options, **set_options(more)))

    @contextmanager
    def working(
        self,
        who: Who,
        trial: TrialStore,
        board: Path,
        size: int,
        *,
        workers: int = 1,
        **more: object,
    ) -> Iterator[list[ChildProcess]]:
        """Run so many worker processes, and stop all of them at the end."""
        with ExitStack() as stack:
            crew = [
                stack.enter_context(self.start_worker(who, trial, board, size, **more))
                for _ in range(workers)
            ]
            yield crew
            for process in crew:
                process.ask_to_stop()
            for process in crew:
                process.stop()


def in_turn(case: Case, run: int) -> list[Case]:
    """Return the case, or both of a pair: the one that was first is second in the next run."""
    if case.beside is None:
        return [case]
    return [case, case.beside] if run % 2 == 0 else [case.beside, case]


def alternating(cases: Sequence[Case]) -> list[Case]:
    """Order our cases evenly between the peers', so that both bear the machine's other load alike.

    Each case comes at least once. If the others have many more, our first runs again between them,
    but only once for a few of theirs.
    """
    ours = [case for case in cases if case.who.is_ours]
    others = [case for case in cases if not case.who.is_ours]
    if ours and ours[0].runs is None:
        wanted = -(-len(others) // PEERS_TO_OURS)
        ours += ours[:1] * max(0, wanted - len(ours))
    placed = [(n / len(ours), 0, case) for n, case in enumerate(ours)]
    placed += [((n + 0.5) / len(others), 1, case) for n, case in enumerate(others)]
    return [case for _, _, case in sorted(placed, key=lambda one: one[:2])]


def set_options(options: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in options.items() if value is not None}


@contextmanager
def new_board(size: int) -> Iterator[tuple[Path, Board]]:
    with TemporaryDirectory(prefix="holdfast-board-") as folder:
        path = Path(folder) / "board"
        board = Board.make(path, size)
        try:
            yield path, board
        finally:
            board.close()


def clear(path: Path, size: int) -> None:
    """Empty the board while others have it open."""
    with path.open("r+b") as file:
        file.write(bytes(18 * size))


def require_alive(crew: Sequence[ChildProcess]) -> None:
    for process in crew:
        if not process.alive:
            raise CaseFailed(f"a worker ended by itself; {process.complaint()}")
