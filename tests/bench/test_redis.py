"""The measurements in their smallest form: that they print figures, and what must hold anyway."""

import pytest

from bench import redis_growth
from bench.redis_growth import GOAL_BYTES, Sizes, loads, measure_load, report

SMALLEST = Sizes(tasks=1000, few=100, steady=100)


@pytest.mark.parametrize("name", ["none", "many", "one", "plain"])
async def test_a_load_leaves_nothing_behind_and_a_waiting_task_is_small(name: str) -> None:
    growth = await measure_load(loads(100)[name], SMALLEST)

    assert 200 < growth.bytes_per_task <= GOAL_BYTES
    before, after = growth.before, growth.after
    assert (after.keys, after.pending, after.consumers) == (before.keys, 0, 0)
    assert after.used_bytes < before.used_bytes * 1.05
    assert {"task", "payload", "by_status", "by_day"} <= growth.by_kind.keys()
    assert len(report(growth)) > 10


def test_the_command_prints_figures(capsys: pytest.CaptureFixture[str]) -> None:
    redis_growth.main(["--tasks", "500", "--loads", "plain"])

    said = capsys.readouterr().out
    assert "no tenant, no key, 500 waiting" in said
    assert "bytes per task" in said
    assert "µs per claim" in said
