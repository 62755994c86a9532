"""A delivery is a task with one stage, which posts one message per attempt.

The engine retries it with its own back-off and suspends it after the last attempt. A receiver that
does not answer gets a pause: its deliveries wait and take no slot from others.
"""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import msgspec

from holdfast.domain import notification
from holdfast.domain.backoff import stretch
from holdfast.domain.errors import NotDelivered, Permanent, Snooze, UrlRefused
from holdfast.domain.notification import Delivery
from holdfast.domain.task.envelope import iso
from holdfast.domain.task.retry import Retry
from holdfast.encoding.codec import Codec
from holdfast.notify.hooks import Hooks
from holdfast.notify.name_lookup import CannotResolveNow
from holdfast.notify.receivers import FAILURES_MAX, Receivers
from holdfast.notify.signature import sign
from holdfast.notify.slots import Shares
from holdfast.registry import TaskType, own_type
from holdfast.runtime.context import Context
from holdfast.runtime.worker.claimer import DELIVERIES
from holdfast.settings import PREFIX

if TYPE_CHECKING:
    from holdfast.engine.core import Holdfast
    from holdfast.notify.addresses import Allowed
    from holdfast.notify.post import Answered, Poster

log = logging.getLogger("holdfast")

RETRY = Retry(max=12, backoff=("5s", "30s", "2m", "10m", "30m", "1h", "2h", "4h"), jitter=0.2)
TIMEOUT_SECONDS = 60.0  # the poster gives up long before
KEEP_SECONDS = 86_400.0
GIVE_UP_SECONDS = 86_400.0  # what has waited that long is a person's business
LONGEST_WAIT_SECONDS = 900.0
JITTER = 0.3
NOT_HERE_SECONDS = 600.0  # for a rolling start of all processes with a new file
NOT_HERE_REST_SECONDS = 15.0
NO_ROOM_REST_SECONDS = 5.0
CALLBACKS = DELIVERIES * 3 // 4  # at a time: who may only submit cannot take all room from hooks
OF_HOOK = DELIVERIES * 3 // 4  # at a time at one host: one that hangs leaves room for others
GONE = 410
BUSY = (429, 503)
JSON_HEADERS = {"content-type": "application/json", "user-agent": "holdfast"}


def can_deliver(hooks: Hooks) -> bool:
    """Return whether httpcore is installed; without it a worker leaves deliveries to others."""
    can = importlib.util.find_spec("httpcore") is not None
    if hooks.secrets and not can:
        log.warning(
            "webhooks are configured, but cannot be sent: pip install 'holdfast-engine[webhooks]'"
        )
    return can


def declare(app: Holdfast, hooks: Hooks) -> TaskType:
    """Return the task type of deliveries, which every app has."""
    deliverer = Deliverer(app, hooks)

    async def deliver(ctx: Context, told: Delivery) -> dict[str, Any]:
        return await deliverer.deliver(ctx, told)

    return own_type(
        notification.TYPE,
        notification.QUEUE,
        notification.STAGE,
        deliver,
        payload=Codec(Delivery),
        retry=RETRY,
        timeout_seconds=TIMEOUT_SECONDS,
        keep_seconds=KEEP_SECONDS,
    )


class NotHere(Exception):
    """This process cannot send the message; a process with a newer file may."""


class SignedMessage(NamedTuple):
    url: str
    body: bytes
    headers: Mapping[str, str]


class Deliverer:
    def __init__(self, app: Holdfast, hooks: Hooks) -> None:
        self._app = app
        self._hooks = hooks
        # Apart: who may only submit must not be able to put the receivers of hooks to rest.
        self._of_callbacks, self._of_others = Receivers(app), Receivers(app)
        self._shares = Shares(CALLBACKS)
        self._posters: dict[Allowed, Poster] = {}

    async def deliver(self, ctx: Context, told: Delivery) -> dict[str, Any]:
        if told.to == notification.NOBODY:
            return {"status": None}
        try:
            letter = self._letter(ctx, told)
        except NotHere as error:
            return await self._later(ctx, NOT_HERE_REST_SECONDS, str(error), NOT_HERE_SECONDS)
        try:
            allowed = self._hooks.allowed_to(told.to)
            receiver = allowed.target(letter.url).authority
            answered = await self._post(ctx, letter, told)
        except UrlRefused as error:
            raise Permanent(str(error)) from None
        except CannotResolveNow as error:
            return await self._later(ctx, NO_ROOM_REST_SECONDS, str(error))
        if answered.status in BUSY and answered.retry_after_seconds is not None:
            said = f"{receiver} answered {answered.status}"
            return await self._later(ctx, answered.retry_after_seconds, said)
        bot = self._app.bot if notification.is_chat(told.to) else None
        judged = bot.judge(answered.status) if bot is not None else None
        return judged or _judged(answered, receiver)

    async def _post(self, ctx: Context, letter: SignedMessage, told: Delivery) -> Answered:
        """A host that does not answer is left alone as a whole; of one that answers, only the
        address that fails: others share the host."""
        is_callback = told.to == notification.CALLBACK
        known = self._of_callbacks if is_callback else self._of_others
        allowed, address = self._hooks.allowed_to(told.to), letter.url.partition("?")[0]
        host = allowed.target(letter.url).shown
        if wait := max(known.wait_seconds(host), known.wait_seconds(address)):
            await self._later(ctx, wait, f"{host} has failed {FAILURES_MAX} times in a row")
        sharers = (("tenant", told.tenant), ("receiver", host)) if is_callback else ()
        if not self._shares.has_room(*sharers):
            says = f"{host} or the tenant has its share of {CALLBACKS} callbacks under way"
            await self._later(ctx, NO_ROOM_REST_SECONDS, says)
        if not is_callback and known.under_way(host) >= OF_HOOK:
            await self._later(ctx, NO_ROOM_REST_SECONDS, f"{OF_HOOK} are under way to {host}")
        with (
            self._shares.place(*sharers) if is_callback else nullcontext(),
            known.attempt(host) as at_host,
            known.attempt(address) as at_address,
        ):
            try:
                answered = await self._posting(allowed).post(
                    letter.url, letter.body, letter.headers
                )
            except (CannotResolveNow, UrlRefused):  # it was not asked
                at_host.answered = at_address.answered = None
                raise
            at_host.answered, at_address.answered = True, answered.status < 500
        return answered

    async def _later(
        self, ctx: Context, seconds: float, why: str, limit_seconds: float = GIVE_UP_SECONDS
    ) -> NoReturn:
        """Postpone the delivery without a failure, and suspend it after a limit.

        The limit counts from the first such wait of a run, so a person who resumes the task starts
        it again. The longer a delivery has waited, the longer it waits next time.
        """
        now, own = self._app.clock.now(), (await self._app.store.views.load([ctx.task_id]))[0]
        run, kind = own.run if own is not None else 0, f"{limit_seconds:g}"
        waits = ctx.data.get("waits", {}) if ctx.data.get("run") == run else {}
        since = waits.get(kind, now)
        if now - since > limit_seconds:
            raise Permanent(f"put off again and again: {why}")
        ctx.data.update(run=run, waits={**waits, kind: since})
        wait = max(1.0, seconds, min(LONGEST_WAIT_SECONDS, (now - since) / 4))
        raise Snooze(stretch(wait, JITTER, self._app.chance.random()), why)

    def _letter(self, ctx: Context, told: Delivery) -> SignedMessage:
        if told.to == notification.CALLBACK:
            return self._signed(ctx, told, told.url)
        if notification.is_chat(told.to):
            return self._answer(told)
        hook = self._hooks.find(told.to)
        if hook is None:
            raise NotHere(f"no hook {told.to.removeprefix(notification.HOOK)!r} is configured here")
        return self._signed(ctx, told, hook.url)

    def _answer(self, told: Delivery) -> SignedMessage:
        """Return the message to a chat, which recognises us by the bot's token."""
        bot = self._app.bot
        if bot is None:
            raise NotHere(
                f"no {told.to.title()} bot is configured here; see {PREFIX}{told.to.upper()}_TOKEN"
            )
        return SignedMessage(bot.address(), bot.answer(told), JSON_HEADERS)

    def _signed(self, ctx: Context, told: Delivery, url: str) -> SignedMessage:
        """Return the message with its signature, as Standard Webhooks define it; the id is the same
        for each attempt.
        """
        said = {"type": told.event, "timestamp": iso(told.at), "data": told.data}
        body, now = msgspec.json.encode(said), int(self._app.clock.now())
        message_id = ctx.task_id.replace(".", "-")  # a dot divides what is signed
        secrets = self._hooks.secrets_of(told.to, told.tenant)
        if not secrets:
            raise NotHere("no secret is configured here to sign it with")
        headers = {
            **JSON_HEADERS,
            "webhook-id": message_id,
            "webhook-timestamp": str(now),
            "webhook-signature": sign(secrets, message_id, now, body),
        }
        return SignedMessage(url, body, headers)

    def _posting(self, allowed: Allowed) -> Poster:
        if allowed not in self._posters:
            from holdfast.notify.post import Poster

            limit = self._app.settings.webhook_timeout
            self._posters[allowed] = Poster(allowed, timeout_seconds=limit)
        return self._posters[allowed]


def _judged(answered: Answered, receiver: str) -> dict[str, Any]:
    status = answered.status
    if 200 <= status < 300:
        return {"status": status}
    if 300 <= status < 400:
        raise Permanent(f"{receiver} answered {status}: redirects are not followed, mend the URL")
    if status == GONE:
        raise Permanent(f"{receiver} answered {status}: it wants no more of these")
    raise NotDelivered(f"{receiver} answered {status}")
