"""Stores by their URL: made, and opened with or without a fallback."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from urllib.parse import unquote, urlsplit

from holdfast.domain.errors import InvalidSetting, StoreFull, StoreUnavailable
from holdfast.ports import Clock, Store
from holdfast.settings import Settings
from holdfast.stores.memory import MemoryStore
from holdfast.stores.redis.client import address

log = logging.getLogger("holdfast")

FILES = "sqlite:///relative/path.db or sqlite:////absolute/path.db"
FORMS = f"memory://, {FILES}, {address.FORMS}"


async def open_store(settings: Settings, clock: Clock) -> tuple[Store, bool]:
    """Return the configured store, opened; with True a store in memory, as its fallback."""
    store = store_from_settings(settings, clock)
    try:
        await store.open()
    except StoreUnavailable as error:  # a fallback must not hide what a person has to repair
        if settings.fallback != "memory" or isinstance(error, StoreFull):  # full is in reach
            raise
        log.warning("starting with a store in memory, which keeps nothing: %s", error)
        return MemoryStore(clock), True
    return store, False


def store_from_settings(settings: Settings, clock: Clock, *, must_exist: bool = False) -> Store:
    """Make the configured store, without opening it."""
    return store_from_url(
        settings.store,
        clock,
        settings.namespace,
        checkpoint_seconds=settings.checkpoint_ttl,
        lock_seconds=settings.tenant_lock,
        must_exist=must_exist,
    )


def store_from_url(
    url: str,
    clock: Clock,
    namespace: str,
    *,
    checkpoint_seconds: float | None = None,
    lock_seconds: float | None = None,
    must_exist: bool = False,
) -> Store:
    """Make the store that a URL names.

    A store that expires records by itself drops a checkpoint ``checkpoint_seconds`` after its task
    has settled, and a tenant's lock ``lock_seconds`` after its last renewal. With ``must_exist`` a
    missing store is `StoreUnavailable`, and none is created.
    """
    if url.partition("://")[0] in address.SCHEMES:
        given = {"checkpoint_seconds": checkpoint_seconds, "lock_seconds": lock_seconds}
        terms = {name: math.ceil(value) for name, value in given.items() if value is not None}
        return _redis_store(url, clock, namespace, terms, must_exist=must_exist)
    try:
        parts = urlsplit(url)
    except ValueError as error:  # brackets that do not close
        raise InvalidSetting("HOLDFAST_STORE", address.redact_url(url), str(error)) from error
    if parts.scheme == "memory":
        return MemoryStore(clock)
    if parts.scheme == "sqlite":
        from holdfast.stores.sqlite import SqliteStore

        path = unquote(parts.path).removeprefix("/")
        if parts.netloc or not path:
            raise InvalidSetting("HOLDFAST_STORE", address.redact_url(url), f"write {FILES}")
        if path == ":memory:":  # each of the store's connections would have one of its own
            raise InvalidSetting("HOLDFAST_STORE", url, "for a store in memory write memory://")
        store = SqliteStore(path, clock, namespace=namespace)
        if must_exist and not store.path.exists():
            where = f"no store at {store.url}"
            raise StoreUnavailable(f"{where}: name one with --store or HOLDFAST_STORE")
        return store
    raise InvalidSetting("HOLDFAST_STORE", address.redact_url(url), f"unknown store; write {FORMS}")


def _redis_store(
    url: str, clock: Clock, namespace: str, terms: Mapping[str, int], *, must_exist: bool
) -> Store:
    shown = address.parse(url).shown
    try:
        from holdfast.stores.redis.partition import RetentionTerms
        from holdfast.stores.redis.store import RedisStore
    except ModuleNotFoundError as error:
        if error.name != "redis":
            raise
        reason = "Redis needs its driver: pip install 'holdfast-engine[redis]'"
        raise InvalidSetting("HOLDFAST_STORE", shown, reason) from error
    return RedisStore(
        url, clock, namespace=namespace, terms=RetentionTerms(**terms), must_exist=must_exist
    )
