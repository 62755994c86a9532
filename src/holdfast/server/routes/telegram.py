"""The route of the Telegram bot: its messages become tasks, and deliveries send the answers."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import msgspec
from fastapi import Request, Response
from pydantic import ConfigDict, RootModel

from holdfast.domain.errors import InvalidInput, KeyConflict
from holdfast.insight.views.workflows import UpdateAccepted
from holdfast.notify.chat import ChatBot, ChatMessage
from holdfast.server.auth.access import ChatSecret
from holdfast.server.http.bodies import ASIDE_BYTES
from holdfast.server.http.route import Routes, needs
from holdfast.server.openapi import schemas as sc
from holdfast.server.service import Service, ServiceOf
from holdfast.server.submission import find_type

IGNORED = {"ok": True, "ignored": True}
REFUSED = "update %s of Telegram is left out, task %s does not take it: %s"
ABOUT = "The secret that setWebhook was given; Telegram sends it along"
SECRET = ChatSecret("telegram", "Telegram", "X-Telegram-Bot-Api-Secret-Token", ABOUT)
TELEGRAM_UPDATE = "TelegramUpdate"  # its name in the OpenAPI document


class TelegramUpdate(RootModel[Any]):
    """An update of Telegram's Bot API. Only new text messages become tasks; everything else is
    accepted and ignored."""

    model_config = ConfigDict(
        title=TELEGRAM_UPDATE,
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


router = Routes("telegram")
_needs = needs(None, 400, 401, 404, 413, 415, 422, 429, 503, secret=SECRET, large=TelegramUpdate)
_BODY = {"schema": {"$ref": f"#/components/schemas/{TELEGRAM_UPDATE}"}}
_needs["openapi_extra"]["requestBody"] = {"content": {"application/json": _BODY}, "required": True}


@router.post("/api/telegram/webhook", response_model=UpdateAccepted, **_needs)
async def telegram_webhook(request: Request, service: ServiceOf) -> Response:
    """Turn a text message to the Telegram bot into a task. Only Telegram calls this route. A
    repeated update becomes the same task. An update that becomes no task is accepted, too;
    otherwise Telegram would send it again and again."""
    bot = service.app.bot
    assert bot is not None  # or nobody would have been let in
    message = await _read(bot, request)
    if message is None:
        return sc.answer(200, IGNORED)
    try:
        task_id = await _submit_message(service, bot.task, message)
    except (InvalidInput, KeyConflict) as error:
        service.lines.say(logging.WARNING, REFUSED, message.update_id, bot.task, error)
        return sc.answer(200, IGNORED)
    return sc.answer(200, {"ok": True, "taskId": task_id})


async def _read(bot: ChatBot, request: Request) -> ChatMessage | None:
    """Read an update without the checks of other bodies, which refuse unknown names and odd
    characters."""
    body = await request.body()
    if len(body) <= ASIDE_BYTES:
        return bot.read(body)
    return await asyncio.to_thread(bot.read, body)


async def _submit_message(service: Service, task: str, message: ChatMessage) -> str:
    handle = await service.app.submit(
        find_type(service, task),
        msgspec.to_builtins(message),
        tenant=message.tenant,
        key=message.key,
        callback=message.reply,
    )
    return handle.id
