"""Triggers that code declares: ``@send.cron("0 3 * * *")``, ``send.every("15m", payload=…)``."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from datetime import UTC, datetime, tzinfo
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Generic,
    Literal,
    Protocol,
    TypedDict,
    TypeVar,
    Unpack,
    overload,
)
from zoneinfo import ZoneInfo

import msgspec

from holdfast.domain import names
from holdfast.domain.durations import seconds
from holdfast.domain.errors import DeclarationError, InvalidInput
from holdfast.domain.trigger import schedule as times
from holdfast.domain.trigger.firing import FIRE_TIMES_MAX
from holdfast.domain.trigger.schedule import Cron, Schedule
from holdfast.domain.trigger.trigger import (
    CATCH_UP_MAX,
    GRACE_SECONDS,
    KEEP_SECONDS,
    Definition,
    Misfire,
    Overlap,
)
from holdfast.engine.options import NOT_GIVEN, Option, complete_options, read_choice, show_options
from holdfast.registry import TaskType, TriggerDef
from holdfast.runtime.new_task import plain_user

if TYPE_CHECKING:
    from holdfast.engine.core import Holdfast

P = TypeVar("P")

_EPOCH = 0.0


class TriggerTerms(TypedDict, total=False):
    """The terms of a trigger apart from its times and its payload."""

    name: Annotated[str | None, Option(None, "its id; generated if left out")]
    tenant: Annotated[str | None, Option(None, "the tenant of its tasks")]
    queue: Annotated[str | None, Option(None, "the queue of its tasks; None: that of their type")]
    user: Annotated[Any, Option(None, "any JSON value, which its tasks carry")]
    misfire: Annotated[
        Misfire | Literal["once", "skip", "catch-up"],
        Option("once", "what happens to fire times that passed while no worker was running"),
    ]
    overlap: Annotated[
        Overlap | Literal["allow", "skip", "queue"],
        Option("allow", "what happens at a fire time while its last task has not ended"),
    ]
    jitter: Annotated[
        float | str,
        Option(0.0, "how late it fires at most, and never past half-way to the next time"),
    ]
    grace: Annotated[float | str, Option(GRACE_SECONDS, "a fire time late by more is a misfire")]
    catch_up_max: Annotated[
        int, Option(CATCH_UP_MAX, 'how many fire times misfire="catch-up" makes up for')
    ]
    keep: Annotated[float | str, Option(KEEP_SECONDS, "how long its record stays after its end")]


class PayloadDecorator(Protocol[P]):
    """A decorator for the function that makes the payload at a fire time.

    The worker calls it on its loop, so it must be quick; anything else belongs into the task.
    """

    @overload
    def __call__(self, make: Callable[[datetime], P], /) -> Callable[[datetime], P]: ...

    @overload
    def __call__(self, make: Callable[[], P], /) -> Callable[[], P]: ...


class Schedulable(Generic[P]):
    """A task type that a trigger can submit."""

    def __init__(self, app: Holdfast, declared: TaskType) -> None:
        self._app = app
        self.declared = declared

    @overload
    def cron(
        self: Schedulable[None], expression: str, *, tz: str = "UTC", **terms: Unpack[TriggerTerms]
    ) -> str: ...

    @overload
    def cron(
        self, expression: str, *, payload: P, tz: str = "UTC", **terms: Unpack[TriggerTerms]
    ) -> str: ...

    @overload
    def cron(
        self, expression: str, *, tz: str = "UTC", **terms: Unpack[TriggerTerms]
    ) -> PayloadDecorator[P]: ...

    @show_options(TriggerTerms)
    def cron(
        self,
        expression: str,
        *,
        tz: str = "UTC",
        payload: Any = NOT_GIVEN,
        **terms: Unpack[TriggerTerms],
    ) -> Any:
        """Declare a trigger and return its name.

        Without a payload, return a decorator for the function that makes it: ``def nightly(at:
        datetime) -> Payload`` or ``def nightly()``.
        """
        schedule = times.cron(expression, tz=tz, now=self._app.clock.now())
        return self._declare_trigger("cron", schedule, payload, terms)

    @overload
    def every(
        self: Schedulable[None],
        interval: float | str,
        *,
        start: datetime | float | None = None,
        **terms: Unpack[TriggerTerms],
    ) -> str: ...

    @overload
    def every(
        self,
        interval: float | str,
        *,
        payload: P,
        start: datetime | float | None = None,
        **terms: Unpack[TriggerTerms],
    ) -> str: ...

    @overload
    def every(
        self,
        interval: float | str,
        *,
        start: datetime | float | None = None,
        **terms: Unpack[TriggerTerms],
    ) -> PayloadDecorator[P]: ...

    @show_options(TriggerTerms)
    def every(
        self,
        interval: float | str,
        *,
        start: datetime | float | None = None,
        payload: Any = NOT_GIVEN,
        **terms: Unpack[TriggerTerms],
    ) -> Any:
        """Declare a trigger at an interval, like `cron`.

        Without a start it counts from 1970-01-01T00:00Z, whenever and wherever the code is loaded:
        ``"15m"`` is each quarter of an hour.
        """
        schedule = times.every(interval, start=_EPOCH if start is None else start)
        return self._declare_trigger("every", schedule, payload, terms)

    def _declare_trigger(
        self, verb: str, schedule: Schedule, payload: Any, terms: TriggerTerms
    ) -> Any:
        defined = define(self.declared, schedule, b"null", terms, declared=True)
        if payload is NOT_GIVEN and self.declared.payload.declared is not type(None):
            return self._decorator(verb, schedule, defined, terms)
        body = self.declared.payload.encode(None if payload is NOT_GIVEN else payload)
        defined = msgspec.structs.replace(defined, payload=msgspec.Raw(body))
        name = self._trigger_name(terms, verb)
        self._app.registry.add_trigger(TriggerDef(name=name, definition=defined))
        return name

    def _decorator(
        self, verb: str, schedule: Schedule, defined: Definition, terms: TriggerTerms
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        registry = self._app.registry

        def decorate(make: Callable[..., Any]) -> Callable[..., Any]:
            name = self._trigger_name(terms, getattr(make, "__name__", verb))
            made = _maker(make, self.declared, zone_of(schedule))
            registry.add_trigger(TriggerDef(name=name, definition=defined, make=made))
            registry.found_payload(id(decorate))
            return make

        declaration = f"{self.declared.name}.{verb}({times.format_schedule(schedule)!r})"
        registry.expect_payload(id(decorate), declaration)
        return decorate

    def _trigger_name(self, terms: TriggerTerms, default: str) -> str:
        return names.normalise(terms.get("name") or f"{self.declared.name}.{default}")


def define(
    target: TaskType, schedule: Schedule, body: bytes, terms: TriggerTerms, *, declared: bool
) -> Definition:
    terms = complete_options(TriggerTerms, terms)
    return Definition(
        schedule=schedule,
        target=target.name,
        payload=msgspec.Raw(body),
        tenant=names.check_any("tenant", terms["tenant"]),
        queue=names.check_any("queue", terms["queue"]),
        user=plain_user(terms["user"]),
        misfire=read_choice(Misfire, "misfire", terms["misfire"]),
        overlap=read_choice(Overlap, "overlap", terms["overlap"]),
        jitter_seconds=seconds(terms["jitter"]),
        grace_seconds=seconds(terms["grace"]),
        catch_up_max=_catch_up_max(terms["catch_up_max"]),
        keep_seconds=seconds(terms["keep"]),
        declared=declared,
    )


def zone_of(schedule: Schedule) -> tzinfo:
    return ZoneInfo(schedule.tz) if isinstance(schedule, Cron) else UTC


def _catch_up_max(given: object) -> int:
    if isinstance(given, bool) or not isinstance(given, int) or not 1 <= given <= FIRE_TIMES_MAX:
        raise InvalidInput(
            f"catch_up_max={given!r} must be a number between 1 and {FIRE_TIMES_MAX}"
        )
    return given


def _maker(make: Callable[..., Any], target: TaskType, zone: tzinfo) -> Callable[[float], bytes]:
    name = getattr(make, "__name__", repr(make))
    if not callable(make) or inspect.iscoroutinefunction(make):
        raise DeclarationError(f"{name} makes a payload: it must be a plain function")
    parameters = inspect.signature(make).parameters.values()
    taken = [p for p in parameters if p.default is p.empty and p.kind is not p.VAR_KEYWORD]
    if len(taken) > 1 or any(p.kind is p.KEYWORD_ONLY for p in taken):
        raise DeclarationError(f"{name} makes a payload: it takes the fire time, or nothing")
    if not taken:
        return lambda _: target.payload.encode(make())
    return lambda at: target.payload.encode(make(datetime.fromtimestamp(at, zone)))
