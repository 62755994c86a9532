"""Claim: each task goes to one worker, in order, with everything the worker needs."""

from __future__ import annotations

import asyncio

from holdfast.domain.task.decide import lease_of
from holdfast.domain.task.events import TaskStarted
from holdfast.domain.task.placement import Place
from holdfast.domain.task.state import Command, Status
from holdfast.testing.contract.base import Contract
from holdfast.testing.contract.drivers.store_driver import LEASE_SECONDS, patience


class ClaimContract(Contract):
    async def test_tasks_are_handed_out_first_in_first_out(self) -> None:
        ids = await self.driver.submit_many(5)
        assert await self.driver.claim_ids(limit=2) == ids[:2]
        assert await self.driver.claim_ids(limit=2) == ids[2:4]
        assert await self.driver.claim_ids(limit=2) == ids[4:]
        assert await self.driver.claim_ids(limit=2) == []

    async def test_a_limit_of_nothing_hands_out_nothing(self) -> None:
        await self.driver.submit()
        assert await self.driver.claim_ids(limit=0) == []

    async def test_a_claim_gives_a_lease_a_fence_and_a_version(self) -> None:
        submitted = await self.driver.submit(tenant="t")
        self.clock.advance(5)
        task = await self.driver.take("w-7")
        assert task.lease is not None
        assert (task.status, task.place) == (Status.RUNNING, Place.LEASED)
        assert (task.lease.owner, task.lease.fence) == ("w-7", task.fence)
        assert task.lease.id
        assert task.fence > 0
        assert task.version == submitted.version + 1
        assert task.status_since == task.updated_at == self.clock.now()
        assert await self.driver.load(task.id) == task

    async def test_a_lease_lasts_as_long_as_was_asked(self) -> None:
        await self.driver.submit_many(2)
        short = await self.driver.take(limit=1, lease_seconds=10)
        long = await self.driver.take(limit=1, lease_seconds=20)
        assert lease_of(long).until - lease_of(short).until == 10

    async def test_a_claim_is_an_event(self) -> None:
        task = await self.driver.start("w-7")
        assert await self.driver.last_event(task) == TaskStarted(
            task_id=task.id,
            version=task.version,
            at=self.clock.now(),
            worker="w-7",
            fence=task.fence,
        )

    async def test_queues_are_served_in_the_order_of_the_list(self) -> None:
        low = await self.driver.submit_many(2, queue="low")
        high = await self.driver.submit_many(2, queue="high")
        await self.driver.submit(queue="other")
        assert await self.driver.claim_ids(queues=("high", "low"), limit=3) == [*high, low[0]]
        assert await self.driver.claim_ids(queues=("high", "low"), limit=3) == [low[1]]

    async def test_a_worker_of_no_queue_gets_nothing(self) -> None:
        await self.driver.submit()
        assert await self.driver.claim_ids(queues=()) == []
        assert await self.driver.claim_ids(queues=("unknown",)) == []

    async def test_the_payload_is_handed_over(self) -> None:
        await self.driver.submit(payload={"n": [1, 2]})
        (claimed,) = await self.driver.claim()
        assert claimed.payload == b'{"n":[1,2]}'
        assert (claimed.checkpoint, claimed.data, claimed.stages) == (None, None, ())
        assert not claimed.moved_on

    async def test_checkpoint_and_results_are_handed_over_on_the_next_claim(self) -> None:
        task = await self.driver.start()
        task = await self.driver.finish_stage(task, "first", cursor=7)
        task = await self.driver.finish_stage(task, "second", cursor=8)
        await self.driver.give_back(task)
        (claimed,) = await self.driver.claim("w-2")
        detail = await self.driver.detail(task)
        assert claimed.checkpoint is not None
        assert claimed.checkpoint == detail.checkpoint
        assert [(s.index, s.name, s.result) for s in claimed.stages] == [
            (0, "one", b'"first"'),
            (1, "two", b'"second"'),
        ]
        assert claimed.task.last_completed == 1

    async def test_a_claimed_task_is_not_handed_out_again(self) -> None:
        await self.driver.start("w-1")
        assert await self.driver.claim_ids("w-1") == []
        assert await self.driver.claim_ids("w-2") == []

    async def test_what_is_parked_held_later_or_settled_is_never_handed_out(self) -> None:
        await self.driver.submit(held=True)
        await self.driver.ask(Command.PAUSE, await self.driver.submit())
        await self.driver.ask(Command.CANCEL, await self.driver.submit())
        await self.driver.fail(await self.driver.start())
        await self.driver.suspend_new()
        await self.driver.run()
        assert await self.driver.claim_ids() == []

    async def test_a_paused_task_is_handed_out_after_its_resume(self) -> None:
        task = await self.driver.submit()
        await self.driver.ask(Command.PAUSE, task)
        await self.driver.ask(Command.RESUME, task)
        assert await self.driver.claim_ids() == [task.id]

    async def test_a_claim_sent_again_hands_out_the_same_again(self) -> None:
        await self.driver.submit_many(4, payload={"n": 1})
        first = await self.driver.claim("w-1", limit=2, request="c-1")
        again = await self.driver.claim("w-1", limit=2, request="c-1")
        assert again == first
        assert await self.store.views.load([c.task.id for c in first]) == [c.task for c in first]
        assert len(await self.driver.claim("w-1", request="c-2")) == 2

    async def test_a_claim_sent_again_leaves_out_what_was_given_up_meanwhile(self) -> None:
        await self.driver.submit_many(3)
        one, two, three = [c.task for c in await self.driver.claim("w-1", request="c-1")]
        await self.driver.complete(one)
        await self.driver.give_back(two)
        assert await self.driver.claim_ids("w-1", request="c-1") == [three.id]
        assert await self.driver.claim_ids("w-2", request="c-9") == [two.id]
        assert await self.driver.claim_ids("w-1", request="c-1") == [three.id]

    async def test_a_claim_sent_again_hands_out_the_tasks_as_they_are_now(self) -> None:
        await self.driver.submit()
        task = await self.driver.finish_stage(await self.driver.take("w-1", request="c-1"))
        task = await self.driver.ask(Command.PAUSE, task)
        (again,) = await self.driver.claim("w-1", request="c-1")
        assert again.task == task
        assert [stage.name for stage in again.stages] == ["one"]

    async def test_a_claim_sent_again_with_less_room_hands_out_all_of_it_and_nothing_new(
        self,
    ) -> None:
        given = await self.driver.submit_many(3)
        assert await self.driver.claim_ids(request="r", limit=3) == given
        await self.driver.submit_many(3)
        assert await self.driver.claim_ids(request="r", limit=1) == given
        assert await self.driver.claim_ids(request="r", limit=100) == given

    async def test_an_empty_claim_sent_again_is_empty_again(self) -> None:
        assert await self.driver.claim_ids("w-1", request="c-1") == []
        task = await self.driver.submit()
        assert await self.driver.claim_ids("w-1", request="c-1") == []
        assert await self.driver.claim_ids("w-1", request="c-2") == [task.id]

    async def test_workers_may_name_their_claims_alike(self) -> None:
        await self.driver.submit_many(2)
        first = await self.driver.claim_ids("w-1", limit=1, request="c-1")
        second = await self.driver.claim_ids("w-2", limit=1, request="c-1")
        assert first != second

    async def test_fences_rise_with_every_claim_of_a_tenant(self) -> None:
        fences = []
        for _ in range(5):
            task = await self.driver.start(tenant="t")
            fences.append(task.fence)
            await self.driver.complete(task)
        assert fences == sorted(set(fences))
        assert (await self.driver.tenant("t")).fence == fences[-1]

    async def test_two_claims_of_one_task_have_different_leases(self) -> None:
        first = await self.driver.start()
        await self.driver.give_back(first)
        second = await self.driver.take()
        assert lease_of(first).id != lease_of(second).id
        assert lease_of(first).fence < lease_of(second).fence

    async def test_concurrent_claimers_get_each_task_once(self) -> None:
        ids = await self.driver.submit_many(60)
        claims = await asyncio.gather(
            *(self.driver.claim_ids(f"w-{n}", limit=4) for n in range(20))
        )
        got = [task_id for claim in claims for task_id in claim]
        assert sorted(got) == ids

    async def test_concurrent_claimers_get_one_task_of_a_tenant(self) -> None:
        for tenant in ("a", "b", "c"):
            await self.driver.submit_many(10, tenant=tenant)
        claims = await asyncio.gather(*(self.driver.claim(f"w-{n}", limit=5) for n in range(10)))
        tenants = [claimed.task.tenant for claim in claims for claimed in claim]
        assert sorted(filter(None, tenants)) == ["a", "b", "c"]

    async def test_concurrent_inserts_and_claims_lose_nothing(self) -> None:
        async def submit(number: int) -> list[str]:
            return await self.driver.submit_many(
                5, tenant=f"t-{number % 3}" if number % 2 else None
            )

        async def work(worker: str) -> list[str]:
            finished: list[str] = []
            while len(finished) < 3:
                for claimed in await self.driver.claim(worker, limit=2):
                    await self.driver.complete(claimed.task)
                    finished.append(claimed.task.id)
                await asyncio.sleep(0)
            return finished

        async with patience():
            submitting = [asyncio.create_task(submit(n)) for n in range(8)]
            worked = await asyncio.gather(*(work(f"w-{n}") for n in range(8)))
            submitted = await asyncio.gather(*submitting)
        finished = [task_id for done in worked for task_id in done]
        while claims := await self.driver.claim(lease_seconds=LEASE_SECONDS):
            finished += [(await self.driver.complete(claimed.task)).id for claimed in claims]
        assert sorted(finished) == sorted(task_id for ids in submitted for task_id in ids)
