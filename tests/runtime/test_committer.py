"""Group commit: what comes while a write is under way goes with the next."""

import asyncio
from collections.abc import Sequence
from typing import cast

import pytest

from holdfast.errors import StoreUnavailable
from holdfast.runtime.committer import BATCH_LIMIT, WORTH_A_WRITE, Gather
from tests.support.runtime.helpers import within_bounds


class Writes:
    """Each write waits until the test lets it through."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.senders: list[asyncio.Task[None]] = []
        self.fails: Exception | None = None
        self.let_through = asyncio.Semaphore(0)

    async def send(self, batch: Sequence[int]) -> Sequence[int]:
        self.batches.append(list(batch))
        self.senders.append(cast("asyncio.Task[None]", asyncio.current_task()))
        await self.let_through.acquire()
        if self.fails is not None:
            raise self.fails
        return [item * 10 for item in batch]


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_a_single_item_is_sent_at_once() -> None:
    writes = Writes()
    writes.let_through.release()
    assert await within_bounds(Gather(writes.send)(7)) == 70
    assert writes.batches == [[7]]


async def test_items_gather_behind_the_write_under_way() -> None:
    writes = Writes()
    gather = Gather(writes.send)
    first = asyncio.ensure_future(gather(1))
    await turns()
    rest = [asyncio.ensure_future(gather(n)) for n in (2, 3, 4)]
    await turns()
    assert writes.batches == [[1]]
    writes.let_through.release()
    await turns()
    assert writes.batches == [[1], [2, 3, 4]]
    writes.let_through.release()
    assert await within_bounds(asyncio.gather(first, *rest)) == [10, 20, 30, 40]


async def test_a_batch_is_bounded() -> None:
    writes = Writes()
    gather = Gather(writes.send)
    sent = [asyncio.ensure_future(gather(n)) for n in range(2 * BATCH_LIMIT + 5)]
    for _ in range(10):
        writes.let_through.release()
    await within_bounds(asyncio.gather(*sent))
    assert max(map(len, writes.batches)) == BATCH_LIMIT
    assert sum(map(len, writes.batches)) == 2 * BATCH_LIMIT + 5


async def test_a_failed_batch_fails_each_of_its_items_and_no_other() -> None:
    writes = Writes()
    gather = Gather(writes.send)
    writes.fails = StoreUnavailable("away")
    failing = [asyncio.ensure_future(gather(n)) for n in (1, 2)]
    await turns()
    next_one = asyncio.ensure_future(gather(3))
    await turns()
    writes.let_through.release()
    for task in failing:
        with pytest.raises(StoreUnavailable):
            await within_bounds(task)
    writes.fails = None
    writes.let_through.release()
    assert await within_bounds(next_one) == 30


async def test_an_item_whose_sender_went_away_is_not_sent() -> None:
    writes = Writes()
    gather = Gather(writes.send)
    first = asyncio.ensure_future(gather(1))
    await turns()
    gone, stays = asyncio.ensure_future(gather(2)), asyncio.ensure_future(gather(3))
    await turns()
    gone.cancel()
    await turns()
    writes.let_through.release()
    writes.let_through.release()
    assert list(await within_bounds(asyncio.gather(first, stays))) == [10, 30]
    assert writes.batches == [[1], [3]]


async def test_a_write_goes_on_when_one_of_its_senders_goes_away() -> None:
    writes = Writes()
    gather = Gather(writes.send)
    gone, stays = asyncio.ensure_future(gather(1)), asyncio.ensure_future(gather(2))
    await turns()
    gone.cancel()
    writes.let_through.release()
    assert await within_bounds(stays) == 20
    assert writes.batches == [[1, 2]]


async def test_it_works_again_after_it_was_idle() -> None:
    writes = Writes()
    gather = Gather(writes.send)
    for n in (1, 2, 3):
        writes.let_through.release()
        assert await within_bounds(gather(n)) == n * 10
    assert writes.batches == [[1], [2], [3]]


def send_items(gather: Gather[int, int], items: range) -> list[asyncio.Future[int]]:
    return [asyncio.ensure_future(gather(n)) for n in items]


FIRST = range(1)
SECOND = range(1, 1 + WORTH_A_WRITE)
THIRD = range(SECOND.stop, SECOND.stop + WORTH_A_WRITE)


async def under_way(writes: Writes) -> tuple[Gather[int, int], list[list[asyncio.Future[int]]]]:
    """Begin two writes, while the items of a third one wait."""
    gather, futures = Gather(writes.send, under_way=2), []
    for items in (FIRST, SECOND, THIRD):
        futures.append(send_items(gather, items))
        await turns()
    return gather, futures


async def test_a_second_write_goes_while_the_first_is_under_way_but_no_third() -> None:
    writes = Writes()
    _, futures = await under_way(writes)
    assert writes.batches == [[*FIRST], [*SECOND]]
    writes.let_through.release()
    await turns()
    assert writes.batches == [[*FIRST], [*SECOND], [*THIRD]]
    assert [sent[0].done() for sent in futures] == [True, False, False]
    writes.let_through.release()
    writes.let_through.release()
    for items, sent in zip((FIRST, SECOND, THIRD), futures, strict=True):
        assert list(await within_bounds(asyncio.gather(*sent))) == [item * 10 for item in items]


async def test_a_few_items_gather_behind_the_first_write() -> None:
    writes = Writes()
    gather = Gather(writes.send, under_way=2)
    first = send_items(gather, FIRST)
    await turns()
    few = send_items(gather, range(1, WORTH_A_WRITE))
    await turns()
    assert writes.batches == [[*FIRST]]
    writes.let_through.release()
    writes.let_through.release()
    await within_bounds(asyncio.gather(*first, *few))
    assert len(writes.batches) == 2


async def test_items_of_one_moment_go_in_one_write() -> None:
    writes = Writes()
    sent = send_items(Gather(writes.send, under_way=2), range(2 * WORTH_A_WRITE))
    writes.let_through.release()
    await within_bounds(asyncio.gather(*sent))
    assert len(writes.batches) == 1


async def test_a_write_that_fails_fails_no_item_of_the_other_under_way() -> None:
    writes = Writes()
    _, (first, second, third) = await under_way(writes)
    writes.fails = StoreUnavailable("away")
    writes.let_through.release()
    with pytest.raises(StoreUnavailable):
        await within_bounds(first[0])
    writes.fails = None
    writes.let_through.release()
    writes.let_through.release()
    assert list(await within_bounds(asyncio.gather(*second))) == [item * 10 for item in SECOND]
    assert list(await within_bounds(asyncio.gather(*third))) == [item * 10 for item in THIRD]


async def test_what_waits_is_sent_by_the_sender_that_is_left() -> None:
    writes = Writes()
    _, (first, second, third) = await under_way(writes)
    writes.senders[0].cancel()
    await turns()
    assert first[0].cancelled()
    writes.let_through.release()
    writes.let_through.release()
    assert list(await within_bounds(asyncio.gather(*second))) == [item * 10 for item in SECOND]
    assert list(await within_bounds(asyncio.gather(*third))) == [item * 10 for item in THIRD]


async def test_nobody_waits_for_senders_that_are_all_cancelled() -> None:
    writes = Writes()
    gather, futures = await under_way(writes)
    for sender in writes.senders:
        sender.cancel()
    await turns()
    assert all(future.cancelled() for sent in futures for future in sent)
    writes.let_through.release()
    assert await within_bounds(gather(7)) == 70, "it works again"
