"""The question about pairs: who runs beside whom."""

from pathlib import Path

import pytest

from bench.harness.bench import Bench
from bench.harness.engines import MeasuredEngine
from bench.harness.trial_stores import TrialStores
from bench.questions import pairs
from bench.report.figures import CEILING, OURS


def engine(name: str) -> MeasuredEngine:
    return MeasuredEngine(
        name=name,
        version="1",
        stores=("redis",),
        settings={},
        can=frozenset(),
        python=Path("python"),
        script=Path("adapter.py"),
    )


def bench_with(*peers: str, quick: bool = False) -> Bench:
    found = [engine(name) for name in peers]
    return Bench(TrialStores(), engine(OURS), found, ceiling=engine(CEILING), quick=quick)


def names(bench: Bench) -> list[str]:
    [part] = pairs.parts(bench)
    return [str(case.case["pair"]) for case in part.cases]


def test_only_those_who_are_there_run_in_pairs() -> None:
    assert names(bench_with()) == [
        "drain with tenants: holdfast redis",
        "drain of 200,000: holdfast redis",
        "drain: ceiling redis",
        "drain: ceiling sqlite",
    ]
    assert "submit: repid redis" in names(bench_with("repid"))


def test_a_pair_has_ours_and_the_other_five_times() -> None:
    [part] = pairs.parts(bench_with("pgqueuer"))
    case = next(one for one in part.cases if one.case["pair"] == "drain: pgqueuer postgres")
    assert case.beside is not None
    assert (case.who.label, case.beside.who.label) == ("holdfast redis", "pgqueuer postgres")
    assert (case.case["side"], case.beside.case["side"]) == ("ours", "other")
    assert case.runs == case.beside.runs == 5


def test_every_pair_has_a_name_of_its_own() -> None:
    found = [one.name for one in pairs.contests()]
    assert len(found) == len(set(found))


def test_a_quick_run_has_one_pair_with_repid_and_one_with_the_ceiling() -> None:
    bench = bench_with("repid", "huey", "pgqueuer", "dbos", quick=True)
    assert sorted(names(bench)) == sorted(pairs.QUICK)


@pytest.mark.parametrize("what", ["drain", "submit", "latency", "stages"])
def test_each_question_with_a_ratio_has_its_pairs(what: str) -> None:
    assert what in {one.what for one in pairs.contests()}
