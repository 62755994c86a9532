"""Links of the chain of audits on the server: changed by somebody, and cleaned up by age."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from holdfast.domain.audit import Audit, first_break
from holdfast.stores.redis.admin import audit_chain
from holdfast.stores.redis.retention import prune_audit
from tests.support.redis.redis_chains import ALL, Parts, entry, opened
from tests.support.redis.redis_stores import Bench, benched
from verify.servers import RedisServer


@pytest.fixture
async def parts(redis_server: RedisServer, redis_namespace: str) -> AsyncIterator[Parts]:
    async with opened(redis_server, redis_namespace) as parts:
        yield parts


@pytest.fixture
async def bench(redis_server: RedisServer, redis_namespace: str) -> AsyncIterator[Bench]:
    async with benched(redis_server, redis_namespace) as bench:
        yield bench


# -- changed by a hand that has no right to


def changed(bench: Bench, place: int) -> None:
    [link] = bench.raw("LRANGE", "audit:chain", place, place)
    bench.ask("LSET", "audit:chain", place, link.replace(b'"ada"', b'"eve"'))


def swapped(bench: Bench, place: int) -> None:
    one, other = bench.raw("LRANGE", "audit:chain", place, place + 1)
    bench.ask("LSET", "audit:chain", place, other)
    bench.ask("LSET", "audit:chain", place + 1, one)


def removed(bench: Bench, place: int) -> None:
    [link] = bench.raw("LRANGE", "audit:chain", place, place)
    bench.ask("LREM", "audit:chain", 1, link)


def spoilt(bench: Bench, place: int) -> None:
    bench.ask("LSET", "audit:chain", place, b"\xff {")


@pytest.mark.parametrize("place", [0, 2, 3])
@pytest.mark.parametrize("tamper", [changed, swapped, removed, spoilt])
async def test_the_place_where_a_link_was_changed_is_found(
    bench: Bench, tamper: Callable[[Bench, int], None], place: int
) -> None:
    for n in range(5):
        await bench.store.admin.audit(entry(f"t-{n}", n))
    await bench.store.admin.seal(limit=ALL)
    tamper(bench, place)
    found = await bench.store.admin.chain(limit=ALL)
    broken = first_break(found.base, found.links)
    assert broken is not None
    assert broken.seq == place + (2 if tamper in (swapped, removed) else 1)


# -- cleaning up


async def test_a_link_that_cannot_be_read_goes_with_those_around_it(bench: Bench) -> None:
    for n in range(4):
        await bench.store.admin.audit(entry(f"t-{n}", bench.clock.now()))
        bench.clock.advance(10)
    await bench.store.admin.seal(limit=ALL)
    spoilt(bench, 1)
    counts = [await pruned(bench, older, dry_run=dry) for older in (25, 5) for dry in (True, False)]
    assert counts == [1, 1, 3, 3]
    found = await bench.store.admin.chain(limit=ALL)
    assert (found.base, found.links) == (found.head, ())
    assert "audit:chain" not in bench.names()


async def pruned(bench: Bench, older: float, *, dry_run: bool) -> int:
    return await prune_audit.prune(
        bench.store._parts, older_than_seconds=older, limit=ALL, dry_run=dry_run
    )


async def test_what_is_pruned_during_a_look_brings_no_other_entries_into_it(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = await parts.write_all(6)
    await parts.seal()
    sealed = audit_chain._read_sealed

    async def look_just_after_a_pruning(*args: Any) -> list[Audit]:
        assert await parts.prune(1.5, limit=3) == 3
        return await sealed(*args)

    monkeypatch.setattr(audit_chain, "_read_sealed", look_just_after_a_pruning)
    assert await parts.seen(limit=4, start=2) == [ids[3]]


async def test_one_who_was_overtaken_prunes_nothing(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = await parts.write_all(6)
    await parts.seal()
    look = audit_chain.links

    async def look_just_before_another_prunes(*args: Any) -> Any:
        found = await look(*args)
        monkeypatch.setattr(audit_chain, "links", look)
        assert await parts.prune(3.5) == 2
        return found

    monkeypatch.setattr(audit_chain, "links", look_just_before_another_prunes)
    assert await parts.prune(1.5) == 0
    assert await parts.sealed() == ids[2:]
