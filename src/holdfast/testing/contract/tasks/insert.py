"""Insert: a submission is kept once per key, up to the allowed depth of its queue."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from holdfast.domain.errors import SerialisationError
from holdfast.domain.task.events import TaskCreated
from holdfast.domain.task.placement import Place
from holdfast.domain.task.state import Command, Status
from holdfast.domain.task.task import Failure, FailureKind
from holdfast.domain.task.transition import Conflict, Existing, Full, Inserted
from holdfast.ports import Kept
from holdfast.testing.contract.base import Contract

A_DAY = 86_400.0
SUBMITTED: dict[str, Any] = {
    "tenant": "t-ä",
    "queue": "slow",
    "key": "k/1",
    "trace_id": "trace",
    "user": {"name": "Zoë", "roles": ["a", {"b": [1, 2.5, None, True]}]},
    "callback": "https://example.com/told?of=é",
    "effects": "k-abcdefghijklmnopqrstuvwxyz",
    "workflow": True,
    "hold": True,
    "keep_seconds": 12.5,
    "retry_max": 7,
}


class InsertContract(Contract):
    async def test_an_inserted_task_is_ready_in_its_queue(self) -> None:
        submission = self.driver.submission(payload={"to": "x"})
        assert await self.driver.insert(submission) == [Inserted(submission.task.id)]
        detail = await self.driver.detail(submission.task)
        assert (detail.task.status, detail.task.place) == (Status.PENDING, Place.READY)
        assert (detail.task.version, detail.task.lease, detail.task.fence) == (1, None, 0)
        assert detail.payload == b'{"to":"x"}'
        assert detail.events == submission.events
        assert isinstance(detail.events[0], TaskCreated)

    async def test_every_field_of_a_record_comes_back_as_it_went_in(self) -> None:
        failure = Failure(
            kind=FailureKind.TIMEOUT, error="E", message="é\n\0", stage="s", attempt=2, at=1.25
        )
        submission = self.driver.submission(
            **SUBMITTED,
            plan="p-1",
            stages=("only",),
            run=2,
            epoch=3,
            last_completed=0,
            next_undo=0,
            reason="why",
            failures=1,
            crashes=2,
            interrupted=True,
            unknown_since=17.25,
            outages=4,
            outage_since=18.5,
            failure=failure,
        )
        await self.driver.insert(submission)
        task = await self.driver.load(submission.task.id)
        kept = {"place", "order"}
        for field in set(task.__struct_fields__) - kept:
            assert getattr(task, field) == getattr(submission.task, field), field

    async def test_all_that_a_task_was_submitted_with_is_handed_out(self) -> None:
        first = await self.driver.start(**SUBMITTED)
        await self.store.tasks.expire(limit=10, count_crashes=True)
        self.clock.advance(1000)
        await self.store.tasks.expire(limit=10, count_crashes=True)
        again = await self.driver.take(queues=("slow",))
        for task in (first, again):
            assert {name: getattr(task, name) for name in SUBMITTED} == SUBMITTED

    async def test_a_held_task_is_not_handed_out_before_its_release(self) -> None:
        task = await self.driver.submit(held=True, tenant="t")
        assert (task.status, task.place) == (Status.CREATED, Place.HELD)
        assert await self.driver.claim_ids() == []
        assert (await self.driver.tenant("t")).active is None
        task = await self.driver.ask(Command.RELEASE, task)
        assert (task.status, task.place) == (Status.PENDING, Place.READY)
        assert await self.driver.claim_ids() == [task.id]

    async def test_a_held_task_takes_no_place_in_its_tenants_line(self) -> None:
        held = await self.driver.submit(held=True, tenant="t")
        younger = await self.driver.submit(tenant="t")
        assert (await self.driver.load(younger.id)).place is Place.READY
        await self.driver.ask(Command.RELEASE, held)
        assert (await self.driver.load(held.id)).place is Place.LINE

    async def test_a_batch_is_answered_element_by_element(self) -> None:
        batch = [self.driver.submission(key="k", payload=n) for n in (1, 1, 2)]
        first = batch[0].task.id
        assert await self.driver.insert(*batch) == [
            Inserted(first),
            Existing(first),
            Conflict(first),
        ]
        assert await self.driver.claim_ids() == [first]

    async def test_a_large_batch_is_kept_in_its_order(self) -> None:
        ids = await self.driver.submit_many(500)
        assert await self.driver.claim_ids(limit=1000) == ids

    async def test_an_empty_batch_is_answered_with_nothing(self) -> None:
        assert list(await self.driver.insert()) == []

    async def test_the_same_submission_sent_again_is_one_task(self) -> None:
        submission = self.driver.submission(tenant="t")
        for _ in range(3):
            assert await self.driver.insert(submission) == [Inserted(submission.task.id)]
        assert await self.driver.claim_ids() == [submission.task.id]
        assert len((await self.driver.detail(submission.task)).events) == 2

    async def test_a_submission_sent_again_after_the_task_has_moved_changes_nothing(self) -> None:
        submission = self.driver.submission()
        await self.driver.insert(submission)
        task = await self.driver.complete(await self.driver.take())
        assert await self.driver.insert(submission) == [Inserted(submission.task.id)]
        assert await self.driver.load(task.id) == task

    async def test_a_queue_takes_no_more_than_its_depth(self) -> None:
        batch = [self.driver.submission() for _ in range(3)]
        answers = await self.driver.insert(*batch, depth_limit=2)
        assert answers == [Inserted(batch[0].task.id), Inserted(batch[1].task.id), Full("default")]
        assert await self.store.views.load([batch[2].task.id]) == [None]
        assert await self.driver.insert_new(queue="other", depth_limit=2) != Full("other")

    async def test_waiting_in_a_line_or_for_a_time_counts_as_depth(self) -> None:
        await self.driver.fail(await self.driver.start())
        await self.driver.submit_many(2, tenant="t")
        assert await self.driver.insert_new(depth_limit=3) == Full("default")

    async def test_what_runs_or_rests_or_is_held_leaves_room_in_the_queue(self) -> None:
        await self.driver.suspend_new()
        await self.driver.run()
        await self.driver.start()
        await self.driver.submit(held=True)
        submission = self.driver.submission()
        assert await self.driver.insert(submission, depth_limit=1) == [Inserted(submission.task.id)]

    async def test_a_full_queue_still_knows_a_key_and_a_repeat(self) -> None:
        submission = self.driver.submission(key="k")
        await self.driver.insert(submission)
        again = self.driver.submission(key="k")
        answers = await self.driver.insert(submission, again, depth_limit=1)
        assert answers == [Inserted(submission.task.id), Existing(submission.task.id)]

    async def test_a_submission_refused_by_a_full_queue_does_not_use_up_its_key(self) -> None:
        assert await self.driver.insert_new(key="k", depth_limit=0) == Full("default")
        await self.driver.submit(key="k", payload="other")

    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("tenant", 5),
            ("key", 5),
            ("queue", None),
            ("trace_id", "half a \ud800 pair"),
            ("user", {"of": object()}),
            ("callback", 5),
            ("keep_seconds", float("nan")),
        ],
    )
    async def test_a_record_that_could_not_be_read_back_is_refused(
        self, field: str, value: object
    ) -> None:
        bad = self.driver.submission(id="bad")
        task = replace(bad.task, **{field: value})
        bad = replace(bad, task=task)
        with pytest.raises(SerialisationError):
            await self.driver.insert(bad)
        assert await self.store.views.load(["bad"]) == [None]
        await self.driver.submit()

    async def test_a_key_with_the_same_payload_finds_the_first_task(self) -> None:
        first = await self.driver.submit(key="k", payload=1)
        assert await self.driver.insert_new(key="k", payload=1) == Existing(first.id)

    async def test_a_key_with_another_payload_is_a_conflict(self) -> None:
        first = await self.driver.submit(key="k", payload=1)
        assert await self.driver.insert_new(key="k", payload=2) == Conflict(first.id)
        assert await self.driver.claim_ids() == [first.id]

    async def test_a_key_with_another_type_is_a_conflict(self) -> None:
        first = await self.driver.submit(key="k")
        assert await self.driver.insert_new(key="k", type="test.other") == Conflict(first.id)

    async def test_tenants_do_not_share_keys(self) -> None:
        batch = [self.driver.submission(key="k", tenant=t) for t in ("a", "b", None)]
        assert await self.driver.insert(*batch) == [Inserted(s.task.id) for s in batch]
        assert await self.driver.insert_new(key="k", tenant="b") == Existing(batch[1].task.id)

    async def test_tasks_without_a_key_never_collide(self) -> None:
        batch = [self.driver.submission(tenant="t", payload=1) for _ in range(3)]
        assert await self.driver.insert(*batch) == [Inserted(s.task.id) for s in batch]

    async def test_a_settled_tasks_key_still_finds_it(self) -> None:
        task = await self.driver.run(key="k")
        assert await self.driver.insert_new(key="k") == Existing(task.id)
        assert await self.driver.insert_new(key="k", payload=2) == Conflict(task.id)

    async def test_a_deleted_tasks_key_is_answered_by_its_tombstone(self) -> None:
        task = await self.driver.run(key="k", keep_seconds=0)
        assert await self.store.views.load([task.id]) == [None]
        self.clock.advance(A_DAY - 1)
        assert await self.driver.insert_new(key="k") == Existing(task.id)
        assert await self.driver.insert_new(key="k", payload=2) == Conflict(task.id)

    async def test_a_pruned_tasks_key_is_answered_by_its_tombstone(self) -> None:
        task = await self.driver.run(key="k", keep_seconds=60)
        self.clock.advance(61)
        assert await self.driver.prune(Kept.TASKS, older_than_seconds=60, limit=10)
        assert await self.driver.insert_new(key="k") == Existing(task.id)

    async def test_a_key_is_free_a_while_after_its_task_has_gone(self) -> None:
        await self.driver.run(key="k", keep_seconds=0)
        self.clock.advance(A_DAY + 1)
        await self.driver.submit(key="k", payload=2)

    async def test_a_key_is_free_when_its_tombstone_was_cleaned_up(self) -> None:
        await self.driver.run(key="k", keep_seconds=0)
        self.clock.advance(A_DAY + 1)
        assert await self.driver.prune(Kept.TOMBSTONES, limit=10) == 1
        await self.driver.submit(key="k", payload=2)

    async def test_cleaning_up_an_old_tombstone_leaves_the_key_with_its_new_owner(self) -> None:
        await self.driver.run(key="k", keep_seconds=0)
        self.clock.advance(A_DAY + 1)
        second = await self.driver.submit(key="k")
        await self.driver.prune(Kept.TOMBSTONES, limit=10)
        assert await self.driver.insert_new(key="k") == Existing(second.id)

    async def test_a_submission_sent_again_after_its_task_has_gone_is_not_run_again(self) -> None:
        submission = self.driver.submission(keep_seconds=0)
        await self.driver.insert(submission)
        await self.driver.complete(await self.driver.take())
        assert await self.driver.insert(submission) == [Inserted(submission.task.id)]
        assert await self.driver.claim_ids() == []
