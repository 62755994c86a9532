"""The means by which a JSON view is declared, once for dict, OpenAPI schema, keys and examples.

A view is a typed dict. Its builder returns a plain dict that mypy compares with the declaration;
the server hands the class to FastAPI as the model of a response; the command line lists its keys.
The keys are a promise: add, never rename. Annotations stay text until the server reads them, so
descriptions and examples cost the command line nothing.
"""

from __future__ import annotations

import sys
from typing import Annotated, Any

from pydantic import ConfigDict, Field, with_config

if sys.version_info >= (3, 12):
    from typing import TypedDict
else:  # pydantic reads the older one's fields wrongly, and says so
    from typing_extensions import TypedDict

__all__ = ["FORBIDS_OTHERS", "Time", "TypedDict", "View", "about", "example", "keys"]


def example(value: Any, description: str | None = None) -> Any:
    """Return an example of a field for the OpenAPI document, and what the field is."""
    return Field(examples=[value], description=description)


def about(description: str) -> Any:
    """Return what a field is, for the OpenAPI document."""
    return Field(description=description)


Time = Annotated[str, example("2026-01-31T12:00:00.000+00:00")]
FORBIDS_OTHERS = with_config(ConfigDict(extra="forbid"))  # a key that was not declared is a mistake


@FORBIDS_OTHERS
class View(TypedDict):
    """A JSON object that people and programs are shown."""


def keys(view: Any, *, without: Any = None, **parts: Any) -> str:
    """List the keys of a view for a help text; ``parts`` names the views inside its lists."""
    inherited = without.__annotations__ if without else ()
    return ", ".join(
        f"{name} (each: {keys(parts[name])})" if name in parts else name
        for name in view.__annotations__
        if name not in inherited
    )
