"""Telegram: what is written to the bot comes in here. The answers go out as deliveries."""

from __future__ import annotations

import logging
from typing import Annotated, Any

import msgspec
from fastapi import Response
from pydantic import BaseModel, ConfigDict, Field

from holdfast.app import chat
from holdfast.app.chat import TelegramMessage
from holdfast.domain.errors import InvalidInput, KeyConflict
from holdfast.server import schemas as sc
from holdfast.server.routing import Routes, needs
from holdfast.server.service import Service, ServiceOf
from holdfast.server.submitting import declared

router = Routes("telegram")

IGNORED = {"ok": True, "ignored": True}
REFUSED = "update %s of Telegram is left out, task %s does not take it: %s"


class Update(BaseModel):
    """Something that happened at Telegram. Of all its kinds a new text message is looked at."""

    model_config = ConfigDict(
        extra="ignore",
        json_schema_extra={
            "examples": [
                {
                    "update_id": 10_000,
                    "message": {
                        "message_id": 17,
                        "from": {"id": 4711, "username": "ann", "language_code": "en"},
                        "chat": {"id": 4711, "type": "private"},
                        "date": 1_769_860_800,
                        "text": "How is my order?",
                    },
                }
            ]
        },
    )

    update_id: Annotated[int, sc.NUMBER]
    message: Any = Field(default=None, description="A message, as the Bot API has it")


class Heard(sc.Answer):
    """It need not be sent again."""

    ok: bool
    task_id: str | None = Field(default=None, description="Of the task it has become")
    ignored: bool | None = Field(default=None, description="No task came of it")


@router.post(
    "/api/telegram/webhook",
    response_model=Heard,
    **needs(None, 401, 404, 413, 415, 422, 429, 503, telegram=True, large=Update),
)
async def telegram_webhook(update: Update, service: ServiceOf) -> Response:
    """For Telegram alone: a text message to the bot becomes a task. An update that comes again is
    the same task. What no task can come of is taken, too, or Telegram would send it for ever."""
    bot, message = service.app.bot, chat.read(update.model_dump())
    assert bot is not None  # or nobody would have been let in
    if message is None:
        return sc.answer(200, IGNORED)
    try:
        task_id = await _submitted(service, bot.task, message)
    except (InvalidInput, KeyConflict) as error:
        service.lines.say(logging.WARNING, REFUSED, message.update_id, bot.task, error)
        return sc.answer(200, IGNORED)
    return sc.answer(200, {"ok": True, "taskId": task_id})


async def _submitted(service: Service, task: str, message: TelegramMessage) -> str:
    handle = await service.app.submit(
        declared(service, task),
        msgspec.to_builtins(message),
        tenant=message.tenant,
        key=message.key,
        callback=message.reply,
    )
    return handle.id
