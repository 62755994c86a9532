"""Who asks, and what they may do. Every request comes through `admit`: this is the one place.

Each route says which role it needs (`needs`); a route that says nothing is not served. A token may
be limited to tenants. Then what belongs to others does not exist for it, and what concerns all of
them is refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from fastapi import Depends, Request

from holdfast.domain.errors import HoldfastError, InvalidInput
from holdfast.domain.task.task import By
from holdfast.engine.visibility import Sight
from holdfast.server.auth.tokens import Role, Token

ROLE = "x-holdfast-role"
PUBLIC = "public"
TELEGRAM = "Telegram's secret"
SCHEME = "token"  # of the OpenAPI document
TELEGRAM_SCHEME = "telegram"
TELEGRAM_HEADER = "X-Telegram-Bot-Api-Secret-Token"
ONE_VALUED = frozenset(  # of two of them one program would read the first, another the last
    {
        b"authorization",
        b"content-encoding",
        b"content-length",
        b"content-type",
        b"idempotency-key",
        b"last-event-id",
        b"traceparent",
        TELEGRAM_HEADER.lower().encode(),
    }
)
_FOREIGN = "another's"


class Unauthenticated(HoldfastError, stored_name="Unauthenticated"):
    code = "unauthenticated"


class Forbidden(HoldfastError, stored_name="Forbidden"):
    code = "forbidden"


class RepeatedHeader(HoldfastError, stored_name="RepeatedHeader"):
    code = "repeated-header"

    def __init__(self, name: str) -> None:
        super().__init__(f"the header {name} stands in the request more than once; send one")


class TooManyRequests(HoldfastError, stored_name="TooManyRequests"):
    code = "too-many-requests"

    def __init__(
        self, retry_seconds: float, says: str = "this token has sent too many requests"
    ) -> None:
        super().__init__(f"{says}; try again later")
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

    def by(self, reason: str = "") -> By:
        return By(actor=self.actor, origin=self.origin, reason=reason)

    def sees(self, tenant: str | None) -> bool:
        return self.tenants is None or tenant in self.tenants

    def tenant_for(self, asked: str | None) -> str | None:
        """The tenant to submit for or to look at: who has one tenant only need not name it."""
        if self.tenants is None:
            return asked
        if asked is None and len(self.tenants) == 1:
            return next(iter(self.tenants))
        if asked is None:
            raise InvalidInput("tenant: this token has several tenants, so name one of them")
        if asked not in self.tenants:
            raise Forbidden("this token is not for that tenant")
        return asked


@dataclass(frozen=True, slots=True)
class Need:
    """What a route needs of its caller; ``role`` None: nothing."""

    role: Role | None
    everywhere: bool = False  # concerns all tenants: not for a token that is limited to some
    telegram: bool = False  # no token: the secret that Telegram was given for us

    @property
    def said(self) -> str:
        if self.telegram:
            return TELEGRAM
        if self.role is None:
            return PUBLIC
        return f"{self.role}, of all tenants" if self.everywhere else str(self.role)

    def refusal(self, caller: Caller) -> Forbidden | None:
        if self.role is not None and caller.role.rank < self.role.rank:
            return Forbidden(f"this needs the role {self.role}, and the token has {caller.role}")
        if self.everywhere and caller.tenants is not None:
            return Forbidden("this concerns all tenants, and the token is limited to some")
        return None


def caller_of_token(token: Token, origin: str) -> Caller:
    return Caller(
        actor=f"api:{token.name}",
        origin=origin,
        role=token.role,
        token_id=token.id,
        tenants=frozenset(token.tenants) if token.tenants else None,
    )


def check_headers(request: Request) -> None:
    """Refuse a request in which a header of one value stands twice."""
    found = [name for name, _ in request.scope["headers"] if name in ONE_VALUED]
    if len(set(found)) < len(found):
        repeated = next(name for name in found if found.count(name) > 1)
        raise RepeatedHeader(repeated.decode())


def bearer(request: Request) -> str:
    scheme, _, text = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not text.strip():
        raise Unauthenticated("send a token in the header Authorization, as Bearer hf_…")
    return text.strip()


def secret_of_telegram(request: Request) -> str:
    text = request.headers.get(TELEGRAM_HEADER)
    if not text:
        raise Unauthenticated(f"send the secret in the header {TELEGRAM_HEADER}")
    return text


def described(need: Need) -> dict[str, Any]:
    """For the OpenAPI document, from which the route reads its need back."""
    if need.telegram:
        return {ROLE: need.said, "security": [{TELEGRAM_SCHEME: []}]}
    return {ROLE: need.said, "security": [] if need.role is None else [{SCHEME: []}]}


def caller_of(request: Request) -> Caller:
    found: Caller = request.state.caller
    return found


async def _caller(request: Request) -> Caller:
    return caller_of(request)


CallerOf = Annotated[Caller, Depends(_caller)]


E = TypeVar("E", bound=HoldfastError)


def foreign(error: E) -> E:
    """It is there, and another's: its answer is that of what never was, and the audit knows."""
    error.add_note(_FOREIGN)
    return error


def is_foreign(error: BaseException) -> bool:
    return _FOREIGN in getattr(error, "__notes__", ())


def only_visible(caller: Caller, tenants: Iterable[str | None]) -> bool:
    return all(caller.sees(tenant) for tenant in tenants)
