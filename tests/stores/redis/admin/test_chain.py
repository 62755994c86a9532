"""The chain of audits over several partitions: each entry gets into it once, whatever happens."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from holdfast.domain.audit import Anchor, first_break
from holdfast.domain.errors import PartlyUnavailable, SerialisationError, StoreUnavailable
from holdfast.stores.redis import scripts
from holdfast.stores.redis.admin import audit_chain, audit_seal
from holdfast.stores.redis.client.client import Script
from holdfast.stores.redis.partition import Partition
from tests.support.redis.redis_chains import ALL, Parts, entry, opened
from tests.support.redis.redis_stores import Bench, benched
from verify.servers import RedisServer

Trim = Callable[[audit_seal.Waiting, int], Awaitable[None]]


@pytest.fixture
async def parts(redis_server: RedisServer, redis_namespace: str) -> AsyncIterator[Parts]:
    async with opened(redis_server, redis_namespace) as parts:
        yield parts


@pytest.fixture
async def bench(redis_server: RedisServer, redis_namespace: str) -> AsyncIterator[Bench]:
    async with benched(redis_server, redis_namespace) as bench:
        yield bench


@pytest.fixture
def crash(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], None]:
    """Whoever seals from now on (or no more) dies before anything leaves its outbox."""
    trim: Trim = audit_seal._trim

    async def die(*_: object) -> None:
        raise StoreUnavailable("killed")

    def set_to(wanted: bool) -> None:
        monkeypatch.setattr(audit_seal, "_trim", die if wanted else trim)

    return set_to


async def test_entries_of_all_partitions_are_one_chain_the_oldest_first(parts: Parts) -> None:
    ids = await parts.write_all(10)
    assert (await parts.chain()).loose == 10
    assert await parts.seal() == 10
    assert await parts.sealed() == ids
    assert (await parts.chain()).loose == 0
    assert await parts.waiting() == [0, 0, 0]
    assert await parts.seen() == ids[::-1]


async def test_a_part_that_is_sealed_is_the_oldest_of_all(parts: Parts) -> None:
    ids = await parts.write_all(10)
    assert await parts.seal(4) == 4
    assert await parts.sealed() == ids[:4]
    assert (await parts.chain()).loose == 6
    assert await parts.seen() == ids[::-1]


async def test_more_than_one_step_takes_are_sealed_at_once(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_seal, "BATCH", 4)
    ids = await parts.write(1, 11) + await parts.write(2, 3)
    assert await parts.seal() == 14
    assert await parts.sealed() == ids


# -- between the two steps


@pytest.mark.parametrize("limit", [1, 4, ALL])
async def test_a_crash_before_entries_leave_their_outboxes_doubles_none(
    parts: Parts, crash: Callable[[bool], None], limit: int
) -> None:
    ids = await parts.write_all(8)
    crash(True)
    with pytest.raises(StoreUnavailable):
        await parts.seal(limit)
    assert sum(await parts.waiting()) == 8
    done = min(limit, 8)
    assert await parts.sealed() == ids[:done]
    assert (await parts.chain()).loose == 8 - done
    assert await parts.seen() == ids[::-1]
    crash(False)
    ids += await parts.write_all(5)
    assert await parts.seen() == ids[::-1]
    assert await parts.seal() == 13 - done
    assert await parts.sealed() == ids
    assert await parts.waiting() == [0, 0, 0]


async def test_many_crashes_in_a_row_are_made_up_for(
    parts: Parts, crash: Callable[[bool], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_seal, "BATCH", 3)
    ids = await parts.write_all(12)
    for _ in range(9):
        crash(True)
        with suppress(StoreUnavailable):
            await parts.seal(2)
        assert await parts.seen() == ids[::-1]
        crash(False)
        await parts.seal(1)
        assert await parts.seen() == ids[::-1]
    assert await parts.sealed() == ids


async def test_what_was_sealed_is_not_shown_twice_when_it_moves_during_the_look(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = await parts.write_all(7)
    await parts.seal(3)
    look = audit_chain.read_outboxes

    async def look_just_before_it_is_sealed(*args: Any) -> Any:
        found = await look(*args)
        await parts.seal(2)
        ids.append((await parts.write(1))[0])
        return found

    monkeypatch.setattr(audit_chain, "read_outboxes", look_just_before_it_is_sealed)
    assert await parts.seen() == ids[6::-1]
    assert await parts.seen(limit=4) == ids[7:3:-1]
    found = await parts.chain()
    assert (len(found.links), found.loose) == (9, 0)


@pytest.mark.parametrize("size", [1, 2, 3, 5])
async def test_pages_go_from_what_is_loose_into_the_chain(parts: Parts, size: int) -> None:
    ids = await parts.write_all(5)
    await parts.seal()
    ids += await parts.write_all(4)
    seen: list[str] = []
    while page := await parts.seen(size, len(seen)):
        assert len(page) <= size
        seen += page
    assert seen == ids[::-1]


# -- lost answers and others who seal


@pytest.mark.parametrize("script", [scripts.SEAL, scripts.SEAL_TRIM, scripts.PRUNE_AUDIT])
async def test_what_is_sent_twice_is_done_once(
    parts: Parts, monkeypatch: pytest.MonkeyPatch, script: Script
) -> None:
    call = Partition.call

    async def call_twice(part: Partition, which: Script, *args: Any, again: bool = True) -> Any:
        if which is script:
            await call(part, which, *args, again=again)
        return await call(part, which, *args, again=again)

    monkeypatch.setattr(Partition, "call", call_twice)
    ids = await parts.write_all(7)
    assert await parts.seal(5) == 5
    assert await parts.seal() == 2
    assert await parts.sealed() == ids
    assert await parts.prune(2.5) == 4
    assert await parts.sealed() == ids[4:]


async def test_one_who_was_overtaken_looks_again(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = await parts.write_all(6)
    append = audit_seal._append

    async def append_just_after_another(*args: Any) -> bool:
        monkeypatch.setattr(audit_seal, "_append", append)
        assert await parts.seal(2) == 2
        return await append(*args)

    monkeypatch.setattr(audit_seal, "_append", append_just_after_another)
    assert await parts.seal() == 4
    assert await parts.sealed() == ids


async def test_one_who_comes_late_takes_nothing_from_an_outbox(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    same = entry("same", 1.0)
    for _ in range(4):
        await audit_chain.write_audit(parts.list[1], same)
    trim: Trim = audit_seal._trim

    async def trim_just_after_others(one: audit_seal.Waiting, taken: int) -> None:
        if taken:
            monkeypatch.setattr(audit_seal, "_trim", trim)
            assert await parts.seal() == 2
            for _ in range(4):
                await audit_chain.write_audit(parts.list[1], same)
        await trim(one, taken)

    monkeypatch.setattr(audit_seal, "_trim", trim_just_after_others)
    await parts.seal(2)
    monkeypatch.setattr(audit_seal, "_trim", trim)
    await parts.seal()
    assert await parts.sealed() == ["same"] * 8


async def test_an_outbox_that_goes_back_before_entries_leave_it_loses_no_new_one(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = await parts.write(1, 3)
    bodies = await parts.ask(1, "LRANGE", "audit", 0, -1)
    trim: Trim = audit_seal._trim

    async def trim_after_a_failover(one: audit_seal.Waiting, taken: int) -> None:
        if taken:
            await parts.went_back(1, None, bodies[:1])
            ids.extend(await parts.write(1, 2))
        await trim(one, taken)

    with monkeypatch.context() as patch:
        patch.setattr(audit_seal, "_trim", trim_after_a_failover)
        await parts.seal(3)
    await parts.seal()
    assert set(await parts.sealed()) == set(ids)


async def test_those_who_seal_while_others_write_and_die_seal_each_entry_once(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_seal, "BATCH", 4)
    trim, trims = audit_seal._trim, 0

    async def trim_or_die(one: audit_seal.Waiting, taken: int) -> None:
        nonlocal trims
        trims += 1
        if trims % 3 == 0:
            raise StoreUnavailable("killed")
        await trim(one, taken)

    async def seal_on() -> None:
        for _ in range(15):
            with suppress(StoreUnavailable):
                await parts.seal(3)

    monkeypatch.setattr(audit_seal, "_trim", trim_or_die)
    ids, *_ = await asyncio.gather(parts.write_all(40), *(seal_on() for _ in range(4)))
    seen = await parts.seen()
    assert len(seen) == len(set(seen)) == 40
    monkeypatch.setattr(audit_seal, "_trim", trim)
    await parts.seal()
    assert sorted(await parts.sealed()) == ids
    assert await parts.waiting() == [0, 0, 0]


# -- a server that has lost its last writes


async def test_what_was_written_after_an_outbox_went_back_is_not_taken_for_sealed(
    parts: Parts,
) -> None:
    ids = await parts.write(1, 5)
    bodies = await parts.ask(1, "LRANGE", "audit", 0, -1)
    await parts.seal()
    await parts.went_back(1, None, bodies[:3])
    ids += await parts.write(1, 2)  # with the numbers of those that are gone
    await parts.seal()
    sealed = await parts.sealed()
    assert set(sealed) == set(ids)
    assert sealed[:5] == ids[:5]
    assert await parts.seal() == 0


async def test_an_outbox_that_only_missed_that_entries_left_it_doubles_none(parts: Parts) -> None:
    ids = await parts.write(1, 5)
    bodies = await parts.ask(1, "LRANGE", "audit", 0, -1)
    await parts.seal()
    await parts.went_back(1, None, bodies)
    ids += await parts.write(1, 2)
    assert await parts.seal() == 2
    assert await parts.sealed() == ids


async def test_a_chain_that_went_back_goes_on(parts: Parts) -> None:
    ids = await parts.write(1, 2)
    await parts.seal()
    ends = await parts.ask(0, "HGETALL", "ends")
    lost = await parts.write(1, 3)
    await parts.seal()
    await parts.ask(0, "LTRIM", "chain", 0, 1)
    await parts.ask(0, "HSET", "ends", *ends)
    ids += await parts.write(1, 2)
    assert await parts.seal() == 2
    assert await parts.sealed() == ids
    assert not set(lost) & set(await parts.seen())


async def test_the_rest_is_sealed_while_a_partition_is_away(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = await parts.write_all(6)
    call = Partition.call

    async def call_unless_away(part: Partition, *args: Any, **more: Any) -> Any:
        if part is parts.list[2]:
            raise StoreUnavailable("away")
        return await call(part, *args, **more)

    with monkeypatch.context() as patch:
        patch.setattr(Partition, "call", call_unless_away)
        with pytest.raises(PartlyUnavailable):
            await parts.seal()
    assert sorted(await parts.sealed()) == [ids[n] for n in (0, 1, 3, 4)]
    assert await parts.seal() == 2
    assert sorted(await parts.sealed()) == ids


# -- what others have written


async def test_entries_of_before_there_was_a_chain_are_sealed_like_new_ones(bench: Bench) -> None:
    old = [f'{{"taskId":"t-{n}","command":"pause","by":{{"actor":"ada"}}' for n in range(3)]
    bodies = [f'{body},"at":{n},"before":"A","after":"B"}}' for n, body in enumerate(old)]
    bench.ask("RPUSH", "audit", *bodies)
    assert await bench.store.admin.seal(limit=ALL) == 3
    found = await bench.store.admin.chain(limit=ALL)
    assert first_break(Anchor(), found.links) is None
    assert [link.entry.task_id for link in found.links] == ["t-0", "t-1", "t-2"]


async def test_an_entry_that_cannot_be_read_is_told_of_and_stops_nothing(parts: Parts) -> None:
    await parts.write(0, 3)
    await parts.ask(0, "LSET", "audit", 1, b"\xff{ nonsense")
    shown = await audit_chain.audits(parts.all, ALL, 0)
    assert await parts.seal() == 3
    assert await parts.sealed() == ["entry-001", "store", "entry-003"]
    told = (await parts.chain()).links[1].entry
    assert (told.command, told.by.reason) == ("unreadable", "\\xff{ nonsense")
    assert await audit_chain.audits(parts.all, ALL, 0) == shown


async def test_a_chain_whose_end_cannot_be_read_is_not_gone_on_with(parts: Parts) -> None:
    await parts.write(0, 2)
    await parts.seal(1)
    await parts.ask(0, "HSET", "ends", "head", "what?")
    with pytest.raises(SerialisationError, match="cannot be read: 'what"):
        await parts.seal()
    assert await parts.waiting() == [1, 0, 0]
