"""Bodies: checkpoints, results and customData are written with their transition."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from holdfast.domain.task import checkpoint as ckpt
from holdfast.domain.task import decide
from holdfast.domain.task.state import Command, Status
from holdfast.domain.task.task import StageRecord, Task
from holdfast.domain.task.transition import Stale
from holdfast.testing.contract.base import Contract


class StoredBodies(Contract):
    async def test_a_stage_leaves_its_checkpoint_in_the_same_step(self) -> None:
        task = await self.driver.start("w-7")
        await self.driver.finish_stage(task, cursor=7)
        checkpoint = await self.driver.checkpoint(task)
        assert checkpoint.last_completed_stage_index == 0
        assert checkpoint.completed_stage_names == ("one",)
        assert checkpoint.custom_data == {"cursor": 7}
        assert checkpoint.timestamp.timestamp() == self.clock.now()
        assert (checkpoint.version, checkpoint.executor_instance) == (1, "w-7")

    async def test_the_stored_bytes_are_the_documents_json(self) -> None:
        transition = await self.driver.done(await self.driver.start(), cursor=7)
        await self.driver.commit(transition)
        stored = (await self.driver.detail(transition.after)).checkpoint
        assert stored is not None
        assert transition.checkpoint is not None
        assert ckpt.decode(stored) == transition.checkpoint
        assert {"lastCompletedStageIndex", "completedStageNames", "customData", "timestamp"} <= set(
            msgspec.json.decode(stored)
        )

    async def test_durations_are_filled_in_from_the_stages(self) -> None:
        task = await self.driver.start_past_stage()
        await self.driver.finish_stage(task)
        checkpoint = await self.driver.checkpoint(task)
        assert checkpoint.stage_durations == {"one": 1500, "two": 1500}

    async def test_a_later_checkpoint_replaces_the_earlier_one(self) -> None:
        task = await self.driver.start_past_stage(data={"at": "one"})
        await self.driver.finish_stage(task, at="two")
        checkpoint = await self.driver.checkpoint(task)
        assert (checkpoint.version, checkpoint.last_completed_stage_index) == (2, 1)
        assert checkpoint.custom_data == {"at": "two"}

    async def test_an_older_writer_of_a_checkpoint_is_refused_and_learns_it(self) -> None:
        task = await self.driver.start("w-1")
        older = await self.driver.done(task, by="older")
        await self.driver.lapse()
        await self.driver.finish_stage(await self.driver.take("w-2"), by="newer")
        assert isinstance(await self.driver.apply(older), Stale)
        checkpoint = await self.driver.checkpoint(task)
        assert (checkpoint.custom_data, checkpoint.executor_instance) == ({"by": "newer"}, "w-2")

    async def test_a_checkpoint_whose_version_does_not_rise_is_refused(self) -> None:
        task = await self.driver.start_past_stage(data={"by": "first"})
        transition = await self.driver.done(task, by="second")
        assert transition.checkpoint is not None
        for version in (0, 1):
            older = replace(transition.checkpoint, version=version)
            present = await self.driver.expect_stale(replace(transition, checkpoint=older))
            assert present == task
        assert (await self.driver.commit(transition)).last_completed == 1

    async def test_a_failure_is_remembered_and_moves_nothing(self) -> None:
        task = await self.driver.start_past_stage(data={"cursor": 7})
        await self.driver.fail(task)
        checkpoint = await self.driver.checkpoint(task)
        assert (checkpoint.version, checkpoint.last_completed_stage_index) == (2, 0)
        assert checkpoint.custom_data == {"cursor": 7}
        assert [failure.stage for failure in checkpoint.failure_history] == ["two"]

    async def test_without_a_completed_stage_there_is_no_checkpoint(self) -> None:
        task = await self.driver.fail(await self.driver.start())
        assert await self.store.views.checkpoint(task.id) is None
        assert await self.store.views.checkpoint("unknown") is None

    async def test_a_completed_task_has_no_checkpoint(self) -> None:
        task = await self.driver.run()
        assert await self.store.views.checkpoint(task.id) is None
        assert (await self.driver.detail(task)).checkpoint is None

    async def test_a_rolled_back_task_has_no_checkpoint(self) -> None:
        task = await self.driver.suspend(await self.driver.start_past_stage())
        assert await self.store.views.checkpoint(task.id) is not None
        task = await self.driver.roll_back(task)
        assert task.status is Status.ROLLED_BACK
        assert await self.store.views.checkpoint(task.id) is None

    async def test_failed_paused_and_cancelled_tasks_keep_their_checkpoint(self) -> None:
        failed = await self.driver.suspend(await self.driver.start_past_stage())
        discarded = await self.driver.suspend(await self.driver.start_past_stage())
        await self.driver.ask(Command.DISCARD, discarded)
        paused = await self.driver.give_back(await self.driver.start_past_stage())
        await self.driver.ask(Command.PAUSE, paused)
        for task in (failed, discarded, paused):
            assert await self.store.views.checkpoint(task.id) is not None

    async def test_a_retry_from_the_checkpoint_keeps_it(self) -> None:
        task = await self.driver.suspend(await self.driver.start_past_stage())
        task = await self.driver.ask(Command.RETRY, task)
        (claimed,) = await self.driver.claim()
        assert claimed.checkpoint is not None
        assert claimed.task.at_stage == "two"
        assert len(claimed.stages) == 1

    async def test_a_retry_from_scratch_clears_checkpoint_results_and_data(self) -> None:
        task = await self.driver.suspend(await self.driver.start_past_stage(data={"cursor": 7}))
        task = await self.driver.ask(Command.RETRY, task, from_checkpoint=False)
        (claimed,) = await self.driver.claim()
        assert (claimed.checkpoint, claimed.data, claimed.stages) == (None, None, ())
        assert (claimed.task.at_stage, claimed.task.epoch) == ("one", 2)

    async def test_the_holder_may_discard_a_checkpoint_and_start_over(self) -> None:
        task = await self.driver.start_past_stage()
        over = decide.start_over(task, "too old", now=self.clock.now())
        task = await self.driver.commit(over)
        detail = await self.driver.detail(task)
        assert (detail.checkpoint, detail.stages) == (None, ())
        assert task.lease is not None
        assert (await self.driver.complete(task)).status is Status.COMPLETED

    async def test_a_refused_write_leaves_no_checkpoint_behind(self, task: Task) -> None:
        late = await self.driver.done(task)
        await self.driver.ask(Command.PAUSE, task)
        await self.driver.expect_stale(late)
        assert await self.store.views.checkpoint(task.id) is None

    async def test_a_claim_returns_the_version_that_the_next_checkpoint_must_exceed(self) -> None:
        task = await self.driver.finish_stage(await self.driver.start_past_stage())
        saved = await self.driver.checkpoint(task)
        await self.driver.give_back(task)
        (claimed,) = await self.driver.claim()
        assert claimed.checkpoint_version == saved.version == 2

    async def test_a_first_claim_has_no_version_of_a_checkpoint(self) -> None:
        await self.driver.submit()
        (claimed,) = await self.driver.claim()
        assert (claimed.checkpoint, claimed.checkpoint_version) == (None, 0)

    @pytest.mark.parametrize("undo", [True, False, None])
    @pytest.mark.parametrize("stages", [("only",), ("one", "two")])
    async def test_a_stage_keeps_whether_it_had_an_undo(
        self, undo: bool | None, stages: tuple[str, ...]
    ) -> None:
        task = await self.driver.start(stages=stages)
        for _ in stages:
            done = await self.driver.done(task, {"of": task.at_stage})
            assert done.stage is not None
            stage = replace(done.stage, undo=undo)
            task = await self.driver.commit(replace(done, stage=stage))
        detail = await self.driver.detail(task)
        assert [stage.undo for stage in detail.stages] == [undo] * len(stages)
        results = [msgspec.json.decode(stage.result) for stage in detail.stages]
        assert results == [{"of": name} for name in stages]
        await self.driver.ask(Command.ROLLBACK, task)
        (claimed,) = await self.driver.claim()
        assert claimed.stages == detail.stages

    async def test_each_stage_leaves_one_result(self, task: Task) -> None:
        for result in ({"id": 1}, [2], "three"):
            task = await self.driver.finish_stage(task, result)
        detail = await self.driver.detail(task)
        assert detail.stages == tuple(
            StageRecord(index=index, name=name, result=result, duration_seconds=1.5, run=1, epoch=1)
            for index, (name, result) in enumerate(
                [("one", b'{"id":1}'), ("two", b"[2]"), ("three", b'"three"')]
            )
        )

    async def test_the_last_stages_result_is_the_tasks(self) -> None:
        task = await self.driver.start(stages=("only",))
        await self.driver.finish_stage(task, {"answer": [42]}, cursor=7)
        detail = await self.driver.detail(task)
        assert detail.result == b'{"answer":[42]}'
        assert detail.data == b'{"cursor":7}'

    async def test_bytes_of_results_are_kept_as_they_are(self) -> None:
        result: dict[str, object] = {
            "empty": [],
            "none": None,
            "text": 'é"\\ \u2028',
            "big": 2**60,
            "x": "y" * 70_000,
        }
        task = await self.driver.start(stages=("only",))
        await self.driver.finish_stage(task, result)
        assert (await self.driver.detail(task)).result == msgspec.json.encode(result)

    async def test_a_stage_that_is_run_in_a_new_run_replaces_its_result(self) -> None:
        task = await self.driver.suspend(
            await self.driver.finish_stage(await self.driver.start(), "first")
        )
        await self.driver.ask(Command.RETRY, task, from_checkpoint=False)
        task = await self.driver.finish_stage(await self.driver.take(), "second")
        assert [
            (s.name, s.result, s.run, s.epoch) for s in (await self.driver.detail(task)).stages
        ] == [("one", b'"second"', 2, 2)]

    async def test_results_outlive_the_checkpoint(self) -> None:
        task = await self.driver.run()
        assert len((await self.driver.detail(task)).stages) == 3

    async def test_a_rollback_finds_the_results_and_leaves_its_data(self) -> None:
        task = await self.driver.suspend(
            await self.driver.finish_stage(await self.driver.start(), "made")
        )
        await self.driver.ask(Command.ROLLBACK, task)
        (claimed,) = await self.driver.claim()
        assert [stage.result for stage in claimed.stages] == [b'"made"']
        undone = decide.stage_undone(
            claimed.task,
            had_undo=True,
            data={"undone": 1},
            duration_seconds=0.1,
            now=self.clock.now(),
        )
        await self.driver.commit(undone)
        assert (await self.driver.detail(task)).data == b'{"undone":1}'
