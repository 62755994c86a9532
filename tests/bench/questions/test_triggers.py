"""The question about triggers in its smallest form; and that what it writes is what `save` does."""

import math
from collections.abc import Iterator, Sequence

import pytest
from msgspec.structs import replace

from bench.harness import engines, many_triggers
from bench.harness.bench import Bench
from bench.harness.engines import MeasuredEngine
from bench.harness.load import open_batch_worker
from bench.harness.processes import CaseFailed
from bench.harness.trial_stores import TrialStore, TrialStores
from bench.questions import triggers
from holdfast.domain.trigger.trigger import Trigger
from holdfast.ports.trigger_shortcuts import TriggerShortcuts

STORES = ["redis", "sqlite"]
NOW = 1_700_000_000.0
SIZES = (10, 200)


@pytest.fixture(scope="module")
def ours() -> MeasuredEngine:
    return engines.ours()


@pytest.fixture
def bench(ours: MeasuredEngine) -> Iterator[Bench]:
    with TrialStores() as trial_stores:
        yield Bench(trial_stores, ours, runs=1, quick=True)


@pytest.mark.parametrize("store", STORES)
async def test_what_is_written_in_bulk_is_what_save_writes(bench: Bench, store: str) -> None:
    some = [*many_triggers.series("w", 3, first=NOW, now=NOW - 0.25)]
    with bench.trial_stores.open(store) as bulk, bench.trial_stores.open(store) as saved:
        async with open_batch_worker(bulk.url) as theirs, open_batch_worker(saved.url) as hand:
            many_triggers.write(bulk, some)
            for one in some:
                await TriggerShortcuts(hand.store).save(replace(one, version=0))
            assert await TriggerShortcuts(theirs.store).find_due(NOW + 5, limit=9) == some
            assert await TriggerShortcuts(hand.store).find_due(NOW + 5, limit=9) == some
        for one in some:
            assert many_triggers.raw(bulk, one.id) == many_triggers.raw(saved, one.id) != []


@pytest.mark.parametrize("store", STORES)
async def test_both_sizes_are_asked_without_and_with_a_lease(bench: Bench, store: str) -> None:
    await triggers.measure_lookups(bench, bench.ours.on(store), SIZES, 1, math.inf)

    measures = {"held", "find_due", "with_lease"}
    measures |= {f"{name}_{p}" for name in ("find_due", "with_lease") for p in ("p50", "p99")}
    for size in SIZES:
        found = [figure for figure in bench.book if figure.case["waiting"] == size]
        assert {figure.measure for figure in found} == measures
        assert all(len(figure.values) == 1 for figure in found)
        assert all(figure.values[0] > 0 for figure in found if figure.measure != "held")


async def test_a_bulk_that_is_not_what_its_store_writes_is_noticed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = many_triggers.write

    def otherwise(trial: TrialStore, those: Sequence[Trigger]) -> None:
        write(trial, [replace(one, fired=1) for one in those])

    monkeypatch.setattr(many_triggers, "write", otherwise)
    with pytest.raises(CaseFailed, match="is not what its store writes"):
        await triggers.measure_lookups(bench, bench.ours.on("sqlite"), SIZES, 1, math.inf)


async def test_who_has_no_time_left_says_so(bench: Bench) -> None:
    with pytest.raises(TimeoutError, match="before so many triggers were there"):
        await triggers.measure_lookups(bench, bench.ours.on("sqlite"), SIZES, 1, -math.inf)


@pytest.mark.parametrize("store", STORES)
async def test_each_due_trigger_makes_its_task(bench: Bench, store: str) -> None:
    with bench.trial_stores.open(store) as trial:
        result = await triggers.measure_firing(trial, 150)
        async with open_batch_worker(trial.url) as hand:
            assert sum((await hand.store.views.stats()).by_status.values()) == 150
    assert result.values["fired"][0] > 0


async def test_an_idle_scheduler_is_counted_over_an_hour() -> None:
    calls, unit = (await triggers.measure_idle()).values["idle"]
    assert unit == "calls/min"
    assert 0 < calls <= 4  # two looks for what is due, two for what a clock has sent too far
