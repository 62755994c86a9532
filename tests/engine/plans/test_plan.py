"""`app.plan(...)`: what it takes, what it refuses, and what it tells."""

import asyncio
from typing import Any

import pytest

from holdfast import Context, FailureCount, FailureRate, Holdfast, PlanStatus, Status
from holdfast.domain.plan.events import PlanCancelRequested, name_of
from holdfast.domain.plan.plan import MemberState
from holdfast.engine.declare import Workflow
from holdfast.engine.plans.create import Planned
from holdfast.engine.plans.handle import ends_in_seconds
from holdfast.errors import (
    IllegalTransition,
    InvalidInput,
    InvalidName,
    InvalidPlan,
    PlanConflict,
    PlanNotFound,
    QueueFull,
    ResultTimeout,
    StoreUnavailable,
    TenantsBusy,
)
from holdfast.ports import Filter
from holdfast.stores.memory import MemoryStore
from holdfast.testing import Engine, ManualClock
from holdfast.testing.plugin import MakeEngine
from holdfast.types import PlanCommand
from tests.support.plan_records import members, plan, with_members
from tests.support.runtime.helpers import FlakyStore

M = MemberState


class Bench:
    def __init__(self, app: Holdfast, make: MakeEngine) -> None:
        self.app = app
        self.ran: list[str] = []
        self.fails: set[str] = set()
        self.flow: Workflow[str, Any] = app.workflow("upgrade", payload=str)

        @self.flow.stage
        async def work(ctx: Context, tenant: str) -> None:
            self.ran.append(tenant)

        self.clock = ManualClock()
        self.store = FlakyStore(MemoryStore(self.clock))
        self.engine: Engine = make(app, store=self.store, clock=self.clock, patience=None)

    def on(self, *tenants: str) -> list[Planned]:
        return [self.flow.on(tenant, tenant=tenant) for tenant in tenants]

    async def tasks_there(self) -> int:
        return len((await self.app.store.views.find(Filter(), limit=1000)).tasks)


@pytest.fixture
def bench(app: Holdfast, holdfast_engine: MakeEngine) -> Bench:
    return Bench(app, holdfast_engine)


async def test_a_plan_is_kept_with_its_tasks_held_until_a_driver_comes(bench: Bench) -> None:
    handle = await bench.app.plan("upgrade-7", bench.on("t1", "t2"))
    info = await handle.info()
    assert (info.id, info.status, info.total) == ("upgrade-7", PlanStatus.READY, 2)
    tasks = await handle.tasks()
    assert [(await task.info()).status for task in tasks] == [Status.CREATED] * 2
    detail = await bench.app.store.views.detail(tasks[0].id)
    assert detail is not None
    assert (detail.task.plan, detail.task.tenant) == ("upgrade-7", "t1")
    await bench.engine.start()
    await bench.clock.elapse(5)
    assert (await handle.wait(1)).status is PlanStatus.COMPLETED
    assert sorted(bench.ran) == ["t1", "t2"]


async def test_the_same_plan_made_twice_is_one(bench: Bench) -> None:
    terms: dict[str, Any] = {"max_concurrency": 1, "waves": ("1", "100%"), "soak": "1m"}
    first = await bench.app.plan("p", bench.on("t1", "t2"), **terms)
    bench.clock.advance("1h")
    again = await bench.app.plan("p", bench.on("t1", "t2"), **terms)
    assert again.id == first.id
    assert await bench.tasks_there() == 2
    assert len(await first.events()) == 2
    await bench.engine.start()
    await bench.clock.elapse("2m")
    await bench.app.plan("p", bench.on("t1", "t2"), **terms)
    assert bench.ran == ["t1", "t2"]


@pytest.mark.parametrize(
    ("tenants", "terms"),
    [
        (("t1", "t3"), {}),
        (("t2", "t1"), {}),
        (("t1", "t2", "t3"), {}),
        (("t1", "t2"), {"max_concurrency": 1}),
        (("t1", "t2"), {"waves": ("1", "100%")}),
        (("t1", "t2"), {"soak": 5}),
        (("t1", "t2"), {"halt_on": FailureCount(1)}),
        (("t1", "t2"), {"on_halt": "rollback"}),
        (("t1", "t2"), {"conflict": "skip"}),
    ],
)
async def test_the_same_id_with_other_tasks_or_terms_is_a_conflict(
    bench: Bench, tenants: tuple[str, ...], terms: Any
) -> None:
    await bench.app.plan("p", bench.on("t1", "t2"))
    with pytest.raises(PlanConflict, match="p"):
        await bench.app.plan("p", bench.on(*tenants), **terms)
    assert await bench.tasks_there() == 2


async def test_another_payload_is_a_conflict_too(bench: Bench) -> None:
    await bench.app.plan("p", [bench.flow.on("7", tenant="t1")])
    with pytest.raises(PlanConflict):
        await bench.app.plan("p", [bench.flow.on("8", tenant="t1")])


async def test_a_creation_that_was_cut_off_is_finished_by_the_same_call(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.engine.plans.create.PART", 1)
    tasks = bench.on("t1", "t2", "t3")
    for cut_at in (1, 2):
        cut_off(bench, monkeypatch, after=cut_at)
        with pytest.raises(StoreUnavailable):
            await bench.app.plan("p", tasks)
        assert await bench.tasks_there() == cut_at
        info = await bench.app.plan.get("p").info()
        assert info.status is PlanStatus.CREATED, "nobody starts it half made"
        monkeypatch.undo()
        monkeypatch.setattr("holdfast.engine.plans.create.PART", 1)
    handle = await bench.app.plan("p", tasks)
    assert await bench.tasks_there() == 3
    assert (await handle.info()).status is PlanStatus.READY


def cut_off(bench: Bench, monkeypatch: pytest.MonkeyPatch, *, after: int) -> None:
    tasks = bench.app.store.tasks
    insert, calls = tasks.insert, iter(range(100))

    async def cut(*arguments: Any, **options: Any) -> Any:
        if next(calls) >= after:
            raise StoreUnavailable("nobody answers")
        return await insert(*arguments, **options)

    monkeypatch.setattr(tasks, "insert", cut)


async def test_a_plan_whose_making_was_cut_off_can_be_cancelled(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.engine.plans.create.PART", 1)
    cut_off(bench, monkeypatch, after=1)
    with pytest.raises(StoreUnavailable):
        await bench.app.plan("p", bench.on("t1", "t2"))
    monkeypatch.undo()
    handle = bench.app.plan.get("p")
    await handle.cancel()
    await bench.engine.start()
    await bench.clock.elapse(10)
    assert (await handle.info()).status is PlanStatus.CANCELLED
    again = await bench.app.plan("p", bench.on("t1", "t2"))
    assert (await again.info()).status is PlanStatus.CANCELLED
    assert await bench.tasks_there() == 1, "nothing is put in behind a cancel"


async def test_what_goes_in_while_the_plan_is_cancelled_is_cancelled_too(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.engine.plans.create.PART", 1)
    tasks = bench.app.store.tasks
    insert = tasks.insert

    async def meanwhile(*arguments: Any, **options: Any) -> Any:
        answer = await insert(*arguments, **options)
        if await bench.tasks_there() == 1:
            await bench.app.plan.get("p").cancel()
            await bench.engine.start()
            await bench.clock.elapse(10)
            assert (await bench.app.plan.get("p").info()).status is PlanStatus.CANCELLED
        return answer

    monkeypatch.setattr(tasks, "insert", meanwhile)
    handle = await bench.app.plan("p", bench.on("t1", "t2", "t3"))
    assert [(await task.info()).status for task in await handle.tasks()] == [Status.CANCELLED] * 3


async def test_a_full_queue_refuses_the_plan_which_can_be_made_later(
    holdfast_engine: MakeEngine,
) -> None:
    bench = Bench(Holdfast("memory://", queue_limit=1), holdfast_engine)
    await bench.flow.submit("t0", tenant="t0")
    with pytest.raises(QueueFull):
        await bench.app.plan("p", bench.on("t1"))
    await bench.engine.drain()
    handle = await bench.app.plan("p", bench.on("t1"))
    assert (await handle.info()).status is PlanStatus.READY


@pytest.mark.parametrize(
    ("terms", "says"),
    [
        ({"max_concurrency": -1}, "at least 1"),
        ({"max_concurrency": 0}, "at least 1"),
        ({"max_concurrency": True}, "at least 1"),
        ({"max_concurrency": 2.5}, "at least 1"),
        ({"waves": ("50%", "5%", "100%")}, "rise"),
        ({"waves": ("1", "50%")}, "leaves"),
        ({"waves": ()}, "list"),
        ({"waves": None}, "list"),
        ({"soak": "-5m"}, "duration"),
        ({"soak": "soon"}, "duration"),
        ({"soak": -1}, "duration"),
        ({"keep": -1}, "duration"),
        ({"on_halt": "explode"}, "pause, rollback, rollback-plan"),
        ({"conflict": "fight"}, "wait, skip, reject"),
        ({"halt_on": 0.05}, "FailureRate"),
        ({"halt_on": FailureRate(5)}, "between 0 and 1"),
        ({"halt_on": FailureRate(-0.1)}, "between 0 and 1"),
        ({"halt_on": FailureRate(float("nan"))}, "between 0 and 1"),
        ({"halt_on": FailureCount(-1)}, "at least 0"),
        ({"max_concurency": 5}, "no such option: max_concurency"),
    ],
)
@pytest.mark.parametrize("verb", ["make", "preview"])
async def test_bad_terms_are_refused_with_the_reason(
    bench: Bench, terms: Any, says: str, verb: str
) -> None:
    call: Any = bench.app.plan if verb == "make" else bench.app.plan.preview
    with pytest.raises(InvalidInput, match=says):
        await call("p", bench.on("t1", "t2"), **terms)
    assert await bench.tasks_there() == 0
    assert [plan async for plan in bench.app.plan.find()] == []


async def test_bad_tasks_are_refused_with_the_reason(bench: Bench) -> None:
    with pytest.raises(InvalidPlan, match="1 to 100000 tasks, not 0"):
        await bench.app.plan("p", [])
    with pytest.raises(InvalidPlan, match="more than once: t1 "):
        await bench.app.plan("p", bench.on("t1", "t2", "t1"))
    wrong: Any = ["t1"]
    with pytest.raises(InvalidPlan, match=r"'t1' is not a task of a plan: make it with \.on"):
        await bench.app.plan("p", wrong)
    with pytest.raises(InvalidName):
        await bench.app.plan("../p", bench.on("t1"))
    assert await bench.tasks_there() == 0
    for none in ([None], [""]):
        with pytest.raises(InvalidPlan, match="is not a task of a plan"):
            await bench.app.plan("p", none)  # type: ignore[arg-type]
    with pytest.raises(InvalidPlan, match="a list, not generator"):
        await bench.app.plan("p", (one for one in bench.on("t1")))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "rule",
    [FailureRate("5%"), FailureRate(True), FailureCount(1.5), FailureCount(-1)],  # type: ignore[arg-type]
)
async def test_a_rule_that_is_no_number_is_refused(bench: Bench, rule: Any) -> None:
    with pytest.raises(InvalidPlan, match="Failure"):
        await bench.app.plan("p", bench.on("t1"), halt_on=rule)


async def test_what_may_be_asked_can_be_known_before(bench: Bench) -> None:
    await bench.app.plan("p", bench.on("t1"))
    assert await bench.app.plan.control.can("p", PlanCommand.PAUSE)
    assert not await bench.app.plan.control.can("p", PlanCommand.RETRY)
    with pytest.raises(PlanNotFound):
        await bench.app.plan.control.can("q", PlanCommand.PAUSE)


async def test_a_tenant_may_stand_in_a_plan_twice_if_that_is_said(bench: Bench) -> None:
    handle = await bench.app.plan("p", bench.on("t1", "t1"), repeat_tenants=True)
    await bench.engine.start()
    await bench.clock.elapse(10)
    assert (await handle.info()).status is PlanStatus.COMPLETED
    assert bench.ran == ["t1", "t1"]


async def test_tasks_without_tenants_are_no_conflict(bench: Bench) -> None:
    tasks = [bench.flow.on("x"), bench.flow.on("y")]
    handle = await bench.app.plan("p", tasks, conflict="reject")
    assert (await handle.info()).total == 2


async def test_a_conflict_may_refuse_the_plan_and_lists_the_tenants(bench: Bench) -> None:
    for tenant in ("t3", "t1"):
        await bench.flow.submit(tenant, tenant=tenant)
    with pytest.raises(TenantsBusy, match="t1, t3") as caught:
        await bench.app.plan("p", bench.on("t1", "t2", "t3"), conflict="reject")
    assert list(caught.value.tenants) == ["t1", "t3"]
    with pytest.raises(PlanNotFound):
        await bench.app.plan.get("p").info()
    await bench.engine.drain()
    handle = await bench.app.plan("p", bench.on("t1", "t2", "t3"), conflict="reject")
    assert (await handle.info()).status is PlanStatus.READY


async def test_a_plan_that_rejects_is_not_in_its_own_way_when_it_is_made_again(
    bench: Bench,
) -> None:
    handle = await bench.app.plan("p", bench.on("t1"), conflict="reject")
    [task] = await handle.tasks()
    await bench.app.control.release(task.id)
    assert (await bench.app.plan("p", bench.on("t1"), conflict="reject")).id == "p"


async def test_with_waves_one_failure_halts_unless_it_is_said_otherwise(bench: Bench) -> None:
    await bench.app.plan("a", bench.on("t1", "t2"), waves=("1", "100%"))
    await bench.app.plan("b", bench.on("t1", "t2"))
    await bench.app.plan("c", bench.on("t1", "t2"), waves=("1", "100%"), halt_on=None)
    found = await bench.app.store.plans.load(["a", "b", "c"])
    assert [one and one.halt_on for one in found] == [FailureRate(0.0), None, None]


async def test_a_preview_tells_and_writes_nothing(bench: Bench) -> None:
    await bench.flow.submit("t2", tenant="t2")
    tasks = bench.on("t1", "t2", "t3")
    bench.store.calls.clear()
    preview = await bench.app.plan.preview("p", tasks, waves=("1", "100%"))
    assert [(wave.number, wave.tenants) for wave in preview.waves] == [
        (1, ("t1",)),
        (2, ("t2", "t3")),
    ]
    assert (preview.id, preview.total, preview.busy, preview.exists) == ("p", 3, ("t2",), None)
    assert set(bench.store.calls) <= {"tenants", "load", "switches"}  # a held tenant is busy
    with pytest.raises(PlanNotFound):
        await bench.app.plan.get("p").info()
    await bench.app.plan("p", tasks)
    assert (await bench.app.plan.preview("p", tasks)).exists is PlanStatus.READY


async def test_the_info_tells_where_it_stands(bench: Bench) -> None:
    terms: dict[str, Any] = {"waves": ("1", "100%"), "soak": "10m", "max_concurrency": 2}
    handle = await bench.app.plan("p", bench.on("t1", "t2", "t3"), **terms)
    worker = await bench.engine.start()
    await bench.clock.elapse("1m")
    info = await handle.info()
    assert (info.status, info.wave, info.max_concurrency) == (PlanStatus.RUNNING, 1, 2)
    assert [(wave.size, wave.counts) for wave in info.waves] == [
        (1, {M.COMPLETED: 1}),
        (2, {M.WAITING: 2}),
    ]
    assert info.progress == pytest.approx(1 / 3)
    assert 530 < info.soak_seconds_left < 541
    assert info.legal == (PlanCommand.PAUSE, PlanCommand.CANCEL, PlanCommand.ROLLBACK)
    assert (info.cancel_requested, info.reason, info.driver) == (False, None, None)
    assert info.count(M.COMPLETED, M.WAITING) == 3
    assert info.created_at <= (info.started_at or 0) <= info.updated_at
    await handle.pause("lunch")
    info = await bench.app.query.query_plan_status("p")
    assert (info.status, info.reason) == (PlanStatus.PAUSED, "lunch")
    assert worker.running == 0


def test_the_end_is_estimated_from_the_pace_and_the_soaks_to_come() -> None:
    there = members(M.COMPLETED, M.COMPLETED)
    record = with_members(plan(waves=(1, 2, 4), soak_seconds=100.0, wave=1), there)
    at = record.started_at or 0.0
    worked = at + 100.0 + 40.0  # one soak is behind it
    assert ends_in_seconds(record, worked) == pytest.approx(2 * 20.0 + 100.0)
    assert ends_in_seconds(plan(), at + 50) is None, "nothing has ended"
    assert ends_in_seconds(with_members(plan(PlanStatus.PAUSED), there), worked) is None


def test_a_soak_that_has_begun_counts_by_what_is_left_of_it() -> None:
    there = members(M.COMPLETED)
    at = plan().created_at
    record = with_members(plan(waves=(1, 2), soak_seconds=100.0, soaks_since=at + 10), there)
    assert ends_in_seconds(record, at + 10) == pytest.approx(10.0 + 100.0)


async def test_events_come_in_order_and_in_pages(bench: Bench) -> None:
    handle = await bench.app.plan("p", bench.on("t1"))
    await bench.engine.start()
    await bench.clock.elapse(5)
    events = await handle.events()
    assert [event.version for event in events] == sorted(event.version for event in events)
    kinds = [name_of(event) for event in events]
    assert kinds[:4] == ["PlanCreated", "PlanReady", "PlanStarted", "WaveStarted"]
    assert kinds[-1] == "PlanCompleted"
    assert await handle.events(after_version=events[-1].version) == []
    first = await handle.events(limit=1)
    rest = await handle.events(after_version=first[-1].version)
    assert [*first, *rest] == list(events)


async def test_plans_are_found_newest_first_and_by_status(bench: Bench) -> None:
    for number in range(3):
        await bench.app.plan(f"p{number}", bench.on(f"t{number}"))
        bench.clock.advance(1)
    await bench.app.plan.get("p1").pause()
    assert [one.id async for one in bench.app.plan.find()] == ["p2", "p1", "p0"]
    assert [one.id async for one in bench.app.plan.find(limit=2)] == ["p2", "p1"]
    paused = [one.id async for one in bench.app.plan.find(PlanStatus.PAUSED)]
    assert paused == ["p1"]


async def test_who_asks_is_written_down_and_so_is_a_refusal(bench: Bench) -> None:
    await bench.app.plan("p", bench.on("t1"))
    handle = bench.app.plan.acting_as("ada", "desk").get("p")
    await handle.cancel("not today")
    [event] = [e for e in await handle.events() if isinstance(e, PlanCancelRequested)]
    assert (event.by.actor, event.by.origin, event.by.reason) == ("ada", "desk", "not today")
    with pytest.raises(IllegalTransition):
        await handle.pause()
    refused, asked = await bench.app.store.admin.audits(limit=10)
    assert (asked.task_id, asked.command, asked.refused) == ("plan:p", "cancel", None)
    assert (refused.command, refused.refused, refused.by.actor) == (
        "pause",
        IllegalTransition.code,
        "ada",
    )


@pytest.mark.parametrize("ask", ["info", "tasks", "pause", "resume", "cancel", "retry", "rollback"])
async def test_a_plan_that_is_not_there_is_not_found(bench: Bench, ask: str) -> None:
    with pytest.raises(PlanNotFound, match="nowhere"):
        await getattr(bench.app.plan.get("nowhere"), ask)()
    with pytest.raises(PlanNotFound):
        await bench.app.query.query_plan_status("nowhere")


async def test_waiting_for_a_plan_has_an_end(bench: Bench) -> None:
    handle = await bench.app.plan("p", bench.on("t1"))
    waiting = asyncio.create_task(handle.wait("5s"))
    await bench.clock.elapse(6)
    with pytest.raises(ResultTimeout):
        await waiting
