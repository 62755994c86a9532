"""A process of its own exempts what it has loaded from garbage collection; others do not."""

import gc
from collections.abc import Iterator

import pytest

from holdfast import Context, Holdfast
from holdfast.cli.process.garbage_collection import YOUNG_OBJECTS, exempt_startup_objects


@pytest.fixture
def settings() -> Iterator[tuple[int, int, int]]:
    before = gc.get_threshold()
    yield before
    gc.unfreeze()
    gc.set_threshold(*before)


def test_what_exists_is_exempt_and_new_objects_are_checked_less_often(
    settings: tuple[int, int, int],
) -> None:
    exempt_startup_objects()
    assert gc.get_freeze_count() > 0
    assert gc.get_threshold() == (YOUNG_OBJECTS, *settings[1:])


async def test_a_process_that_embeds_an_app_keeps_its_own_settings() -> None:
    before = gc.get_freeze_count(), gc.get_threshold()
    app = Holdfast("memory://")

    @app.task("answer")
    async def answer(ctx: Context) -> tuple[int, tuple[int, int, int]]:
        return gc.get_freeze_count(), gc.get_threshold()

    async with app.running():
        count, threshold = await (await answer.submit()).result(timeout="1m")
    assert (count, tuple(threshold)) == before
