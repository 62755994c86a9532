"""The runs of cases: pairs, failures, and the load beside each result."""

import pytest

from bench.harness.bench import Bench, Case, CaseResult, in_turn
from bench.harness.engines import MeasuredEngine
from bench.harness.paths import PYTHON
from bench.harness.plan import Part
from bench.harness.processes import CaseFailed
from bench.harness.trial_stores import TrialStores
from bench.report.figures import Who

OURS = Who(engine="holdfast", store="redis")
REPID = Who(engine="repid", store="redis")


@pytest.fixture
def bench() -> Bench:
    engine = MeasuredEngine(
        name="holdfast",
        version="1",
        stores=("redis",),
        settings={},
        can=frozenset(),
        python=PYTHON,
        script=PYTHON,
    )
    return Bench(TrialStores(), engine, runs=2)


class Side:
    """One side of a pair notes its turn, and fails in the runs that are named."""

    def __init__(self, who: Who, log: list[str], *, fails_in: tuple[int, ...] = ()) -> None:
        self.who, self._log, self._fails_in, self._runs = who, log, fails_in, 0

    def __call__(self) -> CaseResult:
        self._log.append(self.who.engine)
        self._runs += 1
        if self._runs in self._fails_in:
            raise CaseFailed("no")
        return CaseResult(values={"rate": (float(self._runs), "tasks/s")})

    def case(self, beside: Case | None = None, *, runs: int | None = None) -> Case:
        case = {"pair": "drain: repid redis", "side": self.who.engine}
        return Case(
            question="pairs",
            who=self.who,
            case=case,
            run=self,
            runs=runs,
            about=2.0,
            beside=beside,
        )


def values(bench: Bench, measure: str = "rate") -> dict[str, list[float]]:
    return {one.who.engine: one.values for one in bench.book if one.measure == measure}


def test_the_sides_of_a_pair_take_turns_in_being_first(bench: Bench) -> None:
    log: list[str] = []
    bench.measure([Side(OURS, log).case(Side(REPID, log).case(), runs=3)])
    assert log == ["holdfast", "repid", "repid", "holdfast", "holdfast", "repid"]
    assert values(bench) == {"holdfast": [1.0, 2.0, 3.0], "repid": [1.0, 2.0, 3.0]}


def test_a_pair_with_a_side_that_failed_does_not_count(bench: Bench) -> None:
    log: list[str] = []
    other = Side(REPID, log, fails_in=(2,)).case()
    bench.measure([Side(OURS, log).case(other, runs=3)])
    assert values(bench) == {"holdfast": [1.0, 3.0], "repid": [1.0, 3.0]}
    assert [one.problems for one in bench.book if one.who == REPID and one.problems] == [
        ["CaseFailed: no"]
    ]


def test_beside_each_result_stands_how_busy_others_kept_the_machine(bench: Bench) -> None:
    bench.measure([Side(OURS, []).case()])
    [loads] = values(bench, "load").values()
    assert len(loads) == 2
    assert min(loads) >= 0


def test_what_fails_is_written_down_and_not_tried_for_ever(bench: Bench) -> None:
    log: list[str] = []
    bench.measure([Side(OURS, log, fails_in=(1, 2, 3, 4, 5)).case(runs=5)])
    assert len(log) == 2
    assert [figure.problems for figure in bench.book] == [["CaseFailed: no"]]


def test_a_part_lasts_as_long_as_both_sides_of_its_pairs() -> None:
    alone, other = Side(OURS, []).case(), Side(REPID, []).case()
    paired = Side(OURS, []).case(other, runs=5)
    assert Part(question="pairs", what="", cases=[alone, paired]).seconds(3) == 6.0 + 20.0
    assert in_turn(alone, 1) == [alone]
