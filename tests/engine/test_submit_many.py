"""Many at once: all are checked first, go in by parts, and what was not accepted is named."""

from collections.abc import Sequence
from typing import Any

import pytest

from holdfast import Context, Holdfast
from holdfast.domain.errors import PartlyUnavailable
from holdfast.domain.task.transition import Insertion, Submission
from holdfast.engine.declare import AsyncTask
from holdfast.engine.submit import PART
from holdfast.errors import (
    InvalidInput,
    InvalidName,
    InvalidPayload,
    KeyConflict,
    QueueFull,
    StoreUnavailable,
    SubmittedInPart,
)
from holdfast.stores.memory import MemoryStore
from holdfast.testing import Engine, ManualClock
from holdfast.testing.plugin import MakeEngine
from tests.support.runtime.helpers import FlakyStore
from verify.interception import Verb

LIMIT = 3 * PART


class Failing(FlakyStore):
    """After some inserts it is out of reach, for all or for every second task."""

    def __init__(self, clock: ManualClock) -> None:
        self.batches: list[int] = []
        self.inserts_left = 1000
        self.partly = False
        super().__init__(MemoryStore(clock))

    def passed(self, name: str, verb: Verb) -> Verb:
        return self.insert if name == "tasks.insert" else super().passed(name, verb)

    async def insert(self, batch: Sequence[Submission], **options: Any) -> Sequence[Insertion]:
        self.batches.append(len(batch))
        self.inserts_left -= 1
        away = StoreUnavailable("nobody answers")
        if self.inserts_left >= 0:
            return await self._store.tasks.insert(batch, **options)
        if not self.partly:
            raise away
        inserted = await self._store.tasks.insert(batch[::2], **options)
        raise PartlyUnavailable(away, [one for pair in inserted for one in (pair, away)])


class Bench:
    def __init__(self, make: MakeEngine) -> None:
        self.app = Holdfast("memory://", queue_limit=LIMIT)
        self.double = self._declared()
        clock = ManualClock()
        self.store = Failing(clock)
        self.engine: Engine = make(self.app, store=self.store, clock=clock)

    def _declared(self) -> AsyncTask[int, int]:
        @self.app.task("double")
        async def double(ctx: Context, n: int) -> int:
            self.ran.append(n)
            return 2 * n

        self.ran: list[int] = []
        return double

    async def count(self) -> int:
        return sum((await self.app.store.views.stats()).by_status.values())


@pytest.fixture
def bench(holdfast_engine: MakeEngine) -> Bench:
    return Bench(holdfast_engine)


async def test_each_payload_gets_its_handle(bench: Bench) -> None:
    handles = await bench.double.submit_many(range(2 * PART + 1))
    assert bench.store.batches == [PART, PART, 1], "in parts of a bounded size"
    await bench.engine.drain()
    assert [await handle.result() for handle in handles] == list(range(0, 4 * PART + 2, 2))
    assert len({handle.id for handle in handles}) == len(handles)


async def test_nothing_is_submitted_for_no_payloads(bench: Bench) -> None:
    assert await bench.double.submit_many([]) == []
    assert bench.store.batches == []


async def test_the_tasks_of_a_tenant_run_in_the_order_of_the_payloads(bench: Bench) -> None:
    await bench.double.submit_many(range(PART + 10), tenant="t-1")
    await bench.engine.drain()
    assert bench.ran == list(range(PART + 10))


async def test_all_are_submitted_on_the_same_terms(bench: Bench) -> None:
    user = {"name": "ann"}
    handles = await bench.double.submit_many(
        (1, 2), tenant="t-1", queue="slow", trace_id="tr-1", user=user
    )
    tasks = await bench.app.store.views.load([handle.id for handle in handles])
    for task in tasks:
        assert task is not None
        assert (task.tenant, task.queue, task.trace_id, task.user) == ("t-1", "slow", "tr-1", user)


@pytest.mark.parametrize("number", [0, 2, PART + 1])
async def test_a_bad_payload_refuses_the_whole_call_and_is_named(bench: Bench, number: int) -> None:
    payloads: list[Any] = list(range(PART + 5))
    payloads[number] = "two"
    with pytest.raises(InvalidPayload, match=rf"^payloads\.{number}: "):
        await bench.double.submit_many(payloads)
    assert await bench.count() == 0


async def test_keys_are_one_for_each(bench: Bench) -> None:
    with pytest.raises(InvalidInput, match="1 keys for 2 payloads"):
        await bench.double.submit_many([1, 2], keys=["a"])
    with pytest.raises(InvalidName, match="key"):
        await bench.double.submit_many([1, 2], keys=["a", "not a key"])
    assert await bench.count() == 0


async def test_the_same_keys_give_the_same_tasks(bench: Bench) -> None:
    first = await bench.double.submit_many([1, 2], keys=["a", "b"], tenant="t")
    again = await bench.double.submit_many([1, 2], keys=["a", "b"], tenant="t")
    single = await bench.double.submit(2, key="b", tenant="t")
    assert [handle.id for handle in again] == [handle.id for handle in first]
    assert single.id == first[1].id


async def test_a_conflict_is_named_and_the_others_of_its_part_are_accepted(bench: Bench) -> None:
    taken = await bench.double.submit(7, key="k-1")
    with pytest.raises(SubmittedInPart) as refused:
        await bench.double.submit_many([0, 1, 2], keys=["k-0", "k-1", "k-2"])
    told = refused.value
    assert (told.total, list(told.accepted), list(told.errors)) == (3, [0, 2], [1])
    assert isinstance(told.errors[1], KeyConflict)
    assert told.errors[1].task_id == taken.id
    assert str(told).startswith("2 of 3 were accepted; number 1: key 'k-1'")
    await bench.engine.drain()
    assert [await bench.app.handle(told.accepted[n]).result() for n in (0, 2)] == [0, 4]


async def test_behind_a_part_with_a_refusal_nothing_more_is_sent(bench: Bench) -> None:
    await bench.double.submit(-1, key="k-0")
    bench.store.batches.clear()
    count = 2 * PART + 1
    with pytest.raises(SubmittedInPart) as refused:
        await bench.double.submit_many(range(count), keys=[f"k-{n}" for n in range(count)])
    assert bench.store.batches == [PART]
    assert (len(refused.value.accepted), len(refused.value.errors)) == (PART - 1, 1)


async def test_a_queue_takes_what_it_has_room_for(bench: Bench) -> None:
    with pytest.raises(SubmittedInPart) as refused:
        await bench.double.submit_many(range(LIMIT + 2))
    told = refused.value
    assert list(told.accepted) == list(range(LIMIT))
    assert [type(error) for error in told.errors.values()] == [QueueFull, QueueFull]
    assert await bench.count() == LIMIT


async def test_when_none_is_accepted_the_first_refusal_is_raised_itself(bench: Bench) -> None:
    await bench.double.submit_many(range(LIMIT))
    with pytest.raises(QueueFull):
        await bench.double.submit_many([1, 2])
    bench.store.inserts_left = 0
    with pytest.raises(StoreUnavailable):
        await bench.double.submit_many([1, 2], queue="other")


async def test_an_outage_in_the_middle_says_what_is_kept(bench: Bench) -> None:
    bench.store.inserts_left = 1
    with pytest.raises(SubmittedInPart, match="nobody answers") as refused:
        await bench.double.submit_many(range(2 * PART + 1))
    told = refused.value
    assert list(told.accepted) == list(range(PART))
    assert list(told.errors) == list(range(PART, 2 * PART))
    assert len(bench.store.batches) == 2
    assert await bench.count() == PART


async def test_a_part_of_the_store_that_is_away_costs_only_its_own_tasks(bench: Bench) -> None:
    bench.store.inserts_left, bench.store.partly = 0, True
    with pytest.raises(SubmittedInPart) as refused:
        await bench.double.submit_many(range(4))
    assert (list(refused.value.accepted), list(refused.value.errors)) == ([0, 2], [1, 3])
    assert isinstance(refused.value.errors[1], StoreUnavailable)


async def test_an_app_that_is_not_open_takes_nothing() -> None:
    app = Holdfast("memory://")

    @app.task("note")
    async def note(ctx: Context, n: int) -> None: ...

    with pytest.raises(Exception, match="not open"):
        await note.submit_many([1])
