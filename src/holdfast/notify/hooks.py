"""The file of hooks, `HOLDFAST_WEBHOOKS`: who receives which events, signed with which secrets.

The process reads it at its start. Secrets are in it and nowhere else: not in the store, not in a
log.
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
from holdfast.notify.chat import BOT_LOADERS
from holdfast.notify.signature import Secret
from holdfast.settings import PREFIX, Settings

log = logging.getLogger("holdfast")

FILE = f"{PREFIX}WEBHOOKS"
HOOKS_MAX = 50
FILTERS = ("types", "tenants", "queues")
SECRETS_MAX = 2  # the new one and the old one, until all receivers have the new one


class Hooks(msgspec.Struct, frozen=True, kw_only=True):
    """The receivers that deliveries may go to.

    The operator names hooks and the bot, a submitter names callbacks: each has its own list of
    allowed addresses.
    """

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
        secrets = self.secrets.get(to.removeprefix(notification.HOOK), ())
        if to == notification.CALLBACK:
            return tuple(secret.derive(tenant) for secret in secrets)
        return secrets


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
        allowed=_parse_allowed(f"{PREFIX}WEBHOOK_ALLOW", settings.webhook_allow),
        callbacks_allowed=_parse_allowed(f"{PREFIX}CALLBACK_ALLOW", settings.callback_allow),
    )
    if settings.webhooks is None:
        return hooks
    path = settings.webhooks
    try:
        return _add_hooks(_read(path), hooks)
    except InvalidInput as error:
        raise InvalidSetting(FILE, str(path), str(error)) from error


def _parse_allowed(name: str, words: Sequence[str]) -> Allowed:
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
        raise InvalidInput(f"the file cannot be read: {error}") from None  # may hold secrets
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        log.warning("other users can read %s, which contains secrets: run chmod 600 on it", path)
    return book


def _add_hooks(book: _Book, without: Hooks) -> Hooks:
    if len(book.hooks) > HOOKS_MAX:
        raise InvalidInput(f"the file has more than {HOOKS_MAX} hooks")
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
    if names.check("token", name) in (notification.CALLBACK, *BOT_LOADERS):
        raise InvalidInput(f"{where}: the engine uses that name itself")
    if not given.events:
        raise InvalidInput(f"{where}.events is empty: name events such as TaskFailed")
    if unknown := sorted(set(given.events) - notification.TELLABLE):
        known = ", ".join(sorted(notification.TELLABLE))
        raise InvalidInput(f"{where}.events: there is no {unknown[0]!r} (there are {known})")
    try:
        url = allowed.check_url(given.url)
    except InvalidInput as error:
        raise InvalidInput(f"{where}.url: {error}") from error
    filters = {
        filter: frozenset(map(names.normalise, wanted))
        for filter in FILTERS
        if (wanted := getattr(given, filter))
    }
    hook = Hook(
        name=name, url=url, events=frozenset(given.events), results=given.results, **filters
    )
    if filters and (unheard := sorted(hook.events & notification.OF_NO_TASK)):
        used = " and ".join(filters)
        raise InvalidInput(
            f"{where}: a hook with {used} receives events of tasks only, never {unheard[0]}: "
            "make it two hooks"
        )
    return hook


def _secrets(where: str, given: str | list[str]) -> tuple[Secret, ...]:
    texts = [given] if isinstance(given, str) else given
    if not 0 < len(texts) <= SECRETS_MAX:
        raise InvalidInput(f"{where}.secret: give one secret, or two while it is being changed")
    try:
        return tuple(Secret.parse(text) for text in texts)
    except InvalidInput as error:
        raise InvalidInput(f"{where}.secret: {error}") from None
