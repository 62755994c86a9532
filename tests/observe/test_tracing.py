"""One trace from a submit through the stages, wherever they run."""

import asyncio
import sys
import threading
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from holdfast import Context, Holdfast, Retry, Snooze
from holdfast.domain.task.trace import is_traceparent, shown_trace
from holdfast.errors import InvalidPayload, InvalidSetting
from holdfast.observe.tracing import OtelTracer
from holdfast.ports import Detail
from tests.support.runtime.helpers import BOUND_SECONDS, within_bounds

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01"


class Traced:
    """An app of one process, as it were: with spans of its own, on a store that others share."""

    def __init__(self, path: Path) -> None:
        self.app = Holdfast(f"sqlite:///{path}")
        self._exporter = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer = provider.get_tracer("shop")
        self.app.tracer = OtelTracer(self.app.redactor, provider)
        self.seen: list[str] = []
        self.charged = threading.Event()
        self.order = self.app.workflow("order", payload=str, retry=Retry(max=2, backoff=(0,)))
        self.order.stage(self.reserve)
        self.order.stage(self.charge)

    async def reserve(self, ctx: Context, what: str) -> None:
        with self.tracer.start_as_current_span("user's own"):
            if what == "fail" and ctx.attempt == 1:
                raise ValueError("no: token=hunter2")
            if what == "snooze" and not ctx.data.get("slept"):
                ctx.data["slept"] = True
                raise Snooze(0)

    def charge(self, ctx: Context, what: str) -> None:
        self.charged.set()
        self.seen.append(format(trace.get_current_span().get_span_context().trace_id, "032x"))

    @property
    def spans(self) -> tuple[ReadableSpan, ...]:
        return self._exporter.get_finished_spans()

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.spans if span.name == name]


@pytest.fixture
def here(tmp_path: Path) -> Traced:
    return Traced(tmp_path / "shop.db")


@pytest.fixture
def there(tmp_path: Path) -> Traced:
    return Traced(tmp_path / "shop.db")


@asynccontextmanager
async def both(here: Traced, there: Traced) -> AsyncIterator[None]:
    """Here it is submitted, there it runs."""
    async with here.app, there.app.running():
        yield


async def detail(traced: Traced, task_id: str) -> Detail:
    found = await traced.app.store.views.detail(task_id)
    assert found is not None
    return found


def facts(span: ReadableSpan) -> Mapping[str, object]:
    return dict(span.attributes or {})


def parent_of(span: ReadableSpan) -> int | None:
    return span.parent and span.parent.span_id


def trace_of(span: ReadableSpan) -> str:
    return format(span.context.trace_id, "032x")


async def test_one_trace_goes_from_the_submit_through_the_stages_of_another_worker(
    here: Traced, there: Traced
) -> None:
    async with both(here, there):
        handle = await here.order.submit("book", tenant="t-1")
        await within_bounds(handle.result())
        carried = (await detail(here, handle.id)).task.trace_id
        shown = (await handle.envelope()).context.trace_id
    [submit] = here.spans
    assert (submit.name, submit.kind, submit.parent) == ("submit order", SpanKind.PRODUCER, None)
    said = {"holdfast.type": "order", "holdfast.tenant": "t-1", "holdfast.task.id": handle.id}
    assert facts(submit) == said
    assert is_traceparent(carried)
    assert shown == shown_trace(carried) == trace_of(submit)
    [reserve], [charge] = there.named("order reserve"), there.named("order charge")
    for span, stage in ((reserve, "reserve"), (charge, "charge")):
        assert span.kind is SpanKind.CONSUMER
        assert parent_of(span) == submit.context.span_id
        more = {"holdfast.stage": stage, "holdfast.attempt": 1, "holdfast.outcome": "done"}
        assert facts(span) == said | more
    assert {trace_of(span) for span in (*here.spans, *there.spans)} == {trace_of(submit)}


async def test_what_the_stage_does_belongs_to_its_span_also_in_a_thread(
    here: Traced, there: Traced
) -> None:
    async with both(here, there):
        await within_bounds((await here.order.submit("book")).result())
    [own], [reserve] = there.named("user's own"), there.named("order reserve")
    assert parent_of(own) == reserve.context.span_id
    assert there.seen == [trace_of(own)]


async def test_a_retry_is_a_second_span_and_the_first_tells_its_error_redacted(
    here: Traced, there: Traced
) -> None:
    async with both(here, there):
        await within_bounds((await here.order.submit("fail")).result())
    first, second = there.named("order reserve")
    assert (facts(first)["holdfast.attempt"], facts(second)["holdfast.attempt"]) == (1, 2)
    assert (facts(first)["holdfast.outcome"], facts(second)["holdfast.outcome"]) == (
        "failed",
        "done",
    )
    assert (first.status.status_code, second.status.status_code) == (
        StatusCode.ERROR,
        StatusCode.UNSET,
    )
    [event] = first.events
    told = dict(event.attributes or {})
    assert (event.name, told["exception.type"]) == ("exception", "ValueError")
    assert told["exception.message"] == "no: token=***"
    assert "hunter2" not in first.to_json()


async def test_a_snooze_ends_its_span_without_an_error(here: Traced, there: Traced) -> None:
    async with both(here, there):
        await within_bounds((await here.order.submit("snooze")).result())
    first, _ = there.named("order reserve")
    assert facts(first)["holdfast.outcome"] == "snoozed"
    assert first.status.status_code is StatusCode.UNSET


async def test_a_traceparent_that_is_given_is_the_parent(here: Traced) -> None:
    async with here.app:
        handle = await here.order.submit("book", trace_id=PARENT)
        carried = (await detail(here, handle.id)).task.trace_id
    [submit] = here.spans
    assert trace_of(submit) == shown_trace(carried) == TRACE
    assert carried != PARENT  # the submit is between them


async def test_another_text_that_is_given_is_kept_as_it_is(here: Traced, there: Traced) -> None:
    async with both(here, there):
        handle = await here.order.submit("book", trace_id="invoice 9")
        await within_bounds(handle.result())
        assert (await handle.envelope()).context.trace_id == "invoice 9"
    assert [span.name for span in here.spans] == ["submit order"]
    assert [span.parent for span in there.named("order reserve")] == [None]


async def test_without_any_the_span_that_is_current_is_the_parent(here: Traced) -> None:
    async with here.app:
        with here.tracer.start_as_current_span("request") as request:
            await here.order.submit("book")
    submit, _ = here.spans
    assert parent_of(submit) == request.get_span_context().span_id


async def test_many_are_submitted_in_one_span(here: Traced, there: Traced) -> None:
    async with both(here, there):
        for handle in await here.order.submit_many(["a", "b", "c"]):
            await within_bounds(handle.result())
    [submit] = here.spans
    assert facts(submit) == {"holdfast.type": "order", "holdfast.tasks": 3}
    parents = [parent_of(span) for span in there.named("order reserve")]
    assert parents == [submit.context.span_id] * 3


async def test_a_task_of_a_plan_belongs_to_the_span_that_made_it(here: Traced) -> None:
    with here.tracer.start_as_current_span("rollout") as rollout:
        planned = here.order.on("book", tenant="t-1")
    carried = planned.record.trace_id
    assert shown_trace(carried) == format(rollout.get_span_context().trace_id, "032x")


async def test_a_submit_that_is_refused_tells_why(here: Traced) -> None:
    async with here.app:
        with pytest.raises(InvalidPayload):
            await here.order.submit(7)  # type: ignore[arg-type]
    [submit] = here.spans
    assert submit.status.status_code is StatusCode.ERROR


async def test_a_trace_id_that_is_no_text_is_refused_as_ever(here: Traced) -> None:
    async with here.app:
        with pytest.raises(Exception, match="trace_id"):
            await here.order.submit("book", trace_id=5)  # type: ignore[arg-type]


async def test_without_tracing_what_is_given_is_kept(tmp_path: Path) -> None:
    plain = Holdfast(f"sqlite:///{tmp_path}/shop.db")

    @plain.task("order")
    async def order(ctx: Context) -> None: ...

    async with plain:
        given, none = await order.submit(trace_id=PARENT), await order.submit()
        records = await plain.store.views.load([given.id, none.id])
    assert [record.trace_id for record in records if record] == [PARENT, None]


def test_tracing_without_opentelemetry_is_refused_and_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    monkeypatch.delitem(sys.modules, "holdfast.observe.tracing", raising=False)
    with pytest.raises(InvalidSetting, match=r"HOLDFAST_TRACING.*holdfast-engine\[tracing\]"):
        Holdfast("memory://", tracing=True)


def test_the_setting_turns_it_on() -> None:
    assert isinstance(Holdfast("memory://", tracing=True).tracer, OtelTracer)
    assert not Holdfast("memory://").tracer.on


@pytest.mark.parametrize("how", ["in time", "by hand"])
async def test_what_a_trigger_fires_is_a_trace_of_its_own(how: str, there: Traced) -> None:
    with there.tracer.start_as_current_span("where the worker was started"):
        async with there.app.running():
            if how == "in time":
                await there.app.schedule.at(0.0, there.order, "book")
            else:
                later = await there.app.schedule.every("1d", there.order, "book", name="daily")
                await later.fire()
            assert await asyncio.to_thread(there.charged.wait, BOUND_SECONDS)
    [fire], [reserve] = there.named("fire order"), there.named("order reserve")
    assert (fire.kind, fire.parent) == (SpanKind.PRODUCER, None)
    assert parent_of(reserve) == fire.context.span_id
