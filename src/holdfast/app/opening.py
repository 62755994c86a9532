"""From a URL to a store."""

from __future__ import annotations

from urllib.parse import unquote, urlsplit

from holdfast.domain.errors import InvalidSetting
from holdfast.ports import Clock, Store
from holdfast.stores.memory import MemoryStore

FORMS = "memory://, sqlite:///relative/path.db or sqlite:////absolute/path.db"


def store_from_url(url: str, clock: Clock, namespace: str) -> Store:
    parts = urlsplit(url)
    if parts.scheme == "memory":
        return MemoryStore(clock)
    if parts.scheme == "sqlite":
        from holdfast.stores.sqlite import SqliteStore

        path = unquote(parts.path).removeprefix("/")
        if parts.netloc or not path:
            raise InvalidSetting("HOLDFAST_STORE", url, f"write {FORMS}")
        if path == ":memory:":  # each of the store's connections would have one of its own
            raise InvalidSetting("HOLDFAST_STORE", url, "for a store in memory write memory://")
        return SqliteStore(path, clock, namespace=namespace)
    raise InvalidSetting("HOLDFAST_STORE", _without_secrets(url), f"unknown store; write {FORMS}")


def _without_secrets(url: str) -> str:
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
