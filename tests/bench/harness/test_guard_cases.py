"""The cases of the guard, and what is made of their pairs."""

import pytest

from bench.harness import guard, guard_cases
from bench.harness.bench import Bench
from bench.harness.engines import MeasuredEngine
from bench.harness.guard_cases import GUARDED, NAMES, measure_names, pairs_of, values_of
from bench.harness.paths import PYTHON
from bench.harness.trial_stores import TrialStores
from bench.report.figures import Book
from tests.support.bench.bench_figures import Pair, add_pair, who

STORES = ("redis", "sqlite")


def book_of(*, load: float = 0.1) -> Book:
    book = Book()
    for other, rate in (("ceiling", 80.0), ("repid", 10.0)):
        pair = who("holdfast", "redis"), who(other, "redis")
        add_pair(book, Pair("drain", *pair, [8.0], [rate]), load=load, cpu=(40.0, 5.0))
    return book


def measured_engine(name: str) -> MeasuredEngine:
    return MeasuredEngine(
        name=name,
        version="1",
        stores=STORES,
        settings={},
        can=frozenset(),
        python=PYTHON,
        script=PYTHON,
    )


def test_every_kind_of_work_is_guarded_on_each_store_and_a_drain_beside_repid() -> None:
    works = {f"{what}_{store}" for what in ("drain", "submit", "stages") for store in STORES}
    assert set(GUARDED) == works | {"drain_redis_beside_repid"}
    assert {guard.kind_of(name) for name in NAMES} == set(guard.TOLERANCES)


def test_a_drain_is_compared_with_the_other_that_is_meant() -> None:
    [ceiling] = pairs_of(book_of(), GUARDED["drain_redis"])
    [repid] = pairs_of(book_of(), GUARDED["drain_redis_beside_repid"])
    assert values_of(ceiling, ["rate", "client_cpu"]) == {"rate": 0.1, "client_cpu": 8.0}
    assert values_of(repid, ["rate", "cpu"]) == {"rate": 0.8, "cpu": 8.0}


def test_a_side_whose_cpu_is_not_known_has_no_value() -> None:
    [pair] = pairs_of(book_of(), GUARDED["drain_redis"])
    assert values_of(pair, ["server_cpu"]) == {}


@pytest.mark.parametrize(("load", "disturbed"), [(0.9, set()), (1.1, {"drain_redis:rate"})])
def test_what_was_measured_is_told_by_name(
    monkeypatch: pytest.MonkeyPatch, load: float, disturbed: set[str]
) -> None:
    engine = measured_engine("ceiling")
    ours = measured_engine("holdfast")
    bench = Bench(TrialStores(), ours, ceiling=engine)
    asked: list[str] = []

    def measure(cases: list[object]) -> None:
        asked.extend(map(str, cases))
        bench.book = book_of(load=load)

    monkeypatch.setattr(bench, "measure", measure)
    monkeypatch.setattr(guard_cases, "_count", lambda *_: {"calls": 100.0})
    names = ["drain_redis:calls", "drain_redis:rate", "drain_redis_beside_repid:rate"]
    values, found = measure_names(bench, names)
    assert len(asked) == 1  # repid is not there
    assert values == {
        "drain_redis:calls": 100.0,
        "drain_redis:client_cpu": 8.0,
        "drain_redis:rate": 0.1,
    }
    assert found == disturbed


def test_the_least_of_several_counts_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    found = iter([{"calls": 102.0, "rows": 5.0}, {"calls": 101.0}])
    monkeypatch.setattr(guard_cases, "_count_once", lambda *_: next(found))
    ours = measured_engine("holdfast")
    bench = Bench(TrialStores(), ours)
    values, _ = measure_names(bench, ["drain_sqlite:calls"])
    assert values == {"drain_sqlite:calls": 101.0, "drain_sqlite:rows": 5.0}
