"""The file that says who is told of what, and with which secrets: `HOLDFAST_WEBHOOKS`.

It is read at the start. Secrets are in it and nowhere else: not in the store, not in a log.
"""

from __future__ import annotations

import logging
import stat
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace

from holdfast.domain import names, notification
from holdfast.domain.errors import InvalidInput, InvalidSetting, UrlRefused
from holdfast.domain.notification import Hook
from holdfast.notify.addresses import Allowed
from holdfast.notify.chat import CHATS
from holdfast.notify.signature import Secret
from holdfast.settings import PREFIX, Settings

log = logging.getLogger("holdfast")

FILE = f"{PREFIX}WEBHOOKS"
HOOKS_MAX = 50
FILTERS = ("types", "tenants", "queues")
SECRETS_MAX = 2  # the new one and the old one, while receivers are told the new one


class Hooks(msgspec.Struct, frozen=True, kw_only=True):
    """The receivers that deliveries may go to. Hooks and the bot are named by who runs this,
    callbacks by whoever submits: what is open to the ones is not open to the others."""

    allowed: Allowed
    callbacks_allowed: Allowed
    hooks: Mapping[str, Hook] = {}
    secrets: Mapping[str, tuple[Secret, ...]] = {}  # of hooks, and of callbacks

    def check_callback(self, url: str) -> str:
        """Refuse a callback when there is no secret to sign it with."""
        if notification.CALLBACK not in self.secrets:
            raise UrlRefused(f"callbacks are not set up: {FILE} names a file with their secret")
        return self.callbacks_allowed.check_url(url)

    def allowed_to(self, to: str) -> Allowed:
        return self.callbacks_allowed if to == notification.CALLBACK else self.allowed

    def find(self, to: str) -> Hook | None:
        return self.hooks.get(to.removeprefix(notification.HOOK))

    def secrets_of(self, to: str, tenant: str | None = None) -> tuple[Secret, ...]:
        """Return the secrets for a receiver.

        Each tenant, and tasks without a tenant, have their own callback secret: whoever can verify
        a message can also make one, and must not be able to make another tenant's.
        """
        found = self.secrets.get(to.removeprefix(notification.HOOK), ())
        if to == notification.CALLBACK:
            return tuple(secret.derived(tenant) for secret in found)
        return found


class _Callbacks(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    secret: str | list[str]


class _Hook(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    url: str
    events: list[str]
    secret: str | list[str]
    types: list[str] = []
    tenants: list[str] = []
    queues: list[str] = []
    results: bool = False


class _Book(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    callbacks: _Callbacks | None = None
    hooks: dict[str, _Hook] = {}


def load(settings: Settings) -> Hooks:
    hooks = Hooks(
        allowed=_allowed(f"{PREFIX}WEBHOOK_ALLOW", settings.webhook_allow),
        callbacks_allowed=_allowed(f"{PREFIX}CALLBACK_ALLOW", settings.callback_allow),
    )
    if settings.webhooks is None:
        return hooks
    path = settings.webhooks
    try:
        return _checked(_read(path), hooks)
    except InvalidInput as error:
        raise InvalidSetting(FILE, str(path), str(error)) from error


def _allowed(name: str, words: Sequence[str]) -> Allowed:
    try:
        return Allowed.parse(words, name)
    except InvalidInput as error:
        raise InvalidSetting(name, ",".join(words), str(error)) from error


def _read(path: Path) -> _Book:
    try:
        book = msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), _Book)
        mode = path.stat().st_mode
    except FileNotFoundError:
        raise InvalidInput("there is no such file") from None
    except OSError as error:
        raise InvalidInput(error.strerror or str(error)) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError) as error:
        raise InvalidInput(f"it cannot be read: {error}") from None  # its lines may hold secrets
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        log.warning("%s holds secrets, and others can read it: chmod 600", path)
    return book


def _checked(book: _Book, without: Hooks) -> Hooks:
    if len(book.hooks) > HOOKS_MAX:
        raise InvalidInput(f"it has more than {HOOKS_MAX} hooks")
    secrets: dict[str, tuple[Secret, ...]] = {}
    if book.callbacks is not None:
        secrets[notification.CALLBACK] = _secrets("callbacks", book.callbacks.secret)
    hooks: dict[str, Hook] = {}
    for name, given in book.hooks.items():
        hooks[name] = _hook(name, given, without.allowed)
        secrets[name] = _secrets(f"hooks.{name}", given.secret)
    return replace(without, hooks=hooks, secrets=secrets)


def _hook(name: str, given: _Hook, allowed: Allowed) -> Hook:
    where = f"hooks.{name}"
    if names.check("token", name) in (notification.CALLBACK, *CHATS):
        raise InvalidInput(f"{where}: that name is the engine's")
    if not given.events:
        raise InvalidInput(f"{where}.events is empty: name what it is told of, such as TaskFailed")
    if unknown := sorted(set(given.events) - notification.TELLABLE):
        known = ", ".join(sorted(notification.TELLABLE))
        raise InvalidInput(f"{where}.events: there is no {unknown[0]!r} (there are {known})")
    try:
        url = allowed.check_url(given.url)
    except InvalidInput as error:
        raise InvalidInput(f"{where}.url: {error}") from error
    listed = {one: getattr(given, one) for one in FILTERS}
    filters = {one: frozenset(map(names.normalised, of)) for one, of in listed.items() if of}
    hook = Hook(
        name=name, url=url, events=frozenset(given.events), results=given.results, **filters
    )
    if filters and (unheard := sorted(hook.events & notification.OF_NO_TASK)):
        used = " and ".join(filters)
        raise InvalidInput(
            f"{where}: with {used} it hears of tasks alone, never of {unheard[0]}: make two of it"
        )
    return hook


def _secrets(where: str, given: str | list[str]) -> tuple[Secret, ...]:
    texts = [given] if isinstance(given, str) else given
    if not 0 < len(texts) <= SECRETS_MAX:
        raise InvalidInput(f"{where}.secret: one, or two while it is being changed")
    try:
        return tuple(Secret.parse(text) for text in texts)
    except InvalidInput as error:
        raise InvalidInput(f"{where}.secret: {error}") from None
