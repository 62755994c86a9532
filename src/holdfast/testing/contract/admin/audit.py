"""Audits: one chain holds, each once, what people did and what they were refused."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest
from msgspec.structs import replace

from holdfast.domain.audit import START, Anchor, Audit, AuditLink, first_break
from holdfast.domain.plan.plan import Plan, PlanNext
from holdfast.domain.task.operate import OperatorRequest, refusal
from holdfast.domain.task.state import Command
from holdfast.domain.task.task import By
from holdfast.domain.task.transition import Stale
from holdfast.ports import Kept, Store, Switch
from holdfast.testing.contract.base import Contract
from holdfast.testing.contract.drivers.store_driver import ASKER, StoreDriver

ALL = 1_000
TENANTS = (None, "a", "b", "c", "d")  # partitions keep them apart


async def seal_all(store: Store, *, limit: int = ALL) -> int:
    """Seal all loose entries; return how many there were."""
    count = 0
    for _ in range(ALL):
        some = await store.admin.seal(limit=limit)
        assert some <= limit
        count += some
        if some == 0:
            return count
    raise AssertionError("there is always more to seal")


async def read_chain(store: Store, *, limit: int = ALL) -> list[AuditLink]:
    """Seal all, check that the chain is unbroken, and return its links, read page by page."""
    await seal_all(store)
    links: list[AuditLink] = []
    chain = await store.admin.chain(limit=limit)
    base = chain.base
    while chain.links:
        assert len(chain.links) <= limit
        assert chain.links[0].seq > (links[-1].seq if links else base.seq)
        links += chain.links
        chain = await store.admin.chain(after=links[-1].seq, limit=limit)
    assert first_break(base, links) is None, first_break(base, links)
    assert chain.head == (links[-1].anchor if links else base)
    assert chain.loose == 0
    return links


async def cancel_one(driver: StoreDriver, tenant: str | None = None) -> str:
    """Add one entry by cancelling a new task; return the task's id."""
    driver.clock.advance(1)
    return (await driver.ask(Command.CANCEL, await driver.submit(tenant=tenant))).id


async def cancel_many(driver: StoreDriver, number: int) -> list[str]:
    return [await cancel_one(driver, TENANTS[n % len(TENANTS)]) for n in range(number)]


async def build_chain(driver: StoreDriver, number: int) -> list[AuditLink]:
    """Add so many entries, seal them and return all links."""
    await cancel_many(driver, number)
    return await read_chain(driver.store)


def build_refusal(driver: StoreDriver, about: str = "store", **fields: str) -> Audit:
    by = By(actor=fields.pop("actor", "ada"), origin="::1", reason=fields.pop("reason", ""))
    return Audit(
        task_id=about,
        command="discard",
        by=by,
        at=driver.clock.now(),
        before="before",
        after="before",
        refused="forbidden",
        **fields,
    )


def entries(links: list[AuditLink]) -> list[Audit]:
    return [link.entry for link in links]


def sort_by_time(audits: list[Audit]) -> list[Audit]:
    return sorted(audits, key=lambda entry: (entry.at, entry.task_id))


class AuditChain(Contract):
    async def test_the_chain_of_a_new_store_is_empty(self) -> None:
        chain = await self.store.admin.chain(limit=10)
        assert (chain.base, chain.head, chain.links, chain.loose) == (Anchor(), Anchor(), (), 0)
        assert await self.store.admin.seal(limit=10) == 0

    async def test_the_links_hang_together_from_the_start(self) -> None:
        ids = await cancel_many(self.driver, 7)
        links = await read_chain(self.store)
        assert (await self.store.admin.chain(limit=1)).base == Anchor(seq=0, hash=START)
        assert [link.seq for link in links] == [1, 2, 3, 4, 5, 6, 7]
        assert sorted(link.entry.task_id for link in links) == sorted(ids)

    async def test_what_a_person_did_to_a_task_is_in_the_chain_once(self) -> None:
        task = await self.driver.submit(tenant="t")
        cancel = self.driver.request(Command.CANCEL, task)
        await self.driver.commit(cancel)
        await self.driver.commit(cancel)
        assert isinstance(await self.driver.apply_request(Command.PAUSE, task), Stale)
        assert entries(await read_chain(self.store)) == [cancel.audit]

    async def test_what_the_engine_does_is_not_in_the_chain(self) -> None:
        await self.driver.run()
        await self.driver.suspend_new()
        assert await read_chain(self.store) == []

    async def test_what_was_refused_is_in_the_chain(self) -> None:
        task = await self.driver.submit(tenant="t")
        ask = OperatorRequest(by=ASKER, now=self.clock.now(), request="r")
        entry = refusal(task, Command.DISCARD, ask, "illegal-transition")
        await self.store.admin.audit(entry)
        assert entries(await read_chain(self.store)) == [entry]

    async def test_what_was_done_beside_the_tasks_is_in_the_chain_and_no_refusal(self) -> None:
        for about in ("store", "queue:slow", "worker:w-1", "plan:p", "trigger:t", ""):
            await self.store.admin.audit(replace(build_refusal(self.driver, about), refused=None))
        assert len(await read_chain(self.store)) == 6
        assert (await self.store.views.stats()).refused == {}

    async def test_what_was_done_to_a_switch_is_in_the_chain(self) -> None:
        for switch in Switch:
            for _ in range(2):
                await self.switches.off(switch)
                await self.switches.on(switch)
        links = await read_chain(self.store)
        assert len(links) == 4 * len(Switch)
        assert sorted(e.command for e in entries(links)) == sorted(
            f"{switch}-{stood}" for switch in Switch for stood in ("on", "off", "on", "off")
        )

    async def test_what_a_person_did_to_a_plan_is_in_the_chain_once(self) -> None:
        plan = await self.plans.ready()
        entry = self.plans.audit(plan, "pause")
        change = await self.plans.request(plan, audit=entry)
        await self.plans.commit(change)
        await self.plans.commit(change)
        await self.plans.expect_stale(await self.plans.request(plan, audit=entry))
        assert entries(await read_chain(self.store)) == [entry]

    async def test_what_a_driver_records_about_its_plan_is_in_the_chain(self, plan: Plan) -> None:
        entry = self.plans.audit(plan, "pause")
        await self.plans.drive(plan, next=PlanNext.LOOK, audit=entry)
        assert entries(await read_chain(self.store)) == [entry]

    async def test_what_a_person_did_to_a_trigger_is_in_the_chain_once(self) -> None:
        saved = await self.triggers.save(tenant="t")
        entry = self.triggers.audit(saved, "pause")
        change = self.triggers.change(saved, audit=entry)
        await self.triggers.commit(change)
        await self.triggers.commit(change)
        await self.triggers.expect_stale(self.triggers.change(saved, audit=entry))
        assert entries(await read_chain(self.store)) == [entry]

    async def test_the_entries_of_all_that_people_do_are_in_one_chain(self) -> None:
        wanted = []
        for tenant in TENANTS:
            cancel = self.driver.request(Command.CANCEL, await self.driver.submit(tenant=tenant))
            await self.driver.commit(cancel)
            saved = await self.triggers.save(tenant=tenant)
            changed = self.triggers.change(saved, audit=self.triggers.audit(saved, "pause"))
            await self.triggers.commit(changed)
            plan = await self.plans.ready()
            decided = await self.plans.request(plan, audit=self.plans.audit(plan, "pause"))
            await self.plans.commit(decided)
            refusal = build_refusal(self.driver, f"queue:{tenant}")
            await self.store.admin.audit(refusal)
            await self.switches.off(Switch.INTAKE, f"q-{tenant}")
            switched = self.switches.audit(Switch.INTAKE, f"q-{tenant}", on=False)
            wanted += [cancel.audit, changed.audit, decided.audit, refusal, switched]
        links = await read_chain(self.store)
        assert [link.seq for link in links] == list(range(1, len(wanted) + 1))
        assert sort_by_time(entries(links)) == sort_by_time([entry for entry in wanted if entry])

    async def test_what_was_done_to_one_task_stays_in_its_order(self) -> None:
        tasks = [await self.driver.submit(tenant=tenant) for tenant in TENANTS]
        steps = (Command.PAUSE, Command.RESUME, Command.PAUSE, Command.CANCEL)
        for step in steps:
            for task in tasks:
                await self.driver.ask(step, task)
        links = await read_chain(self.store, limit=3)
        for task in tasks:
            assert [e.command for e in entries(links) if e.task_id == task.id] == list(steps)

    @pytest.mark.parametrize("odd", ["", "Zoë ‐ 漢字 🙂", "a\r\nb\x1b[0m\0", '"\\/\u2028', "\x7f"])
    async def test_an_entry_comes_back_as_its_hash_was_made(self, odd: str) -> None:
        self.clock.advance(0.1 + 0.2)
        entry = build_refusal(self.driver, f"queue:{odd}", actor=odd, reason=odd)
        await self.store.admin.audit(entry)
        await cancel_one(self.driver)
        assert entry in entries(await read_chain(self.store))

    async def test_the_chain_is_read_page_by_page(self) -> None:
        links = await build_chain(self.driver, 7)
        assert await read_chain(self.store, limit=2) == links
        chain = await self.store.admin.chain(after=3, limit=2)
        assert (list(chain.links), chain.head) == (links[3:5], links[-1].anchor)
        assert (await self.store.admin.chain(after=7, limit=2)).links == ()
        assert (await self.store.admin.chain(after=99, limit=2)).links == ()
        assert (await self.store.admin.chain(limit=0)).head == links[-1].anchor

    @pytest.mark.parametrize("limit", [1, 2, 3, 100])
    async def test_what_is_loose_is_sealed_up_to_the_limit_at_once(self, limit: int) -> None:
        await cancel_many(self.driver, 7)
        chain = await self.store.admin.chain(limit=ALL)
        assert chain.loose + len(chain.links) == 7
        assert await seal_all(self.store, limit=limit) == chain.loose
        assert len(await read_chain(self.store)) == 7

    async def test_sealing_again_changes_nothing(self) -> None:
        links = await build_chain(self.driver, 5)
        assert await self.store.admin.seal(limit=ALL) == 0
        assert await read_chain(self.store) == links

    async def test_later_entries_hang_on_the_earlier_ones(self) -> None:
        earlier = await build_chain(self.driver, 3)
        links = await build_chain(self.driver, 3)
        assert links[:3] == earlier
        assert len(links) == 6

    async def test_many_who_seal_at_once_seal_each_entry_once(self) -> None:
        ids = await cancel_many(self.driver, 12)
        await asyncio.gather(*(seal_all(self.store, limit=2) for _ in range(5)))
        links = await read_chain(self.store)
        assert sorted(link.entry.task_id for link in links) == sorted(ids)

    async def test_what_is_written_while_it_is_sealed_is_sealed_once(self) -> None:
        async def seal_on() -> None:
            for _ in range(10):
                await self.store.admin.seal(limit=2)
                await asyncio.sleep(0)

        ids, *_ = await asyncio.gather(cancel_many(self.driver, 12), seal_on(), seal_on())
        links = await read_chain(self.store)
        assert sorted(link.entry.task_id for link in links) == sorted(ids)

    async def test_audits_show_what_is_sealed_and_what_is_not(self) -> None:
        ids = await cancel_many(self.driver, 6)
        before = list(await self.store.admin.audits(limit=ALL))
        assert [entry.task_id for entry in before] == ids[::-1]
        await self.store.admin.seal(limit=2)
        assert list(await self.store.admin.audits(limit=ALL)) == before
        await seal_all(self.store)
        assert list(await self.store.admin.audits(limit=ALL)) == before
        ids += await cancel_many(self.driver, 3)
        seen = [
            entry.task_id
            for cursor in (None, "4", "8")
            for entry in await self.store.admin.audits(limit=4, cursor=cursor)
        ]
        assert seen == ids[::-1]

    # Links of the store that somebody has tampered with.

    async def test_a_changed_entry_is_found(self) -> None:
        links = await build_chain(self.driver, 4)
        for at, link in enumerate(links):
            changed = replace(link, entry=replace(link.entry, by=By(actor="nobody")))
            broken = first_break(Anchor(), [*links[:at], changed, *links[at + 1 :]])
            assert broken is not None
            assert broken.seq == link.seq

    async def test_a_missing_entry_is_found(self) -> None:
        links = await build_chain(self.driver, 4)
        for at in range(len(links) - 1):
            assert first_break(Anchor(), links[:at] + links[at + 1 :]) is not None

    async def test_entries_that_changed_places_are_found(self) -> None:
        links = await build_chain(self.driver, 4)
        for first, second in pairwise(links):
            swapped = [replace(first, entry=second.entry), replace(second, entry=first.entry)]
            forged = [*links[: first.seq - 1], *swapped, *links[second.seq :]]
            assert first_break(Anchor(), forged) is not None

    async def test_a_missing_end_is_shown_by_the_head(self) -> None:
        links = await build_chain(self.driver, 4)
        assert (await self.store.admin.chain(limit=ALL)).head not in [
            link.anchor for link in links[:-1]
        ]

    async def test_the_chain_hangs_on_what_was_cleaned_up_last(self) -> None:
        links = await build_chain(self.driver, 6)
        assert await self.driver.prune(Kept.AUDIT, older_than_seconds=2.5, dry_run=True) == 3
        assert await read_chain(self.store) == links
        assert await self.driver.prune(Kept.AUDIT, older_than_seconds=2.5) == 3
        chain = await self.store.admin.chain(limit=ALL)
        assert (chain.base, chain.head) == (links[2].anchor, links[-1].anchor)
        assert await read_chain(self.store) == links[3:]
        assert len(await self.store.admin.audits(limit=ALL)) == 3

    async def test_the_time_of_the_newest_that_is_gone_is_kept_with_the_base(self) -> None:
        links = await build_chain(self.driver, 6)
        assert (await self.store.admin.chain(limit=ALL)).base_at is None
        assert await self.driver.prune(Kept.AUDIT, limit=2, older_than_seconds=2.5) == 2
        assert (await self.store.admin.chain(limit=ALL)).base_at == links[1].entry.at
        assert await self.driver.prune(Kept.AUDIT, older_than_seconds=2.5) == 1
        chain = await self.store.admin.chain(limit=ALL)
        assert (chain.base_at, chain.odd) == (links[2].entry.at, "")
        assert {link.odd for link in chain.links} == {""}

    async def test_no_more_than_the_limit_goes_at_once(self) -> None:
        links = await build_chain(self.driver, 5)
        self.clock.advance(10)
        assert await self.driver.prune(Kept.AUDIT, limit=2) == 2
        assert await read_chain(self.store) == links[2:]
        assert [await self.driver.prune(Kept.AUDIT, limit=2) for _ in range(3)] == [2, 1, 0]
        assert await read_chain(self.store) == []

    async def test_the_chain_goes_on_where_it_was_when_all_of_it_is_gone(self) -> None:
        await cancel_many(self.driver, 3)
        last = (await read_chain(self.store))[-1]
        self.clock.advance(10)
        assert await self.driver.prune(Kept.AUDIT) == 3
        chain = await self.store.admin.chain(limit=ALL)
        assert (chain.base, chain.head, chain.links) == (last.anchor, last.anchor, ())
        links = await build_chain(self.driver, 2)
        assert [link.seq for link in links] == [4, 5]
        assert first_break(last.anchor, links) is None

    async def test_links_asked_for_behind_a_cleaned_up_one_begin_with_the_oldest_kept(self) -> None:
        links = await build_chain(self.driver, 5)
        await self.driver.prune(Kept.AUDIT, older_than_seconds=1.5)
        assert list((await self.store.admin.chain(after=1, limit=1)).links) == [links[3]]

    async def test_a_clean_up_before_the_sealing_breaks_nothing(self) -> None:
        ids = await cancel_many(self.driver, 8)
        await self.store.admin.seal(limit=2)
        assert await self.driver.prune(Kept.AUDIT, older_than_seconds=3.5) == 4
        links = await read_chain(self.store)
        assert sorted(link.entry.task_id for link in links) == sorted(ids[4:])
        ids += await cancel_many(self.driver, 2)
        assert sorted(e.task_id for e in entries(await read_chain(self.store))) == sorted(ids[4:])
