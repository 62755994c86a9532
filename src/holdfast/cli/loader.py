"""The loader finds the app that `package.module:attribute` on the command line names, and runs
commands on it that need the task types that it declares.

No other module imports by name: the name comes from the user, never from stored data.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import typer

from holdfast.cli.process.logs import log_warnings
from holdfast.cli.session import check_is_shared, given_store
from holdfast.domain import errors as err
from holdfast.encoding.codec import Codec
from holdfast.engine import Holdfast
from holdfast.engine.declare import Submittable
from holdfast.engine.store_url import store_from_settings

T = TypeVar("T")


class CannotLoad(err.InvalidInput, stored_name="CannotLoad"):
    code = "cannot-load"


def load_app_on(target: str, url: str | None) -> Holdfast:
    """Load the app, on the store at ``url`` if the command line names one."""
    if url is not None:
        os.environ["HOLDFAST_STORE"] = url
    loaded = load_app(target)
    if url is not None and loaded.settings.store != url:
        raise CannotLoad(f"{target} names its own store, which --store cannot change")
    return loaded


def load_app(target: str) -> Holdfast:
    module_name, _, path = target.partition(":")
    if not module_name or not path:
        raise CannotLoad(f"{target!r}: write module:attribute, as in app:app")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    value = _import(module_name)
    for name in path.split("."):
        try:
            value = getattr(value, name)
        except AttributeError:
            raise CannotLoad(f"{target!r}: {module_name} has no attribute {path!r}") from None
    if not isinstance(value, Holdfast):
        raise CannotLoad(f"{target!r} is of type {type(value).__name__}, not a Holdfast app")
    return value


def _import(name: str) -> object:
    try:
        return importlib.import_module(name)
    except err.HoldfastError:
        raise
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise CannotLoad(f"there is no module {name!r} here or on the path") from error
        raise CannotLoad(f"{name} cannot be imported: {error}") from error
    except Exception as error:
        at = _where(error)
        raise CannotLoad(
            f"{name} cannot be imported: {type(error).__name__}: {error}{at}"
        ) from error


def _where(error: Exception) -> str:
    """Return the last line of the user's own code, for an error without a traceback."""
    if isinstance(error, SyntaxError):
        return ""
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    return f" ({Path(at.tb_frame.f_code.co_filename).name}:{at.tb_lineno})" if at else ""


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
        store = store_from_settings(app.settings, app.clock, must_exist=needs_store)
        check_is_shared(store, app.settings.store)

    async def run_opened() -> T:
        async with app:
            if app.degraded:
                raise err.StoreUnavailable(
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
        raise err.InvalidInput(f"the app declares no task type {type!r}; it declares: {known}")
    return loaded, Submittable(loaded, declared), _decode_payload(declared.payload, payload)


def _decode_payload(codec: Codec[Any], text: str) -> Any:
    """Decode the payload by its type; the submission refuses a value that does not fit."""
    try:
        plain = msgspec.json.decode(text.encode())
    except (msgspec.DecodeError, UnicodeError) as error:
        raise err.NotJson("--payload", f"not JSON: {error}") from error
    try:
        return codec.decode(text.encode())
    except err.SerialisationError:
        return plain
