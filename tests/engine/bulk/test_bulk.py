"""A bulk action acts on what its filter matched when it was started, and on nothing twice."""

from collections import Counter
from typing import Any

import pytest

from holdfast import Context, Handle, Holdfast, Permanent, Status
from holdfast.domain.bulk import CHUNK_LIMIT, BulkCommand
from holdfast.domain.errors import DeclarationError
from holdfast.domain.task.events import TaskRetried
from holdfast.engine.bulk.bulks import BulkHandle, BulkNotFound
from holdfast.errors import InvalidInput, KeyConflict, TaskFailed
from holdfast.ports import Filter
from holdfast.testing import Engine
from holdfast.testing.plugin import MakeEngine
from tests.support.runtime.helpers import BOUND_SECONDS, Gate, detail_of

WORK = Filter(type="work")


class Scene:
    """Tasks that fail for good, until they are cured."""

    def __init__(self, app: Holdfast, make: MakeEngine) -> None:
        self.app = app
        self.cured = False
        self.calls: Counter[int] = Counter()
        self.times: list[float] = []
        self.sick: set[int] = set()
        self.gate: Gate | None = None

        @app.task("work")
        async def work(ctx: Context, number: int) -> int:
            self.calls[number] += 1
            self.times.append(self.engine.clock.now())
            if not self.cured or number in self.sick:
                raise Permanent(f"number {number}")
            if self.gate is not None:
                await self.gate.stand()
            return number

        self.work = work
        self.engine: Engine = make(app)

    async def failed(self, many: int) -> list[Handle[Any]]:
        """So many suspended tasks."""
        handles = list(await self.work.submit_many(range(many)))
        await self.engine.drain()
        self.cured = True
        self.times.clear()
        await self.engine.advance(1)
        return handles

    async def statuses(self) -> Counter[Status]:
        page = await self.engine.store.views.find(WORK, limit=10_000)
        return Counter(task.status for task in page.tasks)

    async def over(self, bulk: BulkHandle, within: str = "1h") -> None:
        await self.engine.advance(within)
        assert (await bulk.info()).over


@pytest.fixture
def scene(app: Holdfast, holdfast_engine: MakeEngine) -> Scene:
    return Scene(app, holdfast_engine)


async def test_it_resumes_all_that_match_and_counts_them(scene: Scene) -> None:
    await scene.failed(30)
    bulk = await scene.app.bulk.start("resume", WORK, reason="the database is back")
    await scene.over(bulk)
    assert await scene.statuses() == {Status.COMPLETED: 30}
    info = await bulk.info()
    assert (info.phase, info.matching, info.left) == ("done", 30, 0)
    assert (info.counts.done, info.counts.refused, info.counts.changed) == (30, {}, 0)
    assert info.by.reason == "the database is back"
    assert set(scene.calls.values()) == {2}


async def test_it_waits_for_a_worker_and_says_so(scene: Scene) -> None:
    await scene.failed(2)
    assert scene.engine.worker is not None
    scene.engine.worker.abandon()
    bulk = await scene.app.bulk.start("resume", WORK)
    info = await bulk.info()
    assert (info.phase, info.counts.done) == ("waiting", 0)


async def test_it_keeps_to_its_rate(scene: Scene) -> None:
    await scene.failed(60)
    began = scene.engine.clock.now()
    bulk = await scene.app.bulk.start("resume", WORK, rate=10)
    await scene.over(bulk)
    times = sorted(at - began for at in scene.times)
    for second in range(8):
        within = [at for at in times if second <= at < second + 1]
        assert len(within) <= 11, (second, len(within))
    assert 5.0 <= times[-1] <= 12.0


async def test_what_fails_again_is_not_touched_again(scene: Scene) -> None:
    await scene.failed(10)
    scene.sick = set(range(10))
    bulk = await scene.app.bulk.start("resume", WORK, rate=1)
    await scene.over(bulk)
    assert set(scene.calls.values()) == {2}
    assert (await bulk.info()).counts.done == 10


@pytest.mark.parametrize("place", ["picked", "not looked at"])
async def test_what_has_changed_since_the_start_is_left_alone(scene: Scene, place: str) -> None:
    handles = await scene.failed(20)
    by_id = sorted(range(20), key=lambda number: handles[number].id, reverse=True)
    number = by_id[4] if place == "picked" else by_id[-1]  # five are picked at once
    scene.sick = {number}
    bulk = await scene.app.bulk.start("resume", WORK, rate=1)
    await scene.engine.advance(0.5)
    await handles[number].retry()
    await scene.over(bulk)
    assert scene.calls[number] == 2
    assert (await handles[number].info()).status is Status.FAILED
    counts = (await bulk.info()).counts
    assert (counts.done, counts.changed) == (19, 1)


@pytest.mark.parametrize("when", ["before", "after", "commit"])
async def test_a_worker_that_dies_in_a_round_neither_loses_nor_repeats_an_action(
    scene: Scene, when: Any
) -> None:
    await scene.failed(40)
    scene.sick = set(range(0, 40, 2))
    bulk = await scene.app.bulk.start("resume", WORK, rate=10)
    for _ in range(2):  # a third in a row would be poison
        scene.engine.crash_at("act", when=when)
        await scene.engine.advance("7s")
    await scene.over(bulk)
    assert scene.engine.deaths > 0
    info = await bulk.info()
    assert (info.phase, info.counts.done, info.counts.changed) == ("done", 40, 0)
    assert set(scene.calls.values()) == {2}


async def test_a_worker_that_dies_between_two_actions_of_a_round_repeats_none(
    scene: Scene,
) -> None:
    await scene.failed(40)
    scene.sick = set(range(40))
    bulk = await scene.app.bulk.start("resume", WORK, rate=10)
    await scene.engine.advance(2)
    worker = scene.engine.worker
    assert worker is not None
    some = sum(count == 2 for count in scene.calls.values())
    assert 0 < some < 40
    scene.engine._kill(worker.name)
    await scene.over(bulk)
    assert set(scene.calls.values()) == {2}
    assert (await bulk.info()).counts.done == 40


async def test_it_can_be_stopped_within_about_a_second(scene: Scene) -> None:
    await scene.failed(100)
    bulk = await scene.app.bulk.start("resume", WORK, rate=10)
    await scene.engine.advance(2)
    await bulk.stop("wrong filter")
    done_then = 100 - (await scene.statuses())[Status.FAILED]
    await scene.engine.advance("1h")
    info = await bulk.info()
    assert (info.phase, info.reason, info.status) == ("stopped", "wrong filter", Status.CANCELLED)
    left = (await scene.statuses())[Status.FAILED]
    assert 100 - left <= done_then + 15
    assert (info.counts.done, info.left) == (100 - left, left), "what it did not get to"


async def test_it_can_be_paused_and_goes_on_where_it_was(scene: Scene) -> None:
    await scene.failed(60)
    bulk = await scene.app.bulk.start("resume", WORK, rate=10)
    await scene.engine.advance(2)
    await bulk.pause()
    await scene.engine.advance("1h")
    assert (await bulk.info()).phase == "paused"
    assert 0 < (await scene.statuses())[Status.FAILED] < 60
    await bulk.resume()
    await scene.over(bulk)
    assert (await bulk.info()).counts.done == 60
    assert set(scene.calls.values()) == {2}


async def test_the_audit_tells_who_started_it_and_what_it_did(scene: Scene) -> None:
    [handle] = await scene.failed(1)
    bulks = scene.app.bulk.acting_as("ada", "10.0.0.7")
    bulk = await bulks.start("discard", WORK, reason="never needed")
    await scene.over(bulk)
    entries = await scene.engine.store.admin.audits(limit=10)
    by_task = {entry.task_id: entry for entry in entries}
    start, acted = by_task[f"bulk:{bulk.id}"], by_task[handle.id]
    assert (start.command, start.by.actor, start.by.origin) == ("start discard", "ada", "10.0.0.7")
    assert (acted.command, acted.by.actor, acted.by.origin) == (
        "discard",
        f"bulk:{bulk.id}",
        "10.0.0.7",
    )
    assert acted.by.reason == f"bulk:{bulk.id} by ada: never needed"
    assert (await handle.info()).status is Status.CANCELLED


async def test_a_stop_is_written_down_about_the_action(scene: Scene) -> None:
    await scene.failed(1)
    bulk = await scene.app.bulk.acting_as("ada").start("resume", WORK)
    await (await scene.app.bulk.acting_as("bob").get(bulk.id)).stop("no")
    entries = await scene.engine.store.admin.audits(limit=10)
    [stop] = [e for e in entries if (e.task_id, e.command) == (f"bulk:{bulk.id}", "stop")]
    assert (stop.by.actor, stop.by.reason) == ("bob", "no")


async def test_a_preview_says_what_it_would_touch_and_writes_nothing(scene: Scene) -> None:
    await scene.failed(30)
    before = await scene.statuses()
    preview = await scene.app.bulk.preview("resume", WORK)
    assert (preview.matching, preview.more, preview.refused_now) == (30, False, 0)
    assert len(preview.sample) == 10
    assert await scene.statuses() == before
    assert (await scene.app.bulk.find()).bulks == ()


async def test_a_preview_counts_those_that_could_not_take_the_command_now(scene: Scene) -> None:
    scene.cured, scene.gate = True, Gate()
    handle = await scene.work.submit(1)
    await scene.work.submit(2)
    await scene.engine.advance(1)
    await handle.cancel()
    preview = await scene.app.bulk.preview("pause", WORK)
    assert (preview.matching, preview.refused_now) == (2, 1)
    scene.gate.open()


async def test_a_preview_looks_at_a_bounded_number_of_tasks(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.engine.bulk.rounds.PAGE", 5)
    monkeypatch.setattr("holdfast.engine.bulk.rounds.COUNT_LIMIT", 10)
    await scene.failed(12)
    preview = await scene.app.bulk.preview("resume", WORK)
    assert (preview.matching, preview.more) == (10, True)


async def test_an_empty_filter_is_refused_unless_everything_is_meant(scene: Scene) -> None:
    await scene.failed(2)
    with pytest.raises(InvalidInput, match="the filter is empty"):
        await scene.app.bulk.start("resume", Filter())
    with pytest.raises(InvalidInput, match="the filter is empty"):
        await scene.app.bulk.preview("resume", Filter())
    bulk = await scene.app.bulk.start("resume", Filter(), everything=True)
    await scene.over(bulk)
    assert (await bulk.info()).counts.done == 2


async def test_everything_does_not_mean_bulk_actions(scene: Scene) -> None:
    other = await scene.app.bulk.start("resume", WORK)
    await other.pause()
    await scene.engine.advance(1)
    bulk = await scene.app.bulk.start("cancel", Filter(), everything=True)
    await scene.over(bulk)
    assert (await bulk.info()).matching == 0
    assert (await other.info()).phase == "paused"


async def test_what_has_ended_is_touched_only_when_its_status_is_named(scene: Scene) -> None:
    scene.cured = True
    await scene.work.submit(1)
    await scene.engine.advance(1)
    bulk = await scene.app.bulk.start("rollback", WORK)
    await scene.over(bulk)
    assert await scene.statuses() == {Status.COMPLETED: 1}
    named = Filter(type="work", statuses=(Status.COMPLETED,))
    await scene.engine.advance(1)
    await scene.over(await scene.app.bulk.start("rollback", named))
    assert await scene.statuses() == {Status.ROLLED_BACK: 1}


async def test_resume_sets_paused_tasks_going_too(scene: Scene) -> None:
    scene.cured = True
    handle = await scene.work.submit(1)
    await handle.pause()
    await scene.engine.advance(1)
    await scene.over(await scene.app.bulk.start("resume", WORK))
    assert (await handle.info()).status is Status.COMPLETED


@pytest.mark.parametrize(
    ("command", "after"),
    [
        ("retry", Status.COMPLETED),
        ("discard", Status.CANCELLED),
        ("rollback", Status.ROLLED_BACK),
    ],
)
async def test_each_command_does_what_it_does_to_one_task(
    scene: Scene, command: str, after: Status
) -> None:
    await scene.failed(3)
    await scene.over(await scene.app.bulk.start(command, WORK))
    assert await scene.statuses() == {after: 3}


@pytest.mark.parametrize(
    ("command", "after"), [("pause", Status.PAUSED), ("cancel", Status.CANCELLED)]
)
async def test_what_waits_can_be_paused_and_cancelled(
    scene: Scene, command: str, after: Status
) -> None:
    scene.cured = True
    await scene.work.submit(1, queue="unserved")
    await scene.engine.advance(1)
    await scene.over(await scene.app.bulk.start(command, WORK))
    assert await scene.statuses() == {after: 1}


async def test_a_retry_from_scratch_is_one_for_each(scene: Scene) -> None:
    [handle] = await scene.failed(1)
    await scene.over(await scene.app.bulk.start("retry", WORK, from_checkpoint=False))
    events = (await detail_of(scene.engine, handle)).events
    [retried] = [event for event in events if isinstance(event, TaskRetried)]
    assert not retried.from_checkpoint


async def test_a_limit_is_kept(scene: Scene) -> None:
    await scene.failed(30)
    bulk = await scene.app.bulk.start("resume", WORK, limit=12, rate=1)
    await scene.over(bulk)
    assert await scene.statuses() == {Status.COMPLETED: 12, Status.FAILED: 18}
    info = await bulk.info()
    assert (info.counts.done, info.phase, info.left) == (12, "done", 0)


async def test_the_same_key_is_the_same_action(scene: Scene) -> None:
    await scene.failed(2)
    first = await scene.app.bulk.start("resume", WORK, key="k-1")
    await scene.engine.clock.elapse(5)
    assert (await scene.app.bulk.start("resume", WORK, key="k-1")).id == first.id
    with pytest.raises(KeyConflict):
        await scene.app.bulk.start("discard", WORK, key="k-1")


async def test_more_than_fit_into_one_round_are_all_acted_on(scene: Scene) -> None:
    many = 2 * CHUNK_LIMIT + 7
    await scene.failed(many)
    bulk = await scene.app.bulk.start("discard", WORK, rate=1000)
    await scene.over(bulk)
    assert (await bulk.info()).counts.done == many
    assert await scene.statuses() == {Status.CANCELLED: many}


async def test_they_are_listed_the_newest_first_in_pages(scene: Scene) -> None:
    bulks = list[BulkHandle]()
    for _ in range(3):
        await scene.engine.clock.elapse(1)
        bulks.append(await scene.app.bulk.start("resume", WORK))
    page = await scene.app.bulk.find(limit=2)
    assert [one.id for one in page.bulks] == [bulks[2].id, bulks[1].id]
    rest = await scene.app.bulk.find(limit=2, cursor=page.cursor)
    assert [one.id for one in rest.bulks] == [bulks[0].id]


async def test_another_task_is_no_bulk_action(scene: Scene) -> None:
    handle = await scene.work.submit(1)
    for task_id in (handle.id, "nobody"):
        with pytest.raises(BulkNotFound, match="no bulk action"):
            await scene.app.bulk.get(task_id)


async def test_a_worker_serves_its_queue_whatever_queues_it_was_given(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    engine = holdfast_engine(app)
    async with app:
        worker = app.worker(queues=("mail",), heartbeat_thread=False)
    assert worker._describe().queues == ("holdfast", "holdfast.deliveries", "mail")
    assert "holdfast.bulk" in worker._describe().types
    assert engine.app.registry.names() == ()


def test_the_engine_keeps_the_names_of_its_own_types(app: Holdfast) -> None:
    with pytest.raises(DeclarationError, match="the engine's"):

        @app.task("holdfast.mine")
        async def mine(ctx: Context) -> None: ...


@pytest.mark.parametrize(
    "terms",
    [
        {"rate": 0.5},
        {"rate": 1001},
        {"rate": float("nan")},
        {"limit": 0},
        {"where": Filter(type="no good")},
        {"where": Filter(statuses=(Status.COMPLETED,))},
        {"command": "explode"},
    ],
)
async def test_an_order_that_makes_no_sense_is_refused(scene: Scene, terms: dict[str, Any]) -> None:
    order: dict[str, Any] = {"command": BulkCommand.RESUME, "where": WORK} | terms
    with pytest.raises(InvalidInput):
        await scene.app.bulk.start(**order)
    assert (await scene.app.bulk.find()).bulks == ()


async def test_one_can_wait_for_its_end(scene: Scene) -> None:
    await scene.failed(2)
    bulk = await scene.app.bulk.start("resume", WORK)
    await scene.over(bulk)
    assert (await bulk.wait("1s")).phase == "done"


def test_it_has_a_face_without_an_event_loop(app: Holdfast) -> None:
    @app.task("work")
    def work(ctx: Context) -> None:
        raise Permanent("no luck")

    with app.blocking.running(workers=1) as face:
        handle = face.submit(work)
        with pytest.raises(TaskFailed):
            handle.result(BOUND_SECONDS)
        bulks = face.bulk.acting_as("ada")
        assert bulks.preview("discard", WORK).matching == 1
        bulk = bulks.start("discard", WORK, reason="no use")
        assert bulk.wait(BOUND_SECONDS).phase == "done"
        assert face.bulk.get(bulk.id).info().counts.done == 1
        assert [one.id for one in face.bulk.find().bulks] == [bulk.id]
        assert handle.info().status is Status.CANCELLED
