"""The question about plans in its smallest form."""

from collections.abc import Iterator

import pytest

from bench.harness.trial_stores import TrialStore, TrialStores
from bench.questions import plans

TASKS = 30


@pytest.fixture(params=["redis", "sqlite"])
def trial(request: pytest.FixtureRequest) -> Iterator[TrialStore]:
    with TrialStores() as trial_stores, trial_stores.open(request.param) as trial:
        yield trial


@pytest.mark.parametrize("slots", [5, plans.NO_LIMIT])
async def test_a_plan_is_made_driven_to_its_end_and_asked(trial: TrialStore, slots: int) -> None:
    values = (await plans.measure_plan(trial, TASKS, slots)).values
    units = {name: unit for name, (_, unit) in values.items() if not name.endswith("_cpu")}
    assert units == {
        "made": "s",
        "completed": "s",
        "rate": "tasks/s",
        "info_p50": "ms",
        "opening_p50": "ms",
    }
    assert values["rate"][0] == pytest.approx(TASKS / values["completed"][0])


async def test_the_same_tasks_are_drained_without_a_plan(trial: TrialStore) -> None:
    values = (await plans.drain_plain(trial, TASKS)).values
    assert values["plain"][0] > 0
    assert values["plain_client_cpu"][0] > 0
