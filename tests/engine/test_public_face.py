"""The public names, each used as the design shows it."""

import inspect
from types import ModuleType
from typing import Any

import pytest
from pydantic import BaseModel

import holdfast
import holdfast.errors
import holdfast.types
from holdfast import (
    BulkHandle,
    Context,
    Handle,
    Holdfast,
    Permanent,
    PlanHandle,
    Retry,
    RetryAfter,
    Status,
    TriggerHandle,
    ports,
)
from holdfast.domain import errors
from holdfast.domain.errors import InvalidInput
from holdfast.testing.plugin import MakeEngine


class Upgrade(BaseModel):
    version: int


class Report(BaseModel):
    rows: int


async def test_the_example_of_the_design(app: Holdfast, holdfast_engine: MakeEngine) -> None:
    seen: dict[str, object] = {}

    @app.task("mail.send", retry=Retry(max=5))
    async def send(ctx: Context, to: str) -> str:
        if ctx.attempt == 1:
            raise RetryAfter("5m")
        if to == "nobody":
            raise Permanent("no such address")
        return to

    upgrade = app.workflow("tenant.upgrade", payload=Upgrade, result=Report)

    @upgrade.stage
    async def snapshot(ctx: Context, order: Upgrade) -> str:
        return f"snapshot of {order.version}"

    @snapshot.undo
    async def drop_snapshot(ctx: Context, order: Upgrade) -> None:
        seen["dropped"] = ctx.result_of(snapshot)

    @upgrade.stage(timeout="10m", retry=Retry(max=3, backoff=("1m", "5m")))
    def migrate(ctx: Context, order: Upgrade) -> Report:
        ctx.data["schema"] = 7
        seen["result"] = ctx.result_of(snapshot)
        seen["own"] = ctx.find_result(migrate)
        seen["who"] = (ctx.task_id, ctx.tenant, ctx.attempt, ctx.key)
        assert ctx.fence > 0
        ctx.progress(0.4, "copying")
        return Report(rows=3)

    engine = holdfast_engine(app)
    async with app:
        handle = await upgrade.submit(Upgrade(version=7), tenant="t-001", key="upgrade-7")
        await engine.drain()
        assert await handle.result(timeout=30) == Report(rows=3)
        assert (await handle.info()).status is Status.COMPLETED
        await handle.rollback()
        await engine.drain()
        mail = await send.submit("ann")
        lost = await send.submit("nobody")
        await engine.advance("6m")
        assert await mail.result() == "ann"
        assert (await lost.info()).status is Status.FAILED
    assert seen == {
        "result": "snapshot of 7",
        "own": None,
        "who": (handle.id, "t-001", 1, f"{handle.id}/1/migrate"),
        "dropped": "snapshot of 7",
    }


@pytest.mark.parametrize("module", [holdfast, holdfast.errors, holdfast.types])
def test_every_public_name_is_there(module: ModuleType) -> None:
    assert sorted(module.__all__) == module.__all__
    for name in module.__all__:
        assert vars(getattr(module, name)).get("__doc__"), f"{name} says nothing of itself"


def test_the_package_exports_only_what_is_written_every_day() -> None:
    assert len(holdfast.__all__) <= 25
    assert not set(holdfast.__all__) & set(holdfast.types.__all__)
    daily = {"HoldfastError", "Permanent", "RetryAfter", "Snooze"}
    assert set(holdfast.__all__) & set(holdfast.errors.__all__) == daily


def test_every_error_has_a_code_of_its_own() -> None:
    def family(cls: type[holdfast.HoldfastError]) -> list[type[holdfast.HoldfastError]]:
        return [cls, *(one for child in cls.__subclasses__() for one in family(child))]

    ours = [cls for cls in family(holdfast.HoldfastError) if cls.__module__.startswith("holdfast.")]
    # What a store tells apart for itself is to its callers the error that it is a kind of.
    codes = [cls.code for cls in ours if not cls.__module__.startswith("holdfast.stores.")]
    assert len(codes) == len(set(codes))


def test_every_error_is_exported() -> None:
    ours = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and value.__module__ == errors.__name__
    }
    assert ours == set(holdfast.errors.__all__)


def test_help_says_what_each_call_of_a_handle_or_a_part_of_the_app_does(app: Holdfast) -> None:
    handles = Handle, PlanHandle, BulkHandle, TriggerHandle
    names = "control", "query", "checkpoints", "plan", "schedule", "bulk", "queues", "tenants"
    parts = [type(getattr(app, name)) for name in names]
    for cls in (*handles, *parts, type(app.plan.control), Context):
        for name, call in vars(cls).items():
            if callable(call) and not name.startswith("_"):
                assert inspect.getdoc(call), f"{cls.__name__}.{name}"


def test_help_says_what_each_verb_of_a_store_does() -> None:
    parts = ports.TaskStore, ports.ViewStore, ports.AdminStore, ports.PlanStore, ports.TriggerStore
    for cls in (*parts, ports.Store):
        for name, call in vars(cls).items():
            if inspect.iscoroutinefunction(call):
                assert inspect.getdoc(call), f"{cls.__name__}.{name}"


TERMS = {"tenant", "queue", "trace_id", "user", "callback"}


def test_help_shows_the_parameters_of_a_submit(app: Holdfast) -> None:
    @app.task("mail.send")
    async def send(ctx: Context, to: str) -> str:
        return to

    for declared in (send, app.workflow("tenant.upgrade", payload=Upgrade)):
        submit = inspect.signature(declared.submit).parameters
        submit_many = inspect.signature(declared.submit_many).parameters
        planned = inspect.signature(declared.on).parameters
        assert set(submit) == {"payload", "key"} | TERMS
        assert set(submit_many) == {"payloads", "keys"} | TERMS
        assert set(planned) == {"payload"} | TERMS
        for parameters in (submit, submit_many, planned):
            assert {parameters[name].kind for name in TERMS} == {inspect.Parameter.KEYWORD_ONLY}


def test_help_shows_the_options_of_a_declaration_a_plan_and_a_schedule(app: Holdfast) -> None:
    declared = {"queue", "keep", "effects", "retry", "hold"}
    timed = {"name", "tenant", "queue", "user", "misfire", "overlap", "jitter", "grace", "keep"}
    checkpoints = {"on_invalid", "checkpoint_max_age"}
    rollout = {"max_concurrency", "waves", "soak", "halt_on", "on_halt", "conflict", "keep"}
    workers = {"name", "slots", "queues", "heartbeat_thread", "schedules", "on_zombie"}
    workers |= {"on_drained", "isolate"}
    for call, options in (
        (app.running, workers),
        (app.worker, workers),
        (app.blocking.running, workers),
        (app.task, declared | {"timeout"}),
        (app.workflow, declared | {"payload", "result"} | checkpoints),
        (app.plan, rollout | {"repeat_tenants"}),
        (app.plan.preview, rollout | {"repeat_tenants"}),
        (app.schedule.at, timed | {"replace", "catch_up_max"}),
        (app.schedule.every, timed | {"replace", "catch_up_max", "start"}),
        (app.schedule.cron, timed | {"replace", "catch_up_max", "tz"}),
    ):
        parameters = inspect.signature(call).parameters.values()
        keywords = {p.name for p in parameters if p.kind is p.KEYWORD_ONLY}
        assert keywords == options
        assert not any(p.kind is p.VAR_KEYWORD for p in parameters)
        documented = inspect.getdoc(call if inspect.ismethod(call) else type(call).__call__) or ""
        assert all(name in documented for name in options - {"replace"})


async def test_an_unknown_option_of_workers_is_refused_before_anything_opens(app: Holdfast) -> None:
    options: dict[str, Any] = {"slot": 3}
    with pytest.raises(InvalidInput, match="no such option: slot"):
        async with app.running(**options):
            pass
    assert not app.is_open
