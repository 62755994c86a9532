"""The port of a chat bot: a message to it becomes a task, and the task's outcome is its answer.

An integration implements the port and registers the loader of its bot. The engine, the deliveries
and the server know no more of a chat service than this.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from holdfast.domain.notification import Delivery
from holdfast.notify.addresses import Allowed
from holdfast.registry import TaskType
from holdfast.settings import Settings


class ChatReply:
    """Address a message to answer; ``str`` gives the form that is stored as a task's callback.

    Only an integration makes one: no text that a caller sends becomes a reply.
    """

    __slots__ = ()


class ChatMessage(Protocol):
    """A message that was read from a request of the chat service; it is the task's payload."""

    @property
    def update_id(self) -> int: ...

    @property
    def tenant(self) -> str: ...

    @property
    def key(self) -> str: ...

    @property
    def reply(self) -> ChatReply: ...


class ChatBot(Protocol):
    """A bot as the settings describe it."""

    task: str  # the type of the task that gets the messages
    task_setting: str  # the setting that names this type
    secret: str  # the chat service sends it with each request

    def address(self) -> str:
        """Return the URL for one answer; it holds the token, so nobody may store or log it."""

    def read(self, body: bytes) -> ChatMessage | None:
        """Return the text message in a request of the service; None for any other update."""

    def refusal(self, declared: TaskType) -> str | None:
        """Return why the task type takes no message; None if it takes some."""

    def answer(self, delivery: Delivery) -> bytes:
        """Return the body that posts the outcome of a task as an answer."""

    def judge(self, status: int) -> dict[str, Any] | None:
        """Return the result of a delivery that needs no repair; None for the usual judgement.

        Raise `Permanent` when a person has to act.
        """


# By the name that is stored with deliveries and replies; no hook may have such a name.
BOT_LOADERS: dict[str, Callable[[Settings, Allowed], ChatBot | None]] = {}


def load_bot(settings: Settings, allowed: Allowed) -> ChatBot | None:
    """Return the bot that the settings describe; None if they describe none."""
    bots = (load(settings, allowed) for load in BOT_LOADERS.values())
    return next((bot for bot in bots if bot is not None), None)
