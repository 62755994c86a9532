"""The stage of a delivery: it sends what was to be told, once per attempt.

The engine retries it with its own back-off and suspends it when that is spent. A receiver that does
not answer is left alone for a while: its deliveries wait, and take no room from those of others.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from holdfast.app import chat
from holdfast.app.hooks import Hooks
from holdfast.app.receivers import Receivers
from holdfast.codec import Codec
from holdfast.domain import telling
from holdfast.domain.envelope import iso
from holdfast.domain.errors import NotDelivered, Permanent, RetryAfter, Snooze, UrlRefused
from holdfast.domain.retry import Retry
from holdfast.domain.telling import Delivery
from holdfast.registry import TaskType, own_type
from holdfast.runtime.context import Context
from holdfast.sinks.signing import sign

if TYPE_CHECKING:
    from holdfast.app.core import Holdfast
    from holdfast.sinks.posting import Answered, Poster

RETRY = Retry(max=12, backoff=("5s", "30s", "2m", "10m", "30m", "1h", "2h", "4h"), jitter=0.2)
TIMEOUT_SECONDS = 60.0  # the poster gives up long before
KEEP_SECONDS = 86_400.0
GIVE_UP_SECONDS = 86_400.0  # a telling that old is a person's business
GONE = 410
JSON_HEADERS = {"content-type": "application/json", "user-agent": "holdfast"}


def can_deliver() -> bool:
    """Without httpcore a worker does not know the type, and leaves deliveries to others."""
    return importlib.util.find_spec("httpcore") is not None


def declare(app: Holdfast, hooks: Hooks) -> TaskType:
    """The type of its tasks, on every app."""
    deliverer = Deliverer(app, hooks)

    async def deliver(ctx: Context, told: Delivery) -> dict[str, Any]:
        return await deliverer.deliver(ctx, told)

    return own_type(
        telling.TYPE,
        telling.QUEUE,
        telling.STAGE,
        deliver,
        payload=Codec(Delivery),
        retry=RETRY,
        timeout_seconds=TIMEOUT_SECONDS,
        keep_seconds=KEEP_SECONDS,
    )


class Letter(NamedTuple):
    url: str
    body: bytes
    headers: Mapping[str, str]


class Deliverer:
    def __init__(self, app: Holdfast, hooks: Hooks) -> None:
        self._app = app
        self._hooks = hooks
        self._receivers = Receivers(app)
        self._poster: Poster | None = None

    async def deliver(self, ctx: Context, told: Delivery) -> dict[str, Any]:
        letter = self._letter(ctx, told)
        try:
            receiver = self._hooks.allowed.target(letter.url).authority
            answered = await self._post(letter, receiver, told)
        except UrlRefused as error:
            raise Permanent(str(error)) from None
        if told.to == telling.TELEGRAM:
            chat.check_answered(answered.status)
        return _judged(answered, receiver)

    async def _post(self, letter: Letter, receiver: str, told: Delivery) -> Answered:
        if wait := self._receivers.wait_seconds(receiver):
            self._check_age(told)
            raise Snooze(wait)
        with self._receivers.attempt(receiver) as attempt:
            answered = await self._posting().post(letter.url, letter.body, letter.headers)
            attempt.answered = answered.status < 500
        return answered

    def _check_age(self, told: Delivery) -> None:
        """It may wait for its receiver without an attempt of its own, but not for ever."""
        if self._app.clock.now() - told.at > GIVE_UP_SECONDS:
            raise Permanent("the receiver has not answered for a day")

    def _letter(self, ctx: Context, told: Delivery) -> Letter:
        if told.to == telling.CALLBACK:
            return self._signed(ctx, told, told.url)
        if told.to == telling.TELEGRAM:
            return self._answer(told)
        hook = self._hooks.find(told.to)
        if hook is None:
            raise Permanent(f"no hook {told.to.removeprefix(telling.HOOK)!r} is configured here")
        return self._signed(ctx, told, hook.url)

    def _answer(self, told: Delivery) -> Letter:
        """To a chat, which knows by the bot's token who speaks."""
        bot = self._app.bot
        if bot is None:
            raise Permanent(f"no Telegram bot is configured here; see {chat.TOKEN}")
        return Letter(bot.address(), chat.answer(told), JSON_HEADERS)

    def _signed(self, ctx: Context, told: Delivery, url: str) -> Letter:
        """As the Standard Webhooks have it: the id is the same at each attempt."""
        said = {"type": told.event, "timestamp": iso(told.at), "data": told.data}
        body, now = msgspec.json.encode(said), int(self._app.clock.now())
        message_id = ctx.task_id.replace(".", "-")  # a dot divides what is signed
        secrets = self._hooks.secrets_of(told.to)
        if not secrets:
            raise Permanent("no secret is configured here to sign it with")
        headers = {
            **JSON_HEADERS,
            "webhook-id": message_id,
            "webhook-timestamp": str(now),
            "webhook-signature": sign(secrets, message_id, now, body),
        }
        return Letter(url, body, headers)

    def _posting(self) -> Poster:
        if self._poster is None:
            from holdfast.sinks.posting import Poster

            limit = self._app.settings.webhook_timeout
            self._poster = Poster(self._hooks.allowed, timeout_seconds=limit)
        return self._poster


def _judged(answered: Answered, receiver: str) -> dict[str, Any]:
    status = answered.status
    if 200 <= status < 300:
        return {"status": status}
    if 300 <= status < 400:
        raise Permanent(f"{receiver} answered {status}: redirects are not followed, mend the URL")
    if status == GONE:
        raise Permanent(f"{receiver} answered {status}: it wants no more of these")
    if answered.retry_after_seconds is not None:
        raise RetryAfter(answered.retry_after_seconds, f"{receiver} answered {status}")
    raise NotDelivered(f"{receiver} answered {status}")
