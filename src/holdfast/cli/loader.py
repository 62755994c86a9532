"""The loader finds the app that `package.module:attribute` on the command line names.

No other module imports by name: the name comes from the user, never from stored data.
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path

from holdfast.domain.errors import HoldfastError, InvalidInput
from holdfast.engine import Holdfast


class CannotLoad(InvalidInput, stored_name="CannotLoad"):
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
    found = _import(module_name)
    for name in path.split("."):
        try:
            found = getattr(found, name)
        except AttributeError:
            raise CannotLoad(f"{target!r}: {module_name} has no attribute {path!r}") from None
    if not isinstance(found, Holdfast):
        raise CannotLoad(f"{target!r} is a {type(found).__name__}, not a Holdfast app")
    return found


def _import(name: str) -> object:
    try:
        return importlib.import_module(name)
    except HoldfastError:
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
