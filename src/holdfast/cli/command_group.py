"""Groups of commands, and the form of their help."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import typer
from typer.core import TyperArgument, TyperCommand


class NamedArgument(TyperArgument):
    """An argument that help shows by its name in capitals, without a Python type."""

    @property
    def display_name_raw(self) -> str:
        return super().display_name_raw.upper()

    def display_type_rich(self, ctx: Any) -> str | None:
        return super().display_type_rich(ctx) if self.type_descriptor.is_choice else None

    def get_usage_pieces(self, ctx: Any) -> list[str]:
        [piece] = super().get_usage_pieces(ctx)
        return [piece.replace("{", "").replace("}", "")]


class PlainCommand(TyperCommand):
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        for param in self.params:
            if isinstance(param, TyperArgument):
                param.__class__ = NamedArgument  # Typer has no option for the class of an argument


class CommandGroup(typer.Typer):
    """A group of commands; each command has a name of its own, whatever its function is called."""

    def __init__(self, help: str | None = None, **options: Any) -> None:
        given = {"help": help} if help else {}  # else the callback's docstring is the help
        super().__init__(**({"no_args_is_help": True} | given | options))

    def command(self, name: str, **options: Any) -> Callable[[Any], Any]:  # type: ignore[override]
        return super().command(name, cls=PlainCommand, **options)
