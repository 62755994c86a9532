"""Holdfast inside other frameworks and services; each integration needs its own library.

The engine imports this package, which registers the chat services, and no module in it.
"""

from holdfast.notify.addresses import Allowed
from holdfast.notify.chat import BOT_LOADERS, ChatBot
from holdfast.settings import Settings


def _load_telegram(settings: Settings, allowed: Allowed) -> ChatBot | None:
    """Return the bot of the settings; without any of them, the integration is not imported."""
    if (settings.telegram_token, settings.telegram_secret, settings.telegram_task) == (None,) * 3:
        return None
    from holdfast.integrations import telegram

    return telegram.load(settings, allowed)


BOT_LOADERS["telegram"] = _load_telegram
