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
from holdfast.notify.chat import BOT_LOADERS
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
GIVE_UP_SECONDS = 86_400.0  # a delivery that has waited that long needs a person
LONGEST_WAIT_SECONDS = 900.0
JITTER = 0.3
NOT_HERE_SECONDS = 600.0  # for a rolling start of all processes with a new file
NOT_HERE_REST_SECONDS = 15.0
NO_ROOM_REST_SECONDS = 5.0
CALLBACKS = DELIVERIES * 3 // 4  # at a time: submitters cannot take all slots from hooks
OF_HOOK = DELIVERIES * 3 // 4  # at a time at one host: one that hangs leaves slots for others
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
    return own_type(
        notification.TYPE,
        notification.QUEUE,
        notification.STAGE,
        Deliverer(app, hooks).deliver,
        payload=Codec(Delivery),
        retry=RETRY,
        timeout_seconds=TIMEOUT_SECONDS,
        keep_seconds=KEEP_SECONDS,
    )


class NotHere(Exception):
    """The message cannot be sent by this process; one with a newer file of hooks may send it."""


class SignedMessage(NamedTuple):
    url: str
    body: bytes
    headers: Mapping[str, str]


class Deliverer:
    def __init__(self, app: Holdfast, hooks: Hooks) -> None:
        self._app = app
        self._hooks = hooks
        # Kept apart: a submitter must not be able to give the receivers of hooks a pause.
        self._of_callbacks, self._of_others = Receivers(app), Receivers(app)
        self._shares = Shares(CALLBACKS)
        self._posters: dict[Allowed, Poster] = {}

    async def deliver(self, ctx: Context, delivery: Delivery) -> dict[str, Any]:
        if delivery.to == notification.NOBODY:
            return {"status": None}
        try:
            message = self._message(ctx, delivery)
        except NotHere as error:
            return await self._later(ctx, NOT_HERE_REST_SECONDS, str(error), NOT_HERE_SECONDS)
        try:
            allowed = self._hooks.allowed_to(delivery.to)
            receiver = allowed.target(message.url).authority
            answered = await self._post(ctx, message, delivery)
        except UrlRefused as error:
            raise Permanent(str(error)) from None
        except CannotResolveNow as error:
            return await self._later(ctx, NO_ROOM_REST_SECONDS, str(error))
        if answered.status in BUSY and answered.retry_after_seconds is not None:
            reason = f"{receiver} answered {answered.status}"
            return await self._later(ctx, answered.retry_after_seconds, reason)
        bot = self._app.bot if delivery.to in BOT_LOADERS else None
        result = bot.judge(answered.status) if bot is not None else None
        return result or _judge(answered.status, receiver)

    async def _post(self, ctx: Context, message: SignedMessage, delivery: Delivery) -> Answered:
        """Post the message, unless its receiver has a pause or no free slot.

        A host that does not answer gets a pause as a whole. Of a host that answers, only the
        address that fails gets one, because others share the host.
        """
        is_callback = delivery.to == notification.CALLBACK
        known = self._of_callbacks if is_callback else self._of_others
        allowed, address = self._hooks.allowed_to(delivery.to), message.url.partition("?")[0]
        host = allowed.target(message.url).shown
        if wait := max(known.wait_seconds(host), known.wait_seconds(address)):
            await self._later(ctx, wait, f"{host} has failed {FAILURES_MAX} times in a row")
        sharers = (("tenant", delivery.tenant), ("receiver", host)) if is_callback else ()
        if not self._shares.has_room(*sharers):
            reason = f"{host} or the tenant has its share of {CALLBACKS} callbacks under way"
            await self._later(ctx, NO_ROOM_REST_SECONDS, reason)
        if not is_callback and known.under_way(host) >= OF_HOOK:
            reason = f"{OF_HOOK} deliveries are under way to {host}"
            await self._later(ctx, NO_ROOM_REST_SECONDS, reason)
        with (
            self._shares.place(*sharers) if is_callback else nullcontext(),
            known.attempt(host) as at_host,
            known.attempt(address) as at_address,
        ):
            try:
                answered = await self._poster(allowed).post(*message)
            except (CannotResolveNow, UrlRefused):  # the receiver was not asked
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
            raise Permanent(f"postponed again and again: {why}")
        ctx.data.update(run=run, waits={**waits, kind: since})
        wait = max(1.0, seconds, min(LONGEST_WAIT_SECONDS, (now - since) / 4))
        raise Snooze(stretch(wait, JITTER, self._app.chance.random()), why)

    def _message(self, ctx: Context, delivery: Delivery) -> SignedMessage:
        to, bot = delivery.to, self._app.bot
        if to == notification.CALLBACK:
            return self._sign(ctx, delivery, delivery.url)
        if to in BOT_LOADERS:
            if bot is None:
                setting = f"{PREFIX}{to.upper()}_TOKEN"
                raise NotHere(f"no {to.title()} bot is configured here; see {setting}")
            # The chat recognises us by the bot's token, which is in the address.
            return SignedMessage(bot.address(), bot.answer(delivery), JSON_HEADERS)
        hook = self._hooks.find(to)
        if hook is None:
            raise NotHere(f"no hook {to.removeprefix(notification.HOOK)!r} is configured here")
        return self._sign(ctx, delivery, hook.url)

    def _sign(self, ctx: Context, delivery: Delivery, url: str) -> SignedMessage:
        """Return the message with its signature, as Standard Webhooks define it; the id is the same
        for each attempt.
        """
        content = {"type": delivery.event, "timestamp": iso(delivery.at), "data": delivery.data}
        body, now = msgspec.json.encode(content), int(self._app.clock.now())
        message_id = ctx.task_id.replace(".", "-")  # a dot divides what is signed
        secrets = self._hooks.secrets_of(delivery.to, delivery.tenant)
        if not secrets:
            raise NotHere("no secret to sign the message is configured here")
        headers = {
            **JSON_HEADERS,
            "webhook-id": message_id,
            "webhook-timestamp": str(now),
            "webhook-signature": sign(secrets, message_id, now, body),
        }
        return SignedMessage(url, body, headers)

    def _poster(self, allowed: Allowed) -> Poster:
        if allowed not in self._posters:
            from holdfast.notify.post import Poster

            limit = self._app.settings.webhook_timeout
            self._posters[allowed] = Poster(allowed, timeout_seconds=limit)
        return self._posters[allowed]


def _judge(status: int, receiver: str) -> dict[str, Any]:
    """Return the result of a delivery that was accepted; raise for every other status."""
    if 200 <= status < 300:
        return {"status": status}
    if 300 <= status < 400:
        raise Permanent(f"{receiver} answered {status}: redirects are not followed, change the URL")
    if status == GONE:
        raise Permanent(f"{receiver} answered {status}: it wants no more deliveries")
    raise NotDelivered(f"{receiver} answered {status}")
