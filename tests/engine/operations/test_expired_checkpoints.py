"""Which tasks would start over is said before they are set going: bulk actions, plans, views."""

from typing import Any

import pytest

from holdfast import Context, Filter, Handle, Holdfast, Permanent, Status
from holdfast.domain.redaction import Redactor
from holdfast.engine.operations import expired_checkpoints
from holdfast.insight.views.bulk import bulk_preview_view
from holdfast.insight.views.tasks import TaskDetail, detail_view
from holdfast.testing import Engine
from holdfast.testing.plugin import MakeEngine
from tests.support.runtime.helpers import detail_of, task_of


class Bench:
    """Two workflows that fail in their second stage: one starts over, one waits for a person."""

    def __init__(self, app: Holdfast, engine: Engine) -> None:
        self.app, self.engine = app, engine
        self.flows = {
            name: app.workflow(name, on_invalid=name, checkpoint_max_age="7d")
            for name in ("restart", "suspend")
        }
        for flow in self.flows.values():
            flow.stage(name="first")(self.first)
            flow.stage(name="second")(self.second)

    async def first(self, ctx: Context, _: None) -> None: ...

    async def second(self, ctx: Context, _: None) -> None:
        raise Permanent("no")

    async def failed(self, name: str) -> Handle[Any]:
        handle = await self.flows[name].submit(None)
        await self.engine.drain()
        assert (await handle.info()).status is Status.FAILED
        return handle

    async def shape(self, handle: Handle[Any]) -> TaskDetail:
        detail = await detail_of(self.engine, handle)
        now, find = self.engine.clock.now(), self.app.registry.find
        return detail_view(detail, Redactor(), now=now, find=find)

    def rename_first_stage(self, name: str) -> None:
        """As a deploy does."""
        declared = self.app.registry.find(name)
        assert declared is not None
        declared.stages[0].name, declared.stage_names = "anew", ("anew", "second")


@pytest.fixture
def bench(app: Holdfast, holdfast_engine: MakeEngine) -> Bench:
    return Bench(app, holdfast_engine(app))


async def test_a_preview_names_those_that_would_start_over(bench: Bench) -> None:
    old, waits = await bench.failed("restart"), await bench.failed("suspend")
    await bench.engine.advance("8d")
    young = await bench.failed("restart")
    for command in ("resume", "retry"):
        found = await bench.app.bulk.preview(command, Filter(), everything=True)
        assert (found.matching, found.starts_over, found.starting_over) == (3, 1, (old.id,))
        assert (found.checkpoints_judged, found.checkpoints_to_judge) == (3, 3)
    scratch = await bench.app.bulk.preview(
        "retry", Filter(), everything=True, from_checkpoint=False
    )
    assert set(scratch.starting_over) == {old.id, waits.id, young.id}
    assert (await bench.app.bulk.preview("discard", Filter(), everything=True)).starts_over == 0


async def test_a_view_says_what_becomes_of_a_task_that_is_set_going(bench: Bench) -> None:
    old, waits = await bench.failed("restart"), await bench.failed("suspend")
    told = [(await bench.shape(one)) for one in (old, waits)]
    assert [(one["startsOver"], one["checkpointInvalid"]) for one in told] == [(False, None)] * 2
    await bench.engine.advance("8d")
    told = [(await bench.shape(one)) for one in (old, waits)]
    assert [one["startsOver"] for one in told] == [True, False]
    assert all(
        "older than checkpoint_max_age (7d)" in str(one["checkpointInvalid"]) for one in told
    )
    assert "starts over from its first stage" in await old.why()
    assert "is suspended again (invalid-checkpoint)" in await waits.why()


async def test_a_plan_names_those_that_a_retry_would_start_over(bench: Bench) -> None:
    flow = bench.flows["restart"]
    plan = await bench.app.plan("p-1", [flow.on(None, tenant=f"t-{n}") for n in range(3)])
    await bench.engine.advance("1m")
    assert await plan.expired_checkpoints() == []
    await bench.engine.advance("8d")
    ids = {handle.id for handle in await plan.tasks()}
    assert set(await plan.expired_checkpoints()) == ids


async def test_a_bulk_retry_refuses_those_whose_checkpoint_is_gone(bench: Bench) -> None:
    gone, there = await bench.failed("suspend"), await bench.failed("suspend")
    await bench.app.checkpoints.remove(gone.id)
    await bench.engine.advance(1)
    begun = await bench.app.bulk.start("retry", Filter(), everything=True)
    await bench.engine.advance("1m")
    counts = (await begun.info()).counts
    assert (counts.done, dict(counts.refused)) == (1, {"checkpoint-gone": 1})
    assert [(await task_of(bench.engine, one)).run for one in (gone, there)] == [1, 2]


async def test_a_preview_judges_by_the_stages_of_the_present_code(bench: Bench) -> None:
    renamed = await bench.failed("restart")
    bench.rename_first_stage("restart")
    found = await bench.app.bulk.preview("retry", Filter(), everything=True)
    assert found.starting_over == (renamed.id,)


async def test_a_view_and_why_judge_by_the_stages_of_the_present_code(bench: Bench) -> None:
    renamed, waits = await bench.failed("restart"), await bench.failed("suspend")
    behind = await bench.flows["restart"].submit(None, tenant="t-1")
    await bench.engine.drain()
    waiting = await bench.flows["restart"].submit(None, tenant="t-1")
    for name in bench.flows:
        bench.rename_first_stage(name)
    told = [(await bench.shape(one)) for one in (renamed, waits)]
    assert [one["startsOver"] for one in told] == [True, False]
    assert all("stage 'first' is unknown" in str(one["checkpointInvalid"]) for one in told)
    assert "starts over from its first stage" in await renamed.why()
    assert "is suspended again (invalid-checkpoint)" in await waits.why()
    assert f"behind task {behind.id}" in await waiting.why()
    assert "starts over from its first stage" in await waiting.why(), "so with the one before it"


async def test_who_was_not_looked_at_is_said_to_be_so(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expired_checkpoints, "CHECKED_MAX", 2)
    flow = bench.flows["restart"]
    plan = await bench.app.plan("p-1", [flow.on(None, tenant=f"t-{n}") for n in range(3)])
    await bench.engine.advance("8d")
    ahead = await plan.forecast()
    assert (len(ahead.ids), ahead.judged, ahead.total) == (2, 2, 3)
    assert ahead.message == "only the first 2 of 3 tasks were checked"
    found = await bench.app.bulk.preview("retry", Filter(), everything=True)
    assert (found.starts_over, found.checkpoints_judged, found.checkpoints_to_judge) == (2, 2, 3)
    told = bulk_preview_view(found)
    assert (told["checkpointsJudged"], told["checkpointsToJudge"]) == (2, 3)
    monkeypatch.setattr(expired_checkpoints, "CHECKED_MAX", 3)
    assert (await plan.forecast()).message == ""
