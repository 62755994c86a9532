"""The simulated user's code: task types, and stages that fail in every way that stages fail."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

from holdfast import Context, Holdfast, Permanent, Retry, RetryAfter, Snooze
from holdfast.domain.errors import NoResult
from holdfast.domain.task.outage import OUTAGES
from holdfast.engine.declare import Stage, Submittable
from holdfast.runtime.deadlines import sleep
from holdfast.runtime.worker.threads import _until_done
from verify.simulation.checks.book import Invocation
from verify.simulation.checks.ledger import InvocationLedger
from verify.simulation.deploys import RESTARTING, has_undo, stage_names
from verify.simulation.loop import Process
from verify.simulation.stores.watched_tasks import STAGE_TIMEOUT_SECONDS

RETRY = Retry(max=3, backoff=(0.5, 2.0), jitter=0.2)
LONG_SECONDS = 1_000.0
POISONED = 8  # one order in so many kills its process again and again


class WorkNumber(msgspec.Struct, frozen=True):
    number: int


class Effect(msgspec.Struct, frozen=True):
    by: str  # the effect's key


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A task type: how many stages it has, and what is special about it."""

    name: str
    stages: int = 1
    hold: bool | None = None
    keep: str | None = None
    queue: str = "default"
    plain: bool = False
    undo: bool = True
    rare: bool = False  # not every worker knows it

    @property
    def restarts(self) -> bool:
        return self.name in RESTARTING


SHAPES = (
    Shape(name="one.open"),
    Shape(name="one.held", hold=True),
    Shape(name="one.plain", plain=True),
    Shape(name="one.gone", keep="0"),
    Shape(name="one.short", keep="10s"),
    Shape(name="one.rare", rare=True),
    Shape(name="one.bulk", queue="bulk"),
    *(Shape(name=f"flow.{n}", stages=n) for n in range(2, 7)),
    Shape(name="flow.open", stages=3, hold=False),
    Shape(name="flow.plain", stages=3, plain=True),
    Shape(name="flow.no-undo", stages=3, undo=False),
    Shape(name="flow.rare", stages=2, rare=True),
    Shape(name="flow.gone", stages=2, keep="0"),
)
QUEUES = ("default", "bulk")
OF_A_STAGE = {
    "ctx": Context,
    "order": WorkNumber,
    "return": Effect,
}  # annotations that each process reads when it declares the types


@dataclass(slots=True, kw_only=True)
class Trouble:
    """The probability that a stage goes wrong; all zero once the world is calm."""

    fails: float
    kills: float
    slow: float
    chance: random.Random
    happened: Callable[[str], None]
    is_away: Callable[[], bool] = lambda: False  # what odd orders need

    def draw(self, order: WorkNumber, *, plain: bool) -> str:
        if order.number % 2 and self.is_away():
            return "outage"
        kills = self.kills
        if kills and order.number % POISONED == 0:
            kills = 0.9
        if self.chance.random() < kills:
            return "kill"
        if self.chance.random() >= self.fails:
            return "slow" if self.chance.random() < self.slow else "none"
        kinds = ["error", "error", "error", "permanent", "later", "snooze", "snooze"]
        return self.chance.choice(kinds if plain else [*kinds, "hang", "stubborn", "own cancel"])


class Code:
    """The user's code as one process has it."""

    def __init__(
        self,
        process: Process,
        ledger: InvocationLedger,
        trouble: Trouble,
        crash: Callable[[], None],
        *,
        deploy: int = 0,
        max_age_seconds: float = 7 * 86_400.0,
    ) -> None:
        self._process = process
        self._ledger = ledger
        self._trouble = trouble
        self._crash = crash
        self._deploy = deploy
        self._max_age = max_age_seconds

    def declare(self, app: Holdfast, shape: Shape) -> Submittable[WorkNumber, Effect]:
        if shape.stages == 1:
            call = self._plain(undo=False) if shape.plain else self._stage([], undo=False)
            task: Submittable[WorkNumber, Effect] = app.task(
                shape.name,
                retry=RETRY,
                timeout=STAGE_TIMEOUT_SECONDS,
                hold=bool(shape.hold),
                keep=shape.keep,
                queue=shape.queue,
            )(call)
            return task
        flow = app.workflow(
            shape.name,
            payload=WorkNumber,
            result=Effect,
            retry=RETRY,
            hold=shape.hold is not False,
            queue=shape.queue,
            on_invalid="restart" if shape.restarts else "suspend",
            effects="task",
            **({"checkpoint_max_age": self._max_age} if shape.restarts else {}),
            **({"keep": shape.keep} if shape.keep else {}),
        )
        before: list[Stage[WorkNumber, Effect]] = []
        for name in stage_names(shape.name, shape.stages, self._deploy):
            call = self._plain(undo=False) if shape.plain else self._stage(before, undo=False)
            stage = flow.stage(name=name, timeout=STAGE_TIMEOUT_SECONDS)(call)
            if shape.undo and has_undo(shape.name, name, self._deploy):
                stage.undo(self._plain(undo=True) if shape.plain else self._stage([], undo=True))
            before = [*before, stage]
        return flow

    def _stage(self, before: list[Stage[WorkNumber, Effect]], *, undo: bool) -> Callable[..., Any]:
        async def stage(ctx: Context, order: WorkNumber) -> Effect:
            run = self._ledger.begin(self._process, ctx, undo=undo)
            try:
                self._ledger.check_data(run, ctx)
                self._find_results(ctx, before)
                await self._work(run, ctx, order)
                return self._finish(run, ctx)
            finally:
                self._ledger.end(run)

        stage.__annotations__ = OF_A_STAGE
        return stage

    def _plain(self, *, undo: bool) -> Callable[..., Any]:
        """Return a plain function; the simulated threads let time pass for it."""

        def stage(ctx: Context, order: WorkNumber) -> Effect:
            run = self._ledger.begin(self._process, ctx, undo=undo)
            run.stubborn = True
            try:
                self._ledger.check_data(run, ctx)
                ctx.data["torn"] = True
                trouble = self._trouble.draw(order, plain=True)
                if trouble == "kill":
                    self._crash()
                self._go_wrong(trouble, ctx)
                return self._finish(run, ctx)
            finally:
                self._ledger.end(run)

        stage.__annotations__ = OF_A_STAGE
        return stage

    def _find_results(self, ctx: Context, before: list[Stage[WorkNumber, Effect]]) -> None:
        epoch = ctx.key.split("/")[1]
        for stage in before:
            try:
                made = ctx.result_of(stage)
            except NoResult:
                made = Effect(by="nobody")
            if made.by != f"{ctx.task_id}/{epoch}/{stage.name}":
                self._ledger.report_wrong(ctx, f"the result of {stage.name} is by {made.by}")

    async def _work(self, run: Invocation, ctx: Context, order: WorkNumber) -> None:
        chance = self._trouble.chance
        ctx.data["torn"] = True
        trouble = self._trouble.draw(order, plain=False)
        for step in range(chance.randint(0, 2)):
            await self._pass(run, chance.random() * 0.5)
            ctx.progress(step / 2, "on the way")
        match trouble:
            case "slow":
                self._trouble.happened(trouble)
                for _ in range(10):
                    await self._pass(run, chance.uniform(0.5, 1) * STAGE_TIMEOUT_SECONDS / 12)
            case "hang":
                self._trouble.happened(trouble)
                await self._pass(run, LONG_SECONDS)
            case "stubborn":
                self._trouble.happened(trouble)
                run.stubborn = True
                await self._stubbornly(run)
            case "own cancel":
                self._trouble.happened(trouble)
                raise asyncio.CancelledError
            case "kill":
                self._trouble.happened(trouble)
                self._crash()
                await self._pass(run, LONG_SECONDS)
            case _:
                self._go_wrong(trouble, ctx)

    async def _pass(self, run: Invocation, seconds: float) -> None:
        await sleep(self._process.clock, seconds)
        self._ledger.go_on(run)

    async def _stubbornly(self, run: Invocation) -> None:
        """Swallow a first cancel and go on for a while."""
        try:
            await self._pass(run, 2 * STAGE_TIMEOUT_SECONDS)
        except asyncio.CancelledError:
            await self._pass(run, self._trouble.chance.random() * 3)

    def _go_wrong(self, trouble: str, ctx: Context) -> None:
        if trouble != "none":
            self._trouble.happened(trouble)
        match trouble:
            case "error":
                raise ValueError("no luck")
            case "permanent":
                raise Permanent("never")
            case "outage":
                raise self._trouble.chance.choice(OUTAGES)("away")
            case "later":
                raise RetryAfter(self._trouble.chance.uniform(0.1, 4))
            case "snooze":
                del ctx.data["torn"]
                ctx.data["naps"] = ctx.data.get("naps", 0) + 1
                raise Snooze(self._trouble.chance.choice((0.0, 1.0, 20.0)))

    def _finish(self, run: Invocation, ctx: Context) -> Effect:
        del ctx.data["torn"]
        ctx.data.pop("naps", None)
        if not run.undo:
            ctx.data["trail"] = [*ctx.data.get("trail", []), ctx.stage]
        self._ledger.note_result(run, ctx.key)
        return Effect(by=ctx.key)


class SimulatedThreads:
    """Threads as the worker sees them: a call takes its time and cannot be stopped."""

    def __init__(
        self, process: Process, chance: random.Random, is_calm: Callable[[], bool]
    ) -> None:
        self._process = process
        self._chance = chance
        self._is_calm = is_calm

    async def run(self, call: Callable[[], object]) -> object:
        """Call the function at once, and return its result after some virtual time."""
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        longest = 2.0 if self._is_calm() else 20.0
        seconds = self._chance.choice((0.01, 0.2, 2.0, longest)) * self._chance.random()
        settle: Callable[[], None]
        try:
            settle = partial(future.set_result, call())
        except Exception as error:
            settle = partial(future.set_exception, error)
        self._process.clock.call_later(seconds, settle)
        return await _until_done(future)
