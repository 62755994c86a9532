"""The bridge to Telegram: a message to the bot becomes a task, and the task's outcome its answer.

The bot's token is part of the address that answers are posted to. So that address is made for one
post and written down nowhere: a delivery names the chat and the message only.
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec

from holdfast.domain.errors import InvalidInput, InvalidSetting, NotJson, Permanent
from holdfast.domain.notification import Delivery
from holdfast.notify.addresses import Allowed
from holdfast.notify.chat import ChatReply
from holdfast.registry import TaskType
from holdfast.settings import HIDDEN, PREFIX, Settings

log = logging.getLogger("holdfast")

TELEGRAM = "telegram"  # as stored deliveries and replies name it
TOKEN, SECRET = f"{PREFIX}TELEGRAM_TOKEN", f"{PREFIX}TELEGRAM_SECRET"
TASK, API = f"{PREFIX}TELEGRAM_TASK", f"{PREFIX}TELEGRAM_API"
TEXT_UNITS_MAX = 4096  # of UTF-16, in which Telegram counts
CUT = "…"

_TOKEN = re.compile(r"[0-9]{1,20}:[A-Za-z0-9_-]{20,200}")
_SECRET = re.compile(r"[A-Za-z0-9_-]{16,256}")
_REPLY = re.compile(rf"{TELEGRAM}:(-?[0-9]{{1,20}})/(-?[0-9]{{1,20}})")
_NOT_TAKEN = 400
_UNWANTED = 403
_UNKNOWN_BOT = (401, 404)
_ESCAPES = re.compile(  # one after the other: a pair, what no store keeps, or any other
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    r"|(?P<unkept>u(?:0000|[dD][89a-fA-F][0-9a-fA-F]{2}))|.)"
)

_SENTENCES = {  # without the cause: that is for those who run it
    "TaskFailed": "This could not be done yet, and waits for a person (task {id}).",
    "TaskCancelled": "This was cancelled (task {id}).",
    "TaskDiscarded": "This was given up (task {id}).",
    "TaskRolledBack": "This was undone (task {id}).",
    "TaskRollbackFailed": "This could not be undone, and waits for a person (task {id}).",
}
_DONE = "Done (task {id})."
_TOO_LONG = "Done; the result is too long to be shown here (task {id})."


class TelegramMessage(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, gc=False
):
    """The payload of the task that `HOLDFAST_TELEGRAM_TASK` names; in JSON in camel case."""

    text: str
    chat_id: int  # below zero: a group
    message_id: int
    user_id: int
    user_name: str | None = None  # without its @; not everybody has one
    language_code: str | None = None  # of the user's app, as in "de" or "pt-br"
    update_id: int

    @property
    def tenant(self) -> str:
        """Return a tenant for each chat, so that its messages are answered one after the other."""
        return f"{TELEGRAM}:{self.chat_id}"

    @property
    def key(self) -> str:
        """Return a key for each update: Telegram sends one again until it has heard that it
        arrived."""
        return f"{TELEGRAM}:{self.update_id}"

    @property
    def reply(self) -> Reply:
        return Reply(self.chat_id, self.message_id)


@dataclass(frozen=True, slots=True)
class Reply(ChatReply):
    """A message to answer, in its chat."""

    chat_id: int
    message_id: int

    def __str__(self) -> str:
        return f"{TELEGRAM}:{self.chat_id}/{self.message_id}"

    @classmethod
    def parse(cls, text: str) -> Reply:
        found = _REPLY.fullmatch(text)
        if found is None:
            raise Permanent("the delivery names no chat and message")
        return cls(int(found[1]), int(found[2]))


# -- what Telegram sends

_Number = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class _User(msgspec.Struct, frozen=True, gc=False):
    id: _Number
    username: str | None = None
    language_code: str | None = None


class _Chat(msgspec.Struct, frozen=True, gc=False):
    id: _Number


class _Message(msgspec.Struct, frozen=True, gc=False):
    message_id: _Number
    chat: _Chat
    user: _User = msgspec.field(name="from")
    text: str


class _Update(msgspec.Struct, frozen=True, gc=False):
    update_id: _Number
    message: _Message


def read(body: bytes) -> TelegramMessage | None:
    """Return the new text message in an update; None for an edit, a sticker, a new member, …."""
    given = _update(_clean(body))
    if given is None:
        return None
    message, user = given.message, given.message.user
    return TelegramMessage(
        text=message.text,
        chat_id=message.chat.id,
        message_id=message.message_id,
        user_id=user.id,
        user_name=user.username,
        language_code=user.language_code,
        update_id=given.update_id,
    )


def _clean(body: bytes) -> str:
    """Return the text without odd characters: refused for one, a message would come again and
    again."""

    def replace_unkept(found: re.Match[str]) -> str:
        return r"\ufffd" if found["unkept"] else found[0]

    return _ESCAPES.sub(replace_unkept, body.decode(errors="replace"))


def _update(text: str) -> _Update | None:
    """Decode the fields that are needed; all others are skipped, however many there are."""
    try:
        msgspec.json.decode(text, type=msgspec.Raw)  # or what is wrong early hides what follows
        return msgspec.json.decode(text, type=_Update)
    except (msgspec.ValidationError, RecursionError):
        return None
    except msgspec.DecodeError as error:
        raise NotJson("body", str(error)) from None


# -- what it is answered


def answer(delivery: Delivery) -> bytes:
    """Return the body for `sendMessage`: plain text, in which Telegram interprets nothing."""
    reply = Reply.parse(delivery.url)
    return msgspec.json.encode(
        {
            "chat_id": reply.chat_id,
            "text": _short(_text(delivery)),
            "reply_parameters": {
                "message_id": reply.message_id,
                "allow_sending_without_reply": True,
            },
        }
    )


def judge(status: int) -> dict[str, Any] | None:
    """Return the result of a delivery, as `ChatBot.judge` says."""
    if status == _UNWANTED:
        log.info("dropped an answer: Telegram answered %d, the bot may not write there", status)
        return {"status": status, "delivered": False}
    if status == _NOT_TAKEN:
        raise Permanent(
            f"Telegram answered {status}: it does not take this message; it may be that the chat "
            "is gone, or has a new id since the group became a supergroup"
        )
    if status in _UNKNOWN_BOT:
        raise Permanent(f"Telegram answered {status}: it knows no bot with this token; see {TOKEN}")
    return None


def _text(delivery: Delivery) -> str:
    data = msgspec.json.decode(delivery.data)
    sentence = _SENTENCES.get(delivery.event, _DONE)
    if delivery.event not in _SENTENCES:
        if data.get("resultOmitted"):
            sentence = _TOO_LONG
        elif text := _result_text(data.get("result")):
            return text
    return sentence.format(id=data["taskId"])


def _result_text(result: Any) -> str:
    """Return the text of a result; empty if there is none, as Telegram takes no empty message."""
    if isinstance(result, dict):
        texts = (result.get("text"), result.get("answer"))
        result = next((text for text in texts if isinstance(text, str)), result)
    if result is None:
        return ""
    if isinstance(result, str):
        return result if result.strip() else ""
    return msgspec.json.encode(result).decode()


def _short(text: str) -> str:
    units = text.encode("utf-16-le")
    if len(units) <= 2 * TEXT_UNITS_MAX:
        return text
    kept = units[: 2 * (TEXT_UNITS_MAX - len(CUT))]
    return kept.decode("utf-16-le", errors="ignore") + CUT  # half a character at the end goes, too


# -- the settings


def refusal(declared: TaskType) -> str | None:
    """Return why the task takes none of the usual first messages; None if it takes some."""
    problem = None
    for text in ("hello", "/start"):
        message = TelegramMessage(text=text, chat_id=1, message_id=1, user_id=1, update_id=1)
        try:
            declared.payload.encode(msgspec.to_builtins(message))
        except InvalidInput as error:
            problem = f"it takes no TelegramMessage: {error}"
        else:
            return None
    return problem


class Bot:
    """A bot as the settings describe it; no ``repr`` shows its secrets."""

    task_setting = TASK
    read = staticmethod(read)
    refusal = staticmethod(refusal)
    answer = staticmethod(answer)
    judge = staticmethod(judge)

    def __init__(self, *, token: str, secret: str, task: str, api: str) -> None:
        self._token = token
        self.secret = secret
        self.task = task
        self._api = api

    def address(self) -> str:
        """Return the URL for one answer; it holds the token, so nobody may store or log it."""
        return f"{self._api}/bot{self._token}/sendMessage"


def load(settings: Settings, allowed: Allowed) -> Bot | None:
    """Return the bot of the settings; None if they name none."""
    token, secret, task = _reveal(settings)
    given = {TOKEN: token, SECRET: secret, TASK: task}
    missing = [name for name, value in given.items() if not value]
    if len(missing) == len(given):
        return None
    if missing:
        together = ", ".join(given)
        raise InvalidSetting(missing[0], None, f"a bot needs all of {together}")
    if _TOKEN.fullmatch(token) is None:
        form = "that is no token as BotFather gives them: 123456:ABC…"
        raise InvalidSetting(TOKEN, HIDDEN, form)
    if _SECRET.fullmatch(secret) is None:
        form = "16 to 256 of the letters A-Z, a-z, the digits, _ and - are needed"
        raise InvalidSetting(SECRET, HIDDEN, form)
    return Bot(token=token, secret=secret, task=task, api=_api(settings.telegram_api, allowed))


def _reveal(settings: Settings) -> tuple[str, str, str]:
    secrets = (settings.telegram_token, settings.telegram_secret)
    token, secret = ("" if one is None else one.get_secret_value() for one in secrets)
    return token, secret, settings.telegram_task or ""


def _api(url: str, allowed: Allowed) -> str:
    if "?" in url:
        raise InvalidSetting(API, url, "it must not have a query")
    try:
        return allowed.check_url(url).rstrip("/")
    except InvalidInput as error:
        raise InvalidSetting(API, url, str(error)) from error
