"""A canary: one first, then ten, then the rest, and no further when they fail again."""

import pytest

from holdfast import FailureCount, FailureRate, Holdfast
from holdfast.domain.bulk import WINDOW_LIMIT, Canary
from holdfast.errors import InvalidInput
from holdfast.testing.plugin import MakeEngine
from tests.engine.bulk.test_bulk import WORK, Scene
from tests.support.runtime.helpers import Gate


@pytest.fixture
def scene(app: Holdfast, holdfast_engine: MakeEngine) -> Scene:
    return Scene(app, holdfast_engine)


def going(scene: Scene) -> int:
    return sum(count == 2 for count in scene.calls.values())


async def test_it_takes_one_then_ten_then_the_rest(scene: Scene) -> None:
    await scene.failed(50)
    scene.gate = Gate()
    bulk = await scene.app.bulk.start("resume", WORK, canary=Canary(), rate=1000)
    await scene.engine.advance("1m")
    assert going(scene) == 1
    assert (await bulk.info()).phase == "canary 1"
    scene.gate.open()
    scene.gate = Gate()
    await scene.engine.advance("1m")
    assert going(scene) == 11
    assert (await bulk.info()).phase == "canary 10"
    scene.gate.open()
    scene.gate = Gate()
    await scene.engine.advance("1m")
    assert going(scene) == 50
    assert (await bulk.info()).phase == "rest"
    assert (await bulk.info()).unknown == 39
    scene.gate.open()
    await scene.over(bulk)
    info = await bulk.info()
    assert (info.phase, info.counts.done, info.counts.ended) == ("done", 50, 50)
    assert (info.counts.failed, info.unknown) == (0, 0)


async def test_it_halts_at_the_first_when_that_fails_again(scene: Scene) -> None:
    await scene.failed(50)
    scene.sick = set(range(50))
    bulk = await scene.app.bulk.start("resume", WORK, canary=Canary())
    await scene.over(bulk)
    info = await bulk.info()
    assert (info.phase, info.reason) == ("halted", "1 of 1 have failed again")
    assert (info.counts.done, info.counts.failed) == (1, 1)
    assert going(scene) == 1


@pytest.mark.parametrize(
    ("rule", "sick", "halts"),
    [
        (FailureRate(0.2), 2, False),  # 2 of 11
        (FailureRate(0.2), 3, True),
        (FailureCount(3), 3, False),
        (FailureCount(2), 3, True),
    ],
)
async def test_it_halts_when_failures_pass_the_threshold(
    scene: Scene, rule: FailureRate | FailureCount, sick: int, halts: bool
) -> None:
    handles = await scene.failed(30)
    newest = sorted(range(30), key=lambda n: handles[n].id, reverse=True)
    scene.sick = set(newest[1 : 1 + sick])
    bulk = await scene.app.bulk.start("resume", WORK, canary=Canary(stop_at=rule))
    await scene.over(bulk)
    info = await bulk.info()
    assert info.phase == ("halted" if halts else "done")
    assert info.counts.done == (11 if halts else 30)


async def test_it_halts_in_the_rest_too(scene: Scene) -> None:
    handles = await scene.failed(200)
    newest = sorted(range(200), key=lambda n: handles[n].id, reverse=True)
    scene.sick = set(newest[11:])
    bulk = await scene.app.bulk.start("resume", WORK, canary=Canary(), rate=5)
    await scene.over(bulk)
    info = await bulk.info()
    assert info.phase == "halted"
    assert going(scene) < 60


async def test_it_halts_when_those_of_a_step_do_not_come_to_rest(scene: Scene) -> None:
    await scene.failed(5)
    scene.gate = Gate()
    canary = Canary(wait_seconds=60)
    bulk = await scene.app.bulk.start("resume", WORK, canary=canary)
    await scene.engine.advance("50s")
    assert (await bulk.info()).phase == "canary 1"
    await scene.engine.advance("60s")
    info = await bulk.info()
    assert (info.phase, info.reason) == (
        "halted",
        "tasks that have neither settled nor parked within 60 s: 1",
    )
    assert going(scene) == 1
    scene.gate.open()


async def test_it_waits_for_the_last_ones_but_not_for_ever(scene: Scene) -> None:
    await scene.failed(3)
    canary = Canary(steps=(1,), wait_seconds=60)
    bulk = await scene.app.bulk.start("resume", WORK, canary=canary, rate=1)
    await scene.engine.advance("0.5s")
    scene.gate = Gate()
    await scene.engine.advance("30s")
    info = await bulk.info()
    assert (info.phase, info.unknown) == ("rest", 2)
    await scene.engine.advance("2m")
    info = await bulk.info()
    assert (info.phase, info.counts.done, info.unknown) == ("done", 3, 2)
    scene.gate.open()


async def test_no_more_than_its_window_are_under_way(scene: Scene) -> None:
    await scene.failed(40)
    canary = Canary(steps=(1,), window=8)
    bulk = await scene.app.bulk.start("resume", WORK, canary=canary, rate=1000)
    scene.gate = Gate()
    first = scene.gate
    await scene.engine.advance("1m")
    first.open()
    scene.gate = Gate()
    await scene.engine.advance("1m")
    assert going(scene) == 1 + 8
    assert (await bulk.info()).unknown == 8
    scene.gate.open()
    scene.gate = None
    await scene.over(bulk)
    assert (await bulk.info()).counts.ended == 40


async def test_a_halt_is_written_down(scene: Scene) -> None:
    await scene.failed(5)
    scene.sick = set(range(5))
    bulk = await scene.app.bulk.start("resume", WORK, canary=Canary())
    await scene.over(bulk)
    entries = await scene.engine.store.admin.audits(limit=10)
    [halt] = [entry for entry in entries if entry.command == "halt"]
    assert (halt.task_id, halt.by.reason) == (f"bulk:{bulk.id}", "1 of 1 have failed again")


@pytest.mark.parametrize("when", ["before", "after", "commit"])
async def test_a_crash_in_each_round_of_a_canary_changes_nothing_of_it(
    scene: Scene, when: str
) -> None:
    await scene.failed(40)
    bulk = await scene.app.bulk.start("resume", WORK, canary=Canary(wait_seconds=7200))
    for _ in range(8):
        scene.engine.crash_at("act", when=when)  # type: ignore[arg-type]
        await scene.engine.advance("40s")
    scene.engine.crashing.crashes.clear()
    await scene.over(bulk)
    info = await bulk.info()
    assert (info.phase, info.counts.done, info.counts.ended) == ("done", 40, 40)
    assert set(scene.calls.values()) == {2}


@pytest.mark.parametrize(
    "canary",
    [
        Canary(steps=()),
        Canary(steps=(0,)),
        Canary(steps=(WINDOW_LIMIT + 1,)),
        Canary(steps=(1,) * 11),
        Canary(window=0),
        Canary(window=WINDOW_LIMIT + 1),
        Canary(wait_seconds=0),
        Canary(stop_at=FailureRate(1.0)),
        Canary(stop_at=FailureRate(-0.1)),
        Canary(stop_at=FailureCount(-1)),
    ],
)
async def test_a_canary_that_makes_no_sense_is_refused(scene: Scene, canary: Canary) -> None:
    with pytest.raises(InvalidInput):
        await scene.app.bulk.start("resume", WORK, canary=canary)


async def test_a_canary_is_for_what_sets_going(scene: Scene) -> None:
    with pytest.raises(InvalidInput, match="resume and retry, not for discard"):
        await scene.app.bulk.start("discard", WORK, canary=Canary())
