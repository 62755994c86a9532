"""A service with a bot whose messages could only be refused does not start."""

import pytest

from holdfast import Context, Holdfast
from holdfast.domain import notification
from holdfast.errors import InvalidSetting
from holdfast.server.service import Service
from tests.server.routes.test_telegram import SECRET, TOKEN, chatting


@pytest.mark.parametrize("name", ["chat.anser", notification.TYPE])
async def test_a_service_does_not_start_for_a_task_that_nobody_has_declared(name: str) -> None:
    app = Holdfast("memory://", telegram_token=TOKEN, telegram_secret=SECRET, telegram_task=name)
    chatting(app, {}, [])
    with pytest.raises(InvalidSetting, match="HOLDFAST_TELEGRAM_TASK"):
        async with Service(app).running():
            pass


async def test_a_service_does_not_start_for_a_task_that_takes_no_message() -> None:
    app = Holdfast("memory://", telegram_token=TOKEN, telegram_secret=SECRET, telegram_task="echo")

    @app.task("echo")
    async def echo(ctx: Context, text: str) -> str:
        return text

    with pytest.raises(InvalidSetting, match=r"it takes no TelegramMessage: payload: .*string"):
        async with Service(app).running():
            pass
