"""The question about plans in its smallest form."""

from collections.abc import Iterator

import pytest

from bench.harness.places import Place, Places
from bench.questions import plans

TASKS = 30


@pytest.fixture(params=["redis", "sqlite"])
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    with Places() as places, places.open(request.param) as place:
        yield place


@pytest.mark.parametrize("slots", [5, plans.NO_LIMIT])
async def test_a_plan_is_made_driven_to_its_end_and_asked(place: Place, slots: int) -> None:
    values = (await plans.planned(place.url, TASKS, slots)).values
    assert {name: unit for name, (_, unit) in values.items()} == {
        "made": "s",
        "completed": "s",
        "rate": "tasks/s",
        "info_p50": "ms",
        "opening_p50": "ms",
    }
    assert values["rate"][0] == pytest.approx(TASKS / values["completed"][0])


async def test_the_same_tasks_are_drained_without_a_plan(place: Place) -> None:
    assert await plans.drained(place.url, TASKS) > 0
