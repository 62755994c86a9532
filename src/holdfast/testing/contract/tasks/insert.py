"""Insert: what is accepted is kept, once per key, up to the depth that was allowed."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from holdfast.domain.errors import SerialisationError
from holdfast.domain.task.events import TaskCreated
from holdfast.domain.task.placement import Place
from holdfast.domain.task.state import Command, Status
from holdfast.domain.task.task import Failure, FailureKind
from holdfast.domain.task.transition import Conflict, Existing, Full, Inserted
from holdfast.ports import Kept
from holdfast.testing.contract.base import Contract
from holdfast.testing.contract.drivers.store_driver import Hands

A_DAY = 86_400.0


class Inserting(Contract):
    async def test_an_inserted_task_is_ready_in_its_queue(self, hands: Hands) -> None:
        submission = hands.submission(payload={"to": "x"})
        assert await hands.insert(submission) == [Inserted(submission.task.id)]
        detail = await hands.detail(submission.task)
        assert (detail.task.status, detail.task.place) == (Status.PENDING, Place.READY)
        assert (detail.task.version, detail.task.lease, detail.task.fence) == (1, None, 0)
        assert detail.payload == b'{"to":"x"}'
        assert detail.events == submission.events
        assert isinstance(detail.events[0], TaskCreated)

    async def test_every_field_of_a_record_comes_back_as_it_went_in(self, hands: Hands) -> None:
        failure = Failure(
            kind=FailureKind.TIMEOUT, error="E", message="é\n\0", stage="s", attempt=2, at=1.25
        )
        submission = hands.submission(
            tenant="t-ä",
            plan="p-1",
            queue="slow",
            key="k/1",
            trace_id="trace",
            user={"name": "Zoë", "roles": ["a", {"b": [1, 2.5, None, True]}]},
            callback="https://example.com/told?of=é",
            effects="k-abcdefghijklmnopqrstuvwxyz",
            stages=("only",),
            workflow=True,
            hold=True,
            keep_seconds=12.5,
            retry_max=7,
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
        await hands.insert(submission)
        task = await hands.load(submission.task.id)
        kept = {"place", "order"}
        for field in set(task.__struct_fields__) - kept:
            assert getattr(task, field) == getattr(submission.task, field), field

    async def test_all_that_a_task_was_submitted_with_is_handed_out(self, hands: Hands) -> None:
        told: dict[str, Any] = {
            "tenant": "t",
            "queue": "slow",
            "key": "k",
            "trace_id": "trace",
            "user": {"name": "Zoë"},
            "callback": "https://example.com/",
            "effects": "k-abcdefghijklmnopqrstuvwxyz",
            "workflow": True,
            "hold": True,
            "keep_seconds": 12.5,
            "retry_max": 7,
        }
        first = await hands.start(**told)
        await hands.store.tasks.expire(limit=10, count_crashes=True)
        hands.clock.advance(1000)
        await hands.store.tasks.expire(limit=10, count_crashes=True)
        again = await hands.take(queues=("slow",))
        for task in (first, again):
            assert {name: getattr(task, name) for name in told} == told

    async def test_a_held_task_is_not_handed_out_before_its_release(self, hands: Hands) -> None:
        task = await hands.submit(held=True, tenant="t")
        assert (task.status, task.place) == (Status.CREATED, Place.HELD)
        assert await hands.claim_ids() == []
        assert (await hands.tenant("t")).active is None
        task = await hands.ask(Command.RELEASE, task)
        assert (task.status, task.place) == (Status.PENDING, Place.READY)
        assert await hands.claim_ids() == [task.id]

    async def test_a_held_task_takes_no_place_in_its_tenants_line(self, hands: Hands) -> None:
        held = await hands.submit(held=True, tenant="t")
        younger = await hands.submit(tenant="t")
        assert (await hands.load(younger.id)).place is Place.READY
        await hands.ask(Command.RELEASE, held)
        assert (await hands.load(held.id)).place is Place.LINE

    async def test_a_batch_is_answered_element_by_element(self, hands: Hands) -> None:
        batch = [hands.submission(key="k", payload=n) for n in (1, 1, 2)]
        first = batch[0].task.id
        assert await hands.insert(*batch) == [Inserted(first), Existing(first), Conflict(first)]
        assert await hands.claim_ids() == [first]

    async def test_a_large_batch_is_kept_in_its_order(self, hands: Hands) -> None:
        ids = await hands.submit_many(500)
        assert await hands.claim_ids(limit=1000) == ids

    async def test_an_empty_batch_is_answered_with_nothing(self, hands: Hands) -> None:
        assert list(await hands.insert()) == []

    async def test_the_same_submission_sent_again_is_one_task(self, hands: Hands) -> None:
        submission = hands.submission(tenant="t")
        for _ in range(3):
            assert await hands.insert(submission) == [Inserted(submission.task.id)]
        assert await hands.claim_ids() == [submission.task.id]
        assert len((await hands.detail(submission.task)).events) == 2

    async def test_a_submission_sent_again_after_the_task_has_moved_changes_nothing(
        self, hands: Hands
    ) -> None:
        submission = hands.submission()
        await hands.insert(submission)
        task = await hands.complete(await hands.take())
        assert await hands.insert(submission) == [Inserted(submission.task.id)]
        assert await hands.load(task.id) == task

    async def test_a_queue_takes_no_more_than_its_depth(self, hands: Hands) -> None:
        batch = [hands.submission() for _ in range(3)]
        answers = await hands.insert(*batch, depth_limit=2)
        assert answers == [Inserted(batch[0].task.id), Inserted(batch[1].task.id), Full("default")]
        assert await hands.store.views.load([batch[2].task.id]) == [None]
        assert await hands.insert(hands.submission(queue="other"), depth_limit=2) != [Full("other")]

    async def test_waiting_in_a_line_or_for_a_time_counts_as_depth(self, hands: Hands) -> None:
        await hands.fail(await hands.start())
        await hands.submit_many(2, tenant="t")
        assert await hands.insert(hands.submission(), depth_limit=3) == [Full("default")]

    async def test_what_runs_or_rests_or_is_held_leaves_room_in_the_queue(
        self, hands: Hands
    ) -> None:
        await hands.suspend(await hands.start())
        await hands.complete(await hands.start())
        await hands.start()
        await hands.submit(held=True)
        submission = hands.submission()
        assert await hands.insert(submission, depth_limit=1) == [Inserted(submission.task.id)]

    async def test_a_full_queue_still_knows_a_key_and_a_repeat(self, hands: Hands) -> None:
        submission = hands.submission(key="k")
        await hands.insert(submission)
        again = hands.submission(key="k")
        answers = await hands.insert(submission, again, depth_limit=1)
        assert answers == [Inserted(submission.task.id), Existing(submission.task.id)]

    async def test_a_submission_refused_by_a_full_queue_does_not_use_up_its_key(
        self, hands: Hands
    ) -> None:
        assert await hands.insert(hands.submission(key="k"), depth_limit=0) == [Full("default")]
        second = hands.submission(key="k", payload="other")
        assert await hands.insert(second) == [Inserted(second.task.id)]

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
        self, hands: Hands, field: str, value: object
    ) -> None:
        bad = hands.submission(id="bad")
        task = msgspec.structs.replace(bad.task, **{field: value})
        bad = msgspec.structs.replace(bad, task=task)
        with pytest.raises(SerialisationError):
            await hands.insert(bad)
        assert await hands.store.views.load(["bad"]) == [None]
        await hands.submit()


class Keys(Contract):
    async def test_a_key_with_the_same_payload_finds_the_first_task(self, hands: Hands) -> None:
        first = await hands.submit(key="k", payload=1)
        assert await hands.insert(hands.submission(key="k", payload=1)) == [Existing(first.id)]

    async def test_a_key_with_another_payload_is_a_conflict(self, hands: Hands) -> None:
        first = await hands.submit(key="k", payload=1)
        assert await hands.insert(hands.submission(key="k", payload=2)) == [Conflict(first.id)]
        assert await hands.claim_ids() == [first.id]

    async def test_a_key_with_another_type_is_a_conflict(self, hands: Hands) -> None:
        first = await hands.submit(key="k")
        other = hands.submission(key="k", type="test.other")
        assert await hands.insert(other) == [Conflict(first.id)]

    async def test_tenants_do_not_share_keys(self, hands: Hands) -> None:
        batch = [hands.submission(key="k", tenant=t) for t in ("a", "b", None)]
        assert await hands.insert(*batch) == [Inserted(s.task.id) for s in batch]
        again = hands.submission(key="k", tenant="b")
        assert await hands.insert(again) == [Existing(batch[1].task.id)]

    async def test_tasks_without_a_key_never_collide(self, hands: Hands) -> None:
        batch = [hands.submission(tenant="t", payload=1) for _ in range(3)]
        assert await hands.insert(*batch) == [Inserted(s.task.id) for s in batch]

    async def test_a_settled_tasks_key_still_finds_it(self, hands: Hands) -> None:
        task = await hands.complete(await hands.start(key="k"))
        assert await hands.insert(hands.submission(key="k")) == [Existing(task.id)]
        assert await hands.insert(hands.submission(key="k", payload=2)) == [Conflict(task.id)]

    async def test_a_deleted_tasks_key_is_answered_by_its_tombstone(self, hands: Hands) -> None:
        task = await hands.complete(await hands.start(key="k", keep_seconds=0))
        assert await hands.store.views.load([task.id]) == [None]
        hands.clock.advance(A_DAY - 1)
        assert await hands.insert(hands.submission(key="k")) == [Existing(task.id)]
        assert await hands.insert(hands.submission(key="k", payload=2)) == [Conflict(task.id)]

    async def test_a_pruned_tasks_key_is_answered_by_its_tombstone(self, hands: Hands) -> None:
        task = await hands.complete(await hands.start(key="k", keep_seconds=60))
        hands.clock.advance(61)
        assert await hands.store.admin.prune(
            Kept.TASKS, older_than_seconds=60, limit=10, dry_run=False
        )
        assert await hands.insert(hands.submission(key="k")) == [Existing(task.id)]

    async def test_a_key_is_free_a_while_after_its_task_has_gone(self, hands: Hands) -> None:
        await hands.complete(await hands.start(key="k", keep_seconds=0))
        hands.clock.advance(A_DAY + 1)
        second = hands.submission(key="k", payload=2)
        assert await hands.insert(second) == [Inserted(second.task.id)]

    async def test_a_key_is_free_when_its_tombstone_was_cleaned_up(self, hands: Hands) -> None:
        await hands.complete(await hands.start(key="k", keep_seconds=0))
        hands.clock.advance(A_DAY + 1)
        pruned = await hands.store.admin.prune(
            Kept.TOMBSTONES, older_than_seconds=0, limit=10, dry_run=False
        )
        assert pruned == 1
        second = hands.submission(key="k", payload=2)
        assert await hands.insert(second) == [Inserted(second.task.id)]

    async def test_cleaning_up_an_old_tombstone_leaves_the_key_with_its_new_owner(
        self, hands: Hands
    ) -> None:
        await hands.complete(await hands.start(key="k", keep_seconds=0))
        hands.clock.advance(A_DAY + 1)
        second = await hands.submit(key="k")
        await hands.store.admin.prune(
            Kept.TOMBSTONES, older_than_seconds=0, limit=10, dry_run=False
        )
        assert await hands.insert(hands.submission(key="k")) == [Existing(second.id)]

    async def test_a_submission_sent_again_after_its_task_has_gone_is_not_run_again(
        self, hands: Hands
    ) -> None:
        submission = hands.submission(keep_seconds=0)
        await hands.insert(submission)
        await hands.complete(await hands.take())
        assert await hands.insert(submission) == [Inserted(submission.task.id)]
        assert await hands.claim_ids() == []
