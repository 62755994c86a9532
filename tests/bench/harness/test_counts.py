"""The counts of a task: a difference of two runs, and one small run on each store."""

import asyncio

import pytest

from bench.harness import counts
from bench.harness.counts import Counters, RunCounts, divide_growth
from bench.harness.trial_stores import TrialStores


def test_what_is_the_same_in_both_runs_is_in_no_count() -> None:
    few = RunCounts(units=100, counts={"calls": 1_000.0 + 100 * 50, "rows": 7.0 + 100 * 3})
    many = RunCounts(units=400, counts={"calls": 1_000.0 + 400 * 50, "rows": 7.0 + 400 * 3})
    assert divide_growth(few, many) == {"calls": pytest.approx(50.0), "rows": pytest.approx(3.0)}


@pytest.mark.parametrize(
    ("store", "what", "names"),
    [
        ("sqlite", "drain", {"calls", "rows"}),
        ("sqlite", "submit", {"calls", "rows"}),
        ("redis", "stages", {"calls", "commands", "bytes"}),
    ],
)
def test_each_kind_of_work_is_counted_to_its_end(store: str, what: str, names: set[str]) -> None:
    with TrialStores() as trial_stores, trial_stores.open(store) as trial:
        found = asyncio.run(counts.count_run(what, Counters(trial.url), 10))
    assert found.units == 10
    assert found.counts.keys() == names


def test_a_connection_that_was_closed_counts_no_more() -> None:
    import apsw

    connection = apsw.Connection(":memory:")
    connection.execute("CREATE TABLE t (n)").fetchall()
    connection.execute("INSERT INTO t VALUES (1), (2)").fetchall()
    assert counts.count_changes(connection) == 2
    connection.close()
    assert counts.count_changes(connection) == 0
