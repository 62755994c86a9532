"""The ceiling plays the protocol of the adapters, and does each task once."""

from collections.abc import Iterator

import msgspec
import pytest

from bench.harness import engines
from bench.harness.bench import Bench
from bench.harness.trial_stores import TrialStores
from bench.questions import drain
from bench.questions.drain import measure_drain
from bench.report.figures import CEILING

TASKS = 300  # more than two batches


@pytest.fixture
def bench() -> Iterator[Bench]:
    ceiling = engines.ceiling()
    with TrialStores() as trial_stores:
        ours = msgspec.structs.replace(ceiling, name="holdfast")  # not asked
        yield Bench(trial_stores, ours, ceiling=ceiling, runs=1, quick=True)


@pytest.mark.parametrize("store", ["redis", "sqlite"])
def test_the_ceiling_does_each_task_once(
    bench: Bench, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for limit in ("LIMIT_QUICK_SECONDS", "FIRST_START_SECONDS"):
        monkeypatch.setattr(drain, limit, 120.0)
    assert bench.ceiling is not None
    result = measure_drain(bench, bench.ceiling.on(store), tasks=TASKS)
    assert result.values["rate"][0] > 0
    assert not result.notes


def test_the_ceiling_is_no_peer(bench: Bench) -> None:
    assert bench.ceiling is not None
    assert bench.ceiling.name == CEILING
    assert CEILING not in {who.engine for who in bench.whos("drain", "best")}
