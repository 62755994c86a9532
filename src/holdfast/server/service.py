"""What the routes share: the engine, who may come in, what is counted, and how it all ends."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from functools import partial
from typing import Annotated, Any

from fastapi import Depends, Request
from fastapi.responses import StreamingResponse
from msgspec.structs import replace
from starlette.exceptions import HTTPException

from holdfast.domain import names
from holdfast.domain.audit import Audit
from holdfast.domain.errors import HoldfastError, InvalidSetting, StoreError
from holdfast.domain.redaction import Redactor
from holdfast.domain.task.amendment import AMEND
from holdfast.domain.task.state import OPERATOR
from holdfast.domain.task.task import By
from holdfast.domain.trigger.trigger import TriggerCommand
from holdfast.engine import Holdfast
from holdfast.engine.bulk.bulks import Bulks
from holdfast.engine.operations.checkpoints import Checkpoints
from holdfast.engine.operations.control import Control
from holdfast.engine.operations.queues import Queues
from holdfast.engine.operations.tenants import Tenants
from holdfast.engine.plans.create import Plans
from holdfast.engine.triggers.schedules import Schedules
from holdfast.insight.monitor import Monitor
from holdfast.observe.metrics import Metrics
from holdfast.server.auth import tokens as tk
from holdfast.server.auth.access import (
    Caller,
    Forbidden,
    Need,
    TooManyRequests,
    Unauthenticated,
    bearer,
    caller_of_token,
    check_headers,
    is_foreign,
    secret_of_telegram,
)
from holdfast.server.auth.revocation import Revocations
from holdfast.server.http import sse
from holdfast.server.http.bodies import Arrivals
from holdfast.server.http.connections import (
    GAVE_WAY,
    REASONS,
    Connections,
    Refusal,
    limit_within_files,
)
from holdfast.server.http.log_lines import Lines
from holdfast.server.http.problems import TooManyWaits, TooManyWaitsOfToken
from holdfast.server.http.quotas import Quota
from holdfast.server.http.rates import Rates
from holdfast.server.live.large_views import LargeViews
from holdfast.server.live.live_feed import Watch
from holdfast.server.live.shared_reads import Looks
from holdfast.server.pool import NoPool, Pool
from holdfast.settings import Settings

REFUSED = "refused: %s %s of %s from %s: %s"
READS = frozenset({"GET", "HEAD", "OPTIONS"})
ANONYMOUS = Caller(actor="anonymous", origin="", role=tk.Role.VIEWER, tenants=frozenset())
WRONG_TOKENS_RATE = 1.0  # a second, of one address
_CONNECTIONS = {
    Refusal.ADDRESS: "only health is answered to a new connection from %s, which has too many",
    Refusal.PROCESS: "only health is answered to a new connection from %s: all are busy here",
    GAVE_WAY: "a connection without a request was closed for a new one from %s: there are too many",
}
COMMANDS = frozenset([*OPERATOR, TriggerCommand.FIRE, "stop", AMEND])
REFUSALS_RATE = 10.0  # a second, of one token: more are not written down
STRANGERS_RATE = 0.1  # a second, of all: how many of them are written down


class Service:
    """One for each process that serves."""

    def __init__(
        self,
        app: Holdfast,
        *,
        tokens: Sequence[tk.Token] = (),
        pool: Pool | None = None,
    ) -> None:
        """``tokens``: beside those of the file that the settings name."""
        self.app = app
        self.settings: Settings = app.settings
        self.metrics = Metrics()
        self.monitor = Monitor(app, lag=self.metrics.worst_event_lag)
        # Results go to those who asked for the work: there only what was declared is hidden.
        self.hide_declared = Redactor(
            app.settings.redact, app.settings.redact_patterns, usual=False
        )
        self.pool = pool or Pool()
        self.leaving = asyncio.Event()  # readiness says so, and connections are told to close
        self.stopping = asyncio.Event()  # those who wait for something long are answered now
        self._given = tk.Tokens(tokens)
        self._file = tk.TokenFile(app.settings.tokens) if app.settings.tokens else None
        self._rates = Rates()
        self.connection_limit = limit_within_files(self.settings.connection_limit)
        self._revocations = Revocations(self._of_id)
        self.watch = Watch(app, lag=self.metrics.event_lag, streams_max=self.connection_limit // 2)
        self.waits = Quota(
            total=self.connection_limit // 2,
            of_token=self.settings.wait_limit,
            full=TooManyWaits,
            token_full=TooManyWaitsOfToken,
        )
        self.arrivals = Arrivals(
            connections=self.connection_limit, of_token=max(1, self.connection_limit // 4)
        )
        self.large_views = LargeViews()
        self.looks = Looks(app.clock.steady)
        self.lines = Lines(app.clock.steady)
        self.connections = Connections(
            limit=self.connection_limit,
            of_address=self._limit_of_address(),
            exempt=self.settings.trusted_proxies,
            on_refused=self._connection_refused,
        )
        self.metrics.count_connections(lambda: self.connections.taken, REASONS)

    @asynccontextmanager
    async def running(self, workers: int = 0, **options: Any) -> AsyncIterator[Service]:
        """Open the store, with so many workers in this process."""
        async with self.app.running(workers=workers, **options), self.beside():
            yield self

    @asynccontextmanager
    async def beside(self) -> AsyncIterator[None]:
        """What runs beside the requests, over an engine that somebody else has opened."""
        self._check_bot()
        monitoring = asyncio.create_task(self.monitor.run())
        try:
            yield
        finally:
            self.stopping.set()
            monitoring.cancel()
            await asyncio.gather(monitoring, return_exceptions=True)
            await self.watch.close()
            await self._revocations.close()
            await self.looks.close()
            await self.pool.close()

    def _check_bot(self) -> None:
        """Now that all types are declared: each message would be refused."""
        bot, registry = self.app.bot, self.app.registry
        if bot is None:
            return
        if bot.task not in registry.names():
            raise InvalidSetting(bot.task_setting, bot.task, "no such task type is declared here")
        declared = registry.find(bot.task)
        if declared is not None and (problem := bot.refusal(declared)):
            reason = f"it takes no TelegramMessage: {problem}"
            raise InvalidSetting(bot.task_setting, bot.task, reason)

    @property
    def has_tokens(self) -> bool:
        return len(self._given) > 0 or (self._file is not None and len(self._of_file()) > 0)

    # -- the way in

    async def admit(self, request: Request, need: Need) -> Caller:
        """The one place where it is decided who may do what."""
        if need.role is None and not need.telegram:
            return ANONYMOUS
        check_headers(request)
        if need.telegram:
            return await self._admit_telegram(request)
        origin = _origin(request)
        try:
            token = self._known(request, origin)
        except HoldfastError as error:
            await self._refused(request, replace(ANONYMOUS.by(), origin=origin), error)
            raise
        wait = self._wait(f"token {token.id}", token.rate or self.settings.rate_limit)
        if wait:
            raise TooManyRequests(wait)
        caller = caller_of_token(token, origin)
        if (refusal := need.refusal(caller)) is not None:
            await self._refused(request, caller.by(), refusal, written=self._some(caller))
            raise refusal
        return caller

    async def _admit_telegram(self, request: Request) -> Caller:
        bot, origin = self.app.bot, _origin(request)
        if bot is None:
            raise HTTPException(404, "no Telegram bot is set up here")
        try:
            if not tk.same(secret_of_telegram(request), bot.secret):
                self._slow_down(origin)
                raise Unauthenticated("this is not the secret that Telegram was given")
        except HoldfastError as error:
            await self._refused(request, replace(ANONYMOUS.by(), origin=origin), error)
            raise
        if wait := self._wait("telegram", self.settings.rate_limit):
            raise TooManyRequests(wait, "too many updates have come from Telegram")
        return dataclasses.replace(ANONYMOUS, actor="telegram", origin=origin)

    def _known(self, request: Request, origin: str) -> tk.Token:
        text = bearer(request)
        now = self.app.clock.now()
        token = self._given.check(text, now=now)
        if token is None and self._file is not None:
            token = self._of_file().check(text, now=now)
        if token is not None:
            return token
        self._slow_down(origin)
        raise Unauthenticated("this token is not known, or has expired")

    def _slow_down(self, origin: str) -> None:
        """Whoever guesses."""
        if wait := self._wait(f"wrong {origin}", WRONG_TOKENS_RATE):
            says = "too many wrong tokens or secrets have come from this address"
            raise TooManyRequests(wait, says)

    def _of_file(self) -> tk.Tokens:
        assert self._file is not None
        return self._file.current(steady=self.app.clock.steady())

    def _wait(self, who: str, rate: float) -> float:
        return self._rates.wait_seconds(who, rate=rate, now=self.app.clock.steady())

    async def _refused(
        self, request: Request, by: By, error: HoldfastError, *, written: bool = True
    ) -> None:
        """Whoever asked for a change and may not is written down; of strangers a few only, or they
        would fill the store."""
        self.metrics.auth_failed(error.code)
        parts = request.method, request.scope["path"], by.actor, by.origin, error
        self.lines.say(logging.WARNING, REFUSED, *parts, of=by.actor)
        if request.method in READS or not written:
            return
        if not isinstance(error, Forbidden) and self._wait("strangers", STRANGERS_RATE):
            return
        about = next(iter(request.path_params.values()), "service")
        entry = Audit(
            task_id=str(about)[:200],
            command=_asked(request),
            by=by,
            at=self.app.clock.now(),
            before="",
            after="",
            refused=error.code,
        )
        try:
            await self.app.store.admin.audit(entry)
        except StoreError as failed:
            self.lines.say(logging.ERROR, "a refusal could not be written down: %s", failed)

    async def heard(self, request: Request, error: Exception) -> None:
        """A route has refused: by the tenants of the token, or because what was asked for is
        another's, which its answer does not tell."""
        caller: Caller | None = getattr(request.state, "caller", None)  # None: not even admitted
        refused = isinstance(error, Forbidden) or is_foreign(error)
        if caller is None or not refused or request.method in READS:
            return
        forbidden = Forbidden(str(error))
        await self._refused(request, caller.by(), forbidden, written=self._some(caller))

    def _some(self, caller: Caller) -> bool:
        """Return whether to write this refusal down: of a token that has many, some are."""
        return not self._wait(f"refused {caller.token_id}", REFUSALS_RATE)

    def stream(self, caller: Caller, source: AsyncIterator[bytes]) -> StreamingResponse:
        """To a caller who stays, until the service stops or the token counts no more."""
        token = self._token_of(caller)
        until_end = ExitStack()
        until_end.callback(self.watch.room.take(token.id))
        revoked = until_end.enter_context(self._revocations.watch(token))
        self.metrics.sse_streams.inc()
        until_end.callback(self.metrics.sse_streams.dec)

        def is_welcome() -> bool:
            return self._of_id(token.id) == token

        parts = sse.beating(source, self.stopping, revoked, is_welcome)
        return sse.Stream(parts, until_end.close)

    @contextmanager
    def waiting(self, caller: Caller) -> Iterator[asyncio.Event]:
        """Keep a place for one who waits; what is yielded is set when the token counts no more."""
        token = self._token_of(caller)
        with self.waits.place(token.id), self._revocations.watch(token) as revoked:
            yield revoked

    def _token_of(self, caller: Caller) -> tk.Token:
        token = self._of_id(caller.token_id)
        if token is None:
            raise Unauthenticated("this token is not known, or has expired")
        return token

    def _of_id(self, token_id: str) -> tk.Token | None:
        now = self.app.clock.now()
        token = self._given.find(token_id, now=now)
        if token is None and self._file is not None:
            token = self._of_file().find(token_id, now=now)
        return token

    def _limit_of_address(self) -> int:
        """Return an address's share of the connections that the limit on open files leaves."""
        limit = self.settings.connection_limit
        of_address = self.settings.address_limit or limit // 4
        return max(1, of_address * self.connection_limit // limit)

    def _connection_refused(self, reason: str, host: str) -> None:
        self.metrics.connection_refused(reason)
        self.lines.say(logging.WARNING, _CONNECTIONS[reason], host)

    def check_is_shared(self) -> None:
        """Other processes would get no work from a memory, or join the store that was away."""
        if self.app.in_memory:
            raise NoPool("this service runs on the memory of its own process")

    # -- the engine, as the caller

    def control(self, caller: Caller) -> Control:
        return self.app.control.acting_as(caller.actor, caller.origin)

    def plans(self, caller: Caller) -> Plans:
        return self.app.plan.acting_as(caller.actor, caller.origin)

    def schedule(self, caller: Caller) -> Schedules:
        return self.app.schedule.acting_as(caller.actor, caller.origin)

    def bulks(self, caller: Caller) -> Bulks:
        return self.app.bulk.acting_as(caller.actor, caller.origin)

    def checkpoints(self, caller: Caller) -> Checkpoints:
        by = By(actor=caller.actor, origin=caller.origin)
        return Checkpoints(self.app, by, partial(self.large_views.respond, caller))

    def tenants(self, caller: Caller) -> Tenants:
        return self.app.tenants.acting_as(caller.actor, caller.origin)

    def queues(self, caller: Caller) -> Queues:
        return self.app.queues.acting_as(caller.actor, caller.origin)

    @asynccontextmanager
    async def noting(
        self,
        caller: Caller,
        command: str,
        about: str,
        reason: str = "",
        *,
        before: str = "",
        after: str = "",
    ) -> AsyncIterator[None]:
        """For what does not write itself down: written before it is done, so that nothing is done
        that is not written; and once more when it was refused, for whatever reason."""
        entry = Audit(
            task_id=about,
            command=command,
            by=caller.by(names.check_text("reason", reason)),
            at=self.app.clock.now(),
            before=before,
            after=after,
        )
        await self.app.store.admin.audit(entry)
        try:
            yield
        except StoreError:
            raise  # it may have been done all the same: the answer can be what was lost
        except HoldfastError as error:
            refused = replace(entry, before="", after="", refused=error.code)
            await self.app.store.admin.audit(refused)
            raise


def _asked(request: Request) -> str:
    """Nothing that a caller made up: it is counted by this word."""
    command, route = str(request.path_params.get("command")), request.scope["route"]
    return command if command in COMMANDS else f"{request.method} {route.path_format}"


def _origin(request: Request) -> str:
    return request.client.host if request.client else ""


def service_of(request: Request) -> Service:
    found: Service = request.app.state.holdfast
    return found


async def _service(request: Request) -> Service:
    return service_of(request)


ServiceOf = Annotated[Service, Depends(_service)]
