"""Audits: all that people did or were refused hangs together in one chain, each entry once."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest
from msgspec.structs import replace

from holdfast.domain.audit import START, Anchor, Audit, AuditLink, first_break
from holdfast.domain.plan.plan import PlanNext
from holdfast.domain.task.operate import OperatorRequest, refusal
from holdfast.domain.task.state import Command
from holdfast.domain.task.task import By
from holdfast.domain.task.transition import Stale
from holdfast.ports import Kept, Store, Switch
from holdfast.testing.contract.admin.retention import prune
from holdfast.testing.contract.drivers.plan_driver import PlanDriver
from holdfast.testing.contract.drivers.store_driver import ASKER, StoreDriver
from holdfast.testing.contract.drivers.switch_driver import OperatingContract, SwitchDriver
from holdfast.testing.contract.drivers.trigger_driver import TriggerDriver

ALL = 1_000
TENANTS = (None, "a", "b", "c", "d")  # a store in parts keeps them apart


async def sealed(store: Store, *, limit: int = ALL) -> int:
    """All that was loose; how many."""
    count = 0
    for _ in range(ALL):
        some = await store.admin.seal(limit=limit)
        assert some <= limit
        count += some
        if some == 0:
            return count
    raise AssertionError("there is always more to seal")


async def whole(store: Store, *, limit: int = ALL) -> list[AuditLink]:
    """The links that are kept, page by page, after all was sealed and hangs together."""
    await sealed(store)
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
    """One entry; of which task."""
    driver.clock.advance(1)
    return (await driver.ask(Command.CANCEL, await driver.submit(tenant=tenant))).id


async def cancel_many(driver: StoreDriver, number: int) -> list[str]:
    return [await cancel_one(driver, TENANTS[n % len(TENANTS)]) for n in range(number)]


def refused(driver: StoreDriver, about: str = "store", **fields: str) -> Audit:
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


def by_time(found: list[Audit]) -> list[Audit]:
    return sorted(found, key=lambda entry: (entry.at, entry.task_id))


class Chaining(OperatingContract):
    async def test_the_chain_of_a_new_store_is_empty(self, driver: StoreDriver) -> None:
        chain = await driver.store.admin.chain(limit=10)
        assert (chain.base, chain.head, chain.links, chain.loose) == (Anchor(), Anchor(), (), 0)
        assert await driver.store.admin.seal(limit=10) == 0

    async def test_the_links_hang_together_from_the_start(self, driver: StoreDriver) -> None:
        ids = await cancel_many(driver, 7)
        links = await whole(driver.store)
        assert (await driver.store.admin.chain(limit=1)).base == Anchor(seq=0, hash=START)
        assert [link.seq for link in links] == [1, 2, 3, 4, 5, 6, 7]
        assert sorted(link.entry.task_id for link in links) == sorted(ids)

    async def test_what_a_person_did_to_a_task_is_in_the_chain_once(
        self, driver: StoreDriver
    ) -> None:
        task = await driver.submit(tenant="t")
        asked = driver.asked(Command.CANCEL, task)
        await driver.commit(asked)
        await driver.commit(asked)
        assert isinstance(await driver.apply(driver.asked(Command.PAUSE, task)), Stale)
        assert entries(await whole(driver.store)) == [asked.audit]

    async def test_what_the_engine_does_is_not_in_the_chain(self, driver: StoreDriver) -> None:
        await driver.complete(await driver.start())
        await driver.suspend(await driver.start())
        assert await whole(driver.store) == []

    async def test_what_was_refused_is_in_the_chain(self, driver: StoreDriver) -> None:
        task = await driver.submit(tenant="t")
        ask = OperatorRequest(by=ASKER, now=driver.clock.now(), request="r")
        entry = refusal(task, Command.DISCARD, ask, "illegal-transition")
        await driver.store.admin.audit(entry)
        assert entries(await whole(driver.store)) == [entry]

    async def test_what_was_done_beside_the_tasks_is_in_the_chain_and_no_refusal(
        self, driver: StoreDriver
    ) -> None:
        for about in ("store", "queue:slow", "worker:w-1", "plan:p", "trigger:t", ""):
            await driver.store.admin.audit(replace(refused(driver, about), refused=None))
        assert len(await whole(driver.store)) == 6
        assert (await driver.store.views.stats()).refused == {}

    async def test_what_was_done_to_a_switch_is_in_the_chain(self, switches: SwitchDriver) -> None:
        for switch in Switch:
            for _ in range(2):
                await switches.off(switch)
                await switches.on(switch)
        links = await whole(switches.store)
        assert len(links) == 4 * len(Switch)
        assert sorted(e.command for e in entries(links)) == sorted(
            f"{switch}-{stood}" for switch in Switch for stood in ("on", "off", "on", "off")
        )

    async def test_what_a_person_did_to_a_plan_is_in_the_chain_once(
        self, plans: PlanDriver
    ) -> None:
        plan = await plans.ready()
        entry = plans.audit(plan, "pause")
        change = await plans.asked(plan, audit=entry)
        await plans.commit(change)
        await plans.commit(change)
        await plans.refused(await plans.asked(plan, audit=entry))
        assert entries(await whole(plans.store)) == [entry]

    async def test_what_a_driver_tells_of_its_plan_is_in_the_chain(self, plans: PlanDriver) -> None:
        plan = await plans.driven()
        entry = plans.audit(plan, "pause")
        await plans.commit(await plans.decided(plan, next=PlanNext.LOOK, audit=entry))
        assert entries(await whole(plans.store)) == [entry]

    async def test_what_a_person_did_to_a_trigger_is_in_the_chain_once(
        self, triggers: TriggerDriver
    ) -> None:
        saved = await triggers.save(tenant="t")
        entry = triggers.audit(saved, "pause")
        change = triggers.changed(saved, audit=entry)
        await triggers.commit(change)
        await triggers.commit(change)
        await triggers.refused(triggers.changed(saved, audit=entry))
        assert entries(await whole(triggers.store)) == [entry]

    async def test_the_entries_of_all_that_people_do_are_in_one_chain(
        self,
        driver: StoreDriver,
        switches: SwitchDriver,
        triggers: TriggerDriver,
        plans: PlanDriver,
    ) -> None:
        wanted = []
        for tenant in TENANTS:
            asked = driver.asked(Command.CANCEL, await driver.submit(tenant=tenant))
            await driver.commit(asked)
            saved = await triggers.save(tenant=tenant)
            changed = triggers.changed(saved, audit=triggers.audit(saved, "pause"))
            await triggers.commit(changed)
            plan = await plans.ready()
            decided = await plans.asked(plan, audit=plans.audit(plan, "pause"))
            await plans.commit(decided)
            said = refused(driver, f"queue:{tenant}")
            await driver.store.admin.audit(said)
            await switches.off(Switch.INTAKE, f"q-{tenant}")
            thrown = switches.audit(Switch.INTAKE, f"q-{tenant}", on=False)
            wanted += [asked.audit, changed.audit, decided.audit, said, thrown]
        links = await whole(driver.store)
        assert [link.seq for link in links] == list(range(1, len(wanted) + 1))
        assert by_time(entries(links)) == by_time([entry for entry in wanted if entry])

    async def test_what_was_done_to_one_task_stays_in_its_order(self, driver: StoreDriver) -> None:
        tasks = [await driver.submit(tenant=tenant) for tenant in TENANTS]
        steps = (Command.PAUSE, Command.RESUME, Command.PAUSE, Command.CANCEL)
        for step in steps:
            for task in tasks:
                await driver.ask(step, task)
        links = await whole(driver.store, limit=3)
        for task in tasks:
            assert [e.command for e in entries(links) if e.task_id == task.id] == list(steps)

    @pytest.mark.parametrize("odd", ["", "Zoë ‐ 漢字 🙂", "a\r\nb\x1b[0m\0", '"\\/\u2028', "\x7f"])
    async def test_an_entry_comes_back_as_its_hash_was_made(
        self, driver: StoreDriver, odd: str
    ) -> None:
        driver.clock.advance(0.1 + 0.2)
        entry = refused(driver, f"queue:{odd}", actor=odd, reason=odd)
        await driver.store.admin.audit(entry)
        await cancel_one(driver)
        assert entry in entries(await whole(driver.store))

    async def test_the_chain_is_read_page_by_page(self, driver: StoreDriver) -> None:
        await cancel_many(driver, 7)
        links = await whole(driver.store)
        assert await whole(driver.store, limit=2) == links
        chain = await driver.store.admin.chain(after=3, limit=2)
        assert (list(chain.links), chain.head) == (links[3:5], links[-1].anchor)
        assert (await driver.store.admin.chain(after=7, limit=2)).links == ()
        assert (await driver.store.admin.chain(after=99, limit=2)).links == ()
        assert (await driver.store.admin.chain(limit=0)).head == links[-1].anchor


class Sealing(OperatingContract):
    @pytest.mark.parametrize("limit", [1, 2, 3, 100])
    async def test_what_is_loose_is_sealed_up_to_the_limit_at_once(
        self, driver: StoreDriver, limit: int
    ) -> None:
        await cancel_many(driver, 7)
        chain = await driver.store.admin.chain(limit=ALL)
        assert chain.loose + len(chain.links) == 7
        assert await sealed(driver.store, limit=limit) == chain.loose
        assert len(await whole(driver.store)) == 7

    async def test_sealing_again_changes_nothing(self, driver: StoreDriver) -> None:
        await cancel_many(driver, 5)
        links = await whole(driver.store)
        assert await driver.store.admin.seal(limit=ALL) == 0
        assert await whole(driver.store) == links

    async def test_later_entries_hang_on_the_earlier_ones(self, driver: StoreDriver) -> None:
        await cancel_many(driver, 3)
        earlier = await whole(driver.store)
        await cancel_many(driver, 3)
        links = await whole(driver.store)
        assert links[:3] == earlier
        assert len(links) == 6

    async def test_many_who_seal_at_once_seal_each_entry_once(self, driver: StoreDriver) -> None:
        ids = await cancel_many(driver, 12)
        await asyncio.gather(*(sealed(driver.store, limit=2) for _ in range(5)))
        links = await whole(driver.store)
        assert sorted(link.entry.task_id for link in links) == sorted(ids)

    async def test_what_is_written_while_it_is_sealed_is_sealed_once(
        self, driver: StoreDriver
    ) -> None:
        async def seal_on() -> None:
            for _ in range(10):
                await driver.store.admin.seal(limit=2)
                await asyncio.sleep(0)

        ids, *_ = await asyncio.gather(cancel_many(driver, 12), seal_on(), seal_on())
        links = await whole(driver.store)
        assert sorted(link.entry.task_id for link in links) == sorted(ids)

    async def test_audits_show_what_is_sealed_and_what_is_not(self, driver: StoreDriver) -> None:
        ids = await cancel_many(driver, 6)
        before = list(await driver.store.admin.audits(limit=ALL))
        assert [entry.task_id for entry in before] == ids[::-1]
        await driver.store.admin.seal(limit=2)
        assert list(await driver.store.admin.audits(limit=ALL)) == before
        await sealed(driver.store)
        assert list(await driver.store.admin.audits(limit=ALL)) == before
        ids += await cancel_many(driver, 3)
        seen = [
            entry.task_id
            for cursor in (None, "4", "8")
            for entry in await driver.store.admin.audits(limit=4, cursor=cursor)
        ]
        assert seen == ids[::-1]


class Tampering(OperatingContract):
    """The store's own links, changed by a hand that has no right to."""

    async def test_a_changed_entry_is_found(self, driver: StoreDriver) -> None:
        await cancel_many(driver, 4)
        links = await whole(driver.store)
        for at, link in enumerate(links):
            changed = replace(link, entry=replace(link.entry, by=By(actor="nobody")))
            broken = first_break(Anchor(), [*links[:at], changed, *links[at + 1 :]])
            assert broken is not None
            assert broken.seq == link.seq

    async def test_a_missing_entry_is_found(self, driver: StoreDriver) -> None:
        await cancel_many(driver, 4)
        links = await whole(driver.store)
        for at in range(len(links) - 1):
            assert first_break(Anchor(), links[:at] + links[at + 1 :]) is not None

    async def test_entries_that_changed_places_are_found(self, driver: StoreDriver) -> None:
        await cancel_many(driver, 4)
        links = await whole(driver.store)
        for one, other in pairwise(links):
            swapped = [replace(one, entry=other.entry), replace(other, entry=one.entry)]
            there = [*links[: one.seq - 1], *swapped, *links[other.seq :]]
            assert first_break(Anchor(), there) is not None

    async def test_a_missing_end_is_shown_by_the_head(self, driver: StoreDriver) -> None:
        await cancel_many(driver, 4)
        links = await whole(driver.store)
        assert (await driver.store.admin.chain(limit=ALL)).head not in [
            one.anchor for one in links[:-1]
        ]


class PruningAudits(OperatingContract):
    async def test_the_chain_hangs_on_what_was_cleaned_up_last(self, driver: StoreDriver) -> None:
        await cancel_many(driver, 6)
        links = await whole(driver.store)
        assert await prune(driver, Kept.AUDIT, older_than_seconds=2.5, dry_run=True) == 3
        assert await whole(driver.store) == links
        assert await prune(driver, Kept.AUDIT, older_than_seconds=2.5) == 3
        chain = await driver.store.admin.chain(limit=ALL)
        assert (chain.base, chain.head) == (links[2].anchor, links[-1].anchor)
        assert await whole(driver.store) == links[3:]
        assert len(await driver.store.admin.audits(limit=ALL)) == 3

    async def test_the_time_of_the_newest_that_is_gone_is_kept_with_the_base(
        self, driver: StoreDriver
    ) -> None:
        await cancel_many(driver, 6)
        links = await whole(driver.store)
        assert (await driver.store.admin.chain(limit=ALL)).base_at is None
        assert await prune(driver, Kept.AUDIT, limit=2, older_than_seconds=2.5) == 2
        assert (await driver.store.admin.chain(limit=ALL)).base_at == links[1].entry.at
        assert await prune(driver, Kept.AUDIT, older_than_seconds=2.5) == 1
        chain = await driver.store.admin.chain(limit=ALL)
        assert (chain.base_at, chain.odd) == (links[2].entry.at, "")
        assert {link.odd for link in chain.links} == {""}

    async def test_no_more_than_the_limit_goes_at_once(self, driver: StoreDriver) -> None:
        await cancel_many(driver, 5)
        links = await whole(driver.store)
        driver.clock.advance(10)
        assert await prune(driver, Kept.AUDIT, limit=2) == 2
        assert await whole(driver.store) == links[2:]
        assert [await prune(driver, Kept.AUDIT, limit=2) for _ in range(3)] == [2, 1, 0]
        assert await whole(driver.store) == []

    async def test_the_chain_goes_on_where_it_was_when_all_of_it_is_gone(
        self, driver: StoreDriver
    ) -> None:
        await cancel_many(driver, 3)
        last = (await whole(driver.store))[-1]
        driver.clock.advance(10)
        assert await prune(driver, Kept.AUDIT) == 3
        chain = await driver.store.admin.chain(limit=ALL)
        assert (chain.base, chain.head, chain.links) == (last.anchor, last.anchor, ())
        await cancel_many(driver, 2)
        links = await whole(driver.store)
        assert [link.seq for link in links] == [4, 5]
        assert first_break(last.anchor, links) is None

    async def test_links_asked_for_behind_a_cleaned_up_one_begin_with_the_oldest_kept(
        self, driver: StoreDriver
    ) -> None:
        await cancel_many(driver, 5)
        links = await whole(driver.store)
        await prune(driver, Kept.AUDIT, older_than_seconds=1.5)
        assert list((await driver.store.admin.chain(after=1, limit=1)).links) == [links[3]]

    async def test_a_clean_up_before_the_sealing_breaks_nothing(self, driver: StoreDriver) -> None:
        ids = await cancel_many(driver, 8)
        await driver.store.admin.seal(limit=2)
        assert await prune(driver, Kept.AUDIT, older_than_seconds=3.5) == 4
        links = await whole(driver.store)
        assert sorted(link.entry.task_id for link in links) == sorted(ids[4:])
        ids += await cancel_many(driver, 2)
        assert sorted(e.task_id for e in entries(await whole(driver.store))) == sorted(ids[4:])
