"""Admission decides who asks and what they may do, for every request: this is the one place.

Each route says which role it needs (`needs`); a route that says nothing is not served. A token may
be limited to tenants. What belongs to other tenants does not exist for such a token, and what
concerns all tenants is refused.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from fastapi import Depends, Request
from msgspec.structs import replace
from starlette.exceptions import HTTPException

from holdfast.domain.audit import Audit
from holdfast.domain.errors import HoldfastError, InvalidInput, StoreError
from holdfast.domain.task.amendment import AMEND
from holdfast.domain.task.state import OPERATOR
from holdfast.domain.task.task import By
from holdfast.domain.trigger.trigger import TriggerCommand
from holdfast.engine import Holdfast
from holdfast.engine.visibility import Sight
from holdfast.observe.metrics import Metrics
from holdfast.server.auth.tokens import Role, Token, TokenFile, Tokens, is_same_text
from holdfast.server.http.limits import RateLimits

if TYPE_CHECKING:
    from holdfast.server.http.log_lines import LogLines

ROLE = "x-holdfast-role"
PUBLIC = "public"
SCHEME = "token"  # of the OpenAPI document
# Headers that may stand in a request once: of two, one program would read the first, another the
# last. The headers of secrets that routes take are added where the routes are put together.
ONE_VALUED = frozenset(
    {
        b"authorization",
        b"content-encoding",
        b"content-length",
        b"content-type",
        b"idempotency-key",
        b"last-event-id",
        b"traceparent",
    }
)
_FOREIGN = "another's"
REFUSED = "refused: %s %s of %s from %s: %s"
READS = frozenset({"GET", "HEAD", "OPTIONS"})
WRONG_TOKENS_RATE = 1.0  # a second, of one address
COMMANDS = frozenset([*OPERATOR, TriggerCommand.FIRE, "stop", AMEND])
REFUSALS_RATE = 10.0  # a second, of one token: more are not written down
STRANGERS_RATE = 0.1  # a second, of all: how many of them are written down


class Unauthenticated(HoldfastError, stored_name="Unauthenticated"):
    code = "unauthenticated"


class Forbidden(HoldfastError, stored_name="Forbidden"):
    code = "forbidden"


class RepeatedHeader(HoldfastError, stored_name="RepeatedHeader"):
    code = "repeated-header"

    def __init__(self, name: str) -> None:
        super().__init__(f"the request has more than one {name} header; send one")


class TooManyRequests(HoldfastError, stored_name="TooManyRequests"):
    code = "too-many-requests"

    def __init__(
        self, retry_seconds: float, message: str = "this token has sent too many requests"
    ) -> None:
        super().__init__(f"{message}; try again later")
        self.retry_seconds = retry_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    actor: str
    origin: str
    role: Role
    token_id: str = ""
    tenants: frozenset[str] | None = None  # None: all of them

    @property
    def sight(self) -> Sight:
        """Return what this caller may see of the records that are not another tenant's."""
        limited = self.tenants is not None
        tracebacks = not limited and self.role.rank >= Role.OPERATOR.rank
        return Sight(tracebacks=tracebacks, limited=limited, actor=self.actor)

    def as_actor(self, reason: str = "") -> By:
        return By(actor=self.actor, origin=self.origin, reason=reason)

    def sees(self, tenant: str | None) -> bool:
        return self.tenants is None or tenant in self.tenants

    def tenant_for(self, wanted: str | None) -> str | None:
        """Return the tenant to submit for or to show: a token of one tenant need not name it."""
        if self.tenants is None:
            return wanted
        if wanted is None and len(self.tenants) == 1:
            return next(iter(self.tenants))
        if wanted is None:
            raise InvalidInput("tenant: this token has several tenants, so name one of them")
        if wanted not in self.tenants:
            raise Forbidden("this token is not for that tenant")
        return wanted


@dataclass(frozen=True, slots=True)
class ChatSecret:
    """The secret by which the requests of a chat service are known, in place of a token."""

    actor: str  # who sends them; also the name of the scheme in the OpenAPI document
    service: str  # its name for people
    header: str  # which has the secret
    about: str = ""  # its description in the OpenAPI document

    def scheme(self) -> dict[str, str]:
        return {"type": "apiKey", "in": "header", "name": self.header, "description": self.about}

    def read(self, request: Request) -> str:
        text = request.headers.get(self.header)
        if not text:
            raise Unauthenticated(f"send the secret in the header {self.header}")
        return text


@dataclass(frozen=True, slots=True)
class Need:
    """The rights that a route needs of its caller; ``role`` None: no rights."""

    role: Role | None
    everywhere: bool = False  # concerns all tenants: not for a token that is limited to some
    secret: ChatSecret | None = None  # instead of a token

    def __str__(self) -> str:
        if self.secret is not None:
            return f"{self.secret.service}'s secret"
        if self.role is None:
            return PUBLIC
        return f"{self.role}, of all tenants" if self.everywhere else str(self.role)

    def refusal(self, caller: Caller) -> Forbidden | None:
        if self.role is not None and caller.role.rank < self.role.rank:
            return Forbidden(f"this needs the role {self.role}, and the token has {caller.role}")
        if self.everywhere and caller.tenants is not None:
            return Forbidden("this concerns all tenants, and the token is limited to some")
        return None


def check_headers(request: Request, one_valued: Set[bytes]) -> None:
    """Refuse a request in which a header of one value stands twice."""
    names = [name for name, _ in request.scope["headers"] if name in one_valued]
    if len(set(names)) < len(names):
        repeated = next(name for name in names if names.count(name) > 1)
        raise RepeatedHeader(repeated.decode())


def bearer(request: Request) -> str:
    scheme, _, text = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not text.strip():
        raise Unauthenticated("send a token in the header Authorization, as Bearer hf_…")
    return text.strip()


ANONYMOUS = Caller(actor="anonymous", origin="", role=Role.VIEWER, tenants=frozenset())


class RequestAdmission:
    """Decides for every request who asks and whether they may; refusals are counted and audited."""

    def __init__(
        self, app: Holdfast, metrics: Metrics, lines: LogLines, tokens: Sequence[Token]
    ) -> None:
        """Keep ``tokens``, which are valid in addition to those of the settings' file."""
        self._app, self._metrics, self._lines = app, metrics, lines
        self.given = Tokens(tokens)
        self.file = TokenFile(app.settings.tokens) if app.settings.tokens else None
        self._rates = RateLimits()

    async def admit(self, request: Request, need: Need, one_valued: Set[bytes]) -> Caller:
        """Return the caller of a request, or refuse it; ``one_valued`` headers may not repeat."""
        if need.role is None and need.secret is None:
            return ANONYMOUS
        check_headers(request, one_valued)
        origin = _origin(request)
        if need.secret is not None:
            return await self._admit_chat(request, need.secret, origin)
        try:
            token = self._check_token(request, origin)
        except HoldfastError as error:
            await self._note_refused(request, replace(ANONYMOUS.as_actor(), origin=origin), error)
            raise
        wait = self._wait(f"token {token.id}", token.rate or self._app.settings.rate_limit)
        if wait:
            raise TooManyRequests(wait)
        caller = Caller(
            actor=f"api:{token.name}",
            origin=origin,
            role=token.role,
            token_id=token.id,
            tenants=frozenset(token.tenants) if token.tenants else None,
        )
        if (refusal := need.refusal(caller)) is not None:
            await self._note_refused(
                request, caller.as_actor(), refusal, written=self._is_noted(caller)
            )
            raise refusal
        return caller

    async def _admit_chat(self, request: Request, secret: ChatSecret, origin: str) -> Caller:
        bot = self._app.bot
        if bot is None:
            raise HTTPException(404, f"no {secret.service} bot is set up here")
        try:
            if not is_same_text(secret.read(request), bot.secret):
                self._slow_down(origin)
                raise Unauthenticated(f"this is not the secret that {secret.service} was given")
        except HoldfastError as error:
            await self._note_refused(request, replace(ANONYMOUS.as_actor(), origin=origin), error)
            raise
        if wait := self._wait(secret.actor, self._app.settings.rate_limit):
            raise TooManyRequests(wait, f"too many updates have come from {secret.service}")
        return dataclasses.replace(ANONYMOUS, actor=secret.actor, origin=origin)

    def _check_token(self, request: Request, origin: str) -> Token:
        text, now = bearer(request), self._app.clock.now()
        for tokens in self._tokens():
            if (token := tokens.check(text, now=now)) is not None:
                return token
        self._slow_down(origin)
        raise Unauthenticated("this token is not known, or has expired")

    def _slow_down(self, origin: str) -> None:
        """Refuse an address that has sent too many wrong tokens."""
        if wait := self._wait(f"wrong {origin}", WRONG_TOKENS_RATE):
            message = "too many wrong tokens or secrets have come from this address"
            raise TooManyRequests(wait, message)

    def _tokens(self) -> Sequence[Tokens]:
        if self.file is None:
            return (self.given,)
        return self.given, self.file.current(steady=self._app.clock.steady())

    def _wait(self, who: str, rate: float) -> float:
        return self._rates.wait_seconds(who, rate=rate, now=self._app.clock.steady())

    async def _note_refused(
        self, request: Request, by: By, error: HoldfastError, *, written: bool = True
    ) -> None:
        """Count, log and audit a refusal. Reads are not audited, and of strangers only a few
        refusals are, or they would fill the store."""
        self._metrics.auth_failed(error.code)
        parts = request.method, request.scope["path"], by.actor, by.origin, error
        self._lines.say(logging.WARNING, REFUSED, *parts, of=by.actor)
        if request.method in READS or not written:
            return
        if not isinstance(error, Forbidden) and self._wait("strangers", STRANGERS_RATE):
            return
        about = next(iter(request.path_params.values()), "service")
        entry = Audit(
            task_id=str(about)[:200],
            command=_command_name(request),
            by=by,
            at=self._app.clock.now(),
            before="",
            after="",
            refused=error.code,
        )
        try:
            await self._app.store.admin.audit(entry)
        except StoreError as failed:
            self._lines.say(logging.ERROR, "could not record a refusal in the audit: %s", failed)

    async def note_refusal(self, request: Request, error: Exception) -> None:
        """Note that a route has refused: by the tenants of the token, or because the record is
        another's, which the answer does not show."""
        caller: Caller | None = getattr(request.state, "caller", None)  # None: not even admitted
        refused = isinstance(error, Forbidden) or is_foreign(error)
        if caller is None or not refused or request.method in READS:
            return
        forbidden = Forbidden(str(error))
        await self._note_refused(
            request, caller.as_actor(), forbidden, written=self._is_noted(caller)
        )

    def _is_noted(self, caller: Caller) -> bool:
        """Return whether to write this refusal down: of a token that has many, some are."""
        return not self._wait(f"refused {caller.token_id}", REFUSALS_RATE)

    def token_of(self, caller: Caller) -> Token:
        token = self.find(caller.token_id)
        if token is None:
            raise Unauthenticated("this token is not known, or has expired")
        return token

    def find(self, token_id: str) -> Token | None:
        now = self._app.clock.now()
        for tokens in self._tokens():
            if (token := tokens.find(token_id, now=now)) is not None:
                return token
        return None


def _command_name(request: Request) -> str:
    """Return the command of a request. It is counted by this word, so no caller makes it up."""
    command, route = str(request.path_params.get("command")), request.scope["route"]
    return command if command in COMMANDS else f"{request.method} {route.path_format}"


def _origin(request: Request) -> str:
    return request.client.host if request.client else ""


def describe_need(need: Need) -> dict[str, Any]:
    """Describe a need for the OpenAPI document."""
    security: list[dict[str, list[str]]] = [] if need.role is None else [{SCHEME: []}]
    if need.secret is not None:
        security = [{need.secret.actor: []}]
    return {ROLE: str(need), "security": security}


def caller_of(request: Request) -> Caller:
    found: Caller = request.state.caller
    return found


async def _caller(request: Request) -> Caller:
    return caller_of(request)


CallerOf = Annotated[Caller, Depends(_caller)]


E = TypeVar("E", bound=HoldfastError)


def foreign(error: E) -> E:
    """Mark an error: the record exists and is another tenant's. The answer hides that, the audit
    does not."""
    error.add_note(_FOREIGN)
    return error


def is_foreign(error: BaseException) -> bool:
    return _FOREIGN in getattr(error, "__notes__", ())
