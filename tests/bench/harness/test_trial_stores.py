"""The stores of trials, and the CPU of their servers."""

import pytest

from bench.harness import cpu
from bench.harness.trial_stores import TrialStores


@pytest.mark.skipif(
    not cpu.PROC.is_dir(), reason="CPU times are read from /proc, which only Linux has"
)
def test_the_work_of_the_server_is_read_beside_that_of_its_client() -> None:
    with TrialStores() as trial_stores, trial_stores.open("redis") as trial:
        first = trial.read_own_cpu()
        assert trial.redis is not None
        with trial.redis.client() as client:
            client.eval("for n = 1, 200000 do redis.sha1hex('x') end", 0)
        last = trial.read_own_cpu(10)
    assert last.server > first.server > 0
    assert last.client > first.client
    assert last.tasks == 10


def test_a_file_has_no_server() -> None:
    with TrialStores() as trial_stores, trial_stores.open("sqlite") as trial:
        assert trial.server_cpu_seconds() == 0.0
