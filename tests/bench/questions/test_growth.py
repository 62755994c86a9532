"""The question about growth in its smallest form."""

import pytest

from bench.harness.load import open_batch_worker
from bench.harness.trial_stores import TrialStores
from bench.questions.growth import OpenStore, measure_round

SERVERS = {"redis": {"server_cpu"}, "sqlite": set[str]()}


@pytest.mark.parametrize("store", ["redis", "sqlite"])
async def test_a_round_has_a_rate_and_the_cpu_beside_it(store: str) -> None:
    with TrialStores() as trial_stores, trial_stores.open(store) as trial:
        async with open_batch_worker(trial.url) as worker:
            hand = OpenStore(trial, worker)
            rate = await measure_round(hand, "rate", tasks=20)
            beside = await measure_round(hand, "beside", tasks=20)
    assert rate.keys() >= {"rate", "client_cpu"}
    assert beside.keys() >= {"beside", "beside_client_cpu"}
    assert rate.keys() - {"rate", "client_cpu"} <= SERVERS[store]
