"""A command loads the user's own app when it needs the task types that the app declares."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec
import typer

from holdfast.cli.loader import load_app_on
from holdfast.cli.process.logs import log_warnings
from holdfast.cli.session import check_is_shared, given_store
from holdfast.domain.errors import InvalidInput, NotJson, SerialisationError, StoreUnavailable
from holdfast.encoding.codec import Codec
from holdfast.engine import Holdfast
from holdfast.engine.declare import Submittable
from holdfast.engine.store_url import store_from_url

T = TypeVar("T")


def load_app_for(context: typer.Context, target: str) -> Holdfast:
    """Load the app as `holdfast worker` does."""
    app = load_app_on(target, given_store(context))
    log_warnings()
    return app


def run_on(
    app: Holdfast, command: Callable[[Holdfast], Awaitable[T]], *, needs_store: bool = False
) -> T:
    """Open the app, run the command on it, and close it.

    A command that ``needs_store`` is refused where there is none, instead of creating one.
    """
    if needs_store or app.settings.store.startswith("memory:"):
        url, namespace = app.settings.store, app.settings.namespace
        check_is_shared(store_from_url(url, app.clock, namespace, must_exist=needs_store), url)

    async def run_opened() -> T:
        async with app:
            if app.degraded:
                raise StoreUnavailable(
                    "the store does not answer, and a memory store keeps nothing"
                )
            return await command(app)

    return asyncio.run(run_opened())


def load_submission(
    context: typer.Context, app: str, type: str, payload: str
) -> tuple[Holdfast, Submittable[Any, Any], Any]:
    """Load the app, and return it with the task type of that name and the decoded payload."""
    loaded = load_app_for(context, app)
    declared = loaded.registry.find(type)
    if declared is None:
        known = ", ".join(sorted(loaded.registry.names())) or "none"
        raise InvalidInput(f"the app declares no task type {type!r}; it declares: {known}")
    return loaded, Submittable(loaded, declared), _decode_payload(declared.payload, payload)


def _decode_payload(codec: Codec[Any], text: str) -> Any:
    """Decode the payload by its type; the submission refuses a value that does not fit."""
    try:
        plain = msgspec.json.decode(text.encode())
    except (msgspec.DecodeError, UnicodeError) as error:
        raise NotJson("--payload", f"not JSON: {error}") from error
    try:
        return codec.decode(text.encode())
    except SerialisationError:
        return plain
