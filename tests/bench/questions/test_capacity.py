"""The question about partitions in its smallest form."""

import pytest

from bench.harness import engines
from bench.harness.bench import Bench
from bench.harness.trial_stores import TrialStores
from bench.questions import capacity, drain


def test_one_partition_and_two_run_as_a_pair() -> None:
    with TrialStores() as trial_stores:
        [part] = capacity.parts(Bench(trial_stores, engines.ours()))
    [case] = part.cases
    assert case.beside is not None
    assert [one.case["partitions"] for one in (case, case.beside)] == [2, 1]
    assert case.runs == 5


@pytest.mark.slow
def test_the_busiest_node_does_a_part_of_what_all_nodes_do(monkeypatch: pytest.MonkeyPatch) -> None:
    for limit in ("LIMIT_QUICK_SECONDS", "FIRST_START_SECONDS"):
        monkeypatch.setattr(drain, limit, 120.0)
    with TrialStores() as trial_stores:
        bench = Bench(trial_stores, engines.ours(), quick=True)
        values = capacity.measure_partitions(bench, 2, tasks=50).values
    assert 0 < values["busiest_node_cpu"][0] < values["nodes_cpu"][0]
    assert values["rate"][0] > 0
