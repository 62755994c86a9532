"""The totals are the store's: they survive the processes that counted (P15)."""

from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from holdfast import Context, Holdfast, Permanent
from holdfast.errors import TaskFailed
from holdfast.insight.monitor import Monitor
from holdfast.observe.metrics import Metrics
from tests.support.runtime.helpers import within_bounds


def an_app(path: Path) -> Holdfast:
    return Holdfast(f"sqlite:///{path / 'tasks.db'}")


async def totals(app: Holdfast) -> dict[str, float]:
    """Each total of the store, summed over its labels."""
    told = Metrics().exposition(await Monitor(app).snapshot()).decode()
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(told):
        for sample in family.samples:
            if sample.name.endswith(("_total", "_count", "_sum")) and "holdfast" in sample.name:
                found[sample.name] = found.get(sample.name, 0.0) + sample.value
    return found


async def test_a_restart_keeps_the_totals(tmp_path: Path) -> None:
    app = an_app(tmp_path)

    @app.task("mail")
    async def send(ctx: Context, fails: bool) -> None:
        if fails:
            raise Permanent("no such address")

    async with app.running(workers=1):
        good, bad = await send.submit(False), await send.submit(True)
        await within_bounds(good.result())
        with pytest.raises(TaskFailed):
            await within_bounds(bad.result())
    async with app:
        before = await totals(app)
    async with an_app(tmp_path) as restarted:
        assert await totals(restarted) == before
        seen = await Monitor(restarted).snapshot()
    assert before["holdfast_stage_duration_seconds_count"] == 2
    assert before["holdfast_tasks_total"] == 4  # each started, one done, one failed
    assert [alert.code for alert in seen.alerts] == ["suspended"]
