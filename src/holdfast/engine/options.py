"""Options of a call: a TypedDict declares each of them once, with its default and its meaning.

mypy reads the TypedDict of ``**options: Unpack[TaskOptions]``, `help` shows its options as
parameters, and `check_options` refuses an unknown one with the names of those that there are.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import cache
from typing import Any, NamedTuple, TypeVar, cast, get_type_hints

from holdfast.domain.errors import InvalidInput

F = TypeVar("F", bound=Callable[..., Any])
D = TypeVar("D", bound=Mapping[str, Any])
E = TypeVar("E", bound=StrEnum)


class _NotGiven:
    def __repr__(self) -> str:
        return "<not given>"


NOT_GIVEN: Any = _NotGiven()  # where None would be a value


class Option(NamedTuple):
    """The metadata of an option: ``queue: Annotated[str, Option("default", "…")]``."""

    default: Any
    meaning: str


def complete_options(
    declared: type[D], given: Mapping[str, Any], refuse: Callable[[str], Exception] = InvalidInput
) -> D:
    """Return the given options, and for the others their defaults; raise for an unknown name."""
    check_options(declared, given, refuse)
    defaults = {name: option.default for name, (_, option) in _read_options(declared).items()}
    return cast(D, {**defaults, **given})


def check_options(
    declared: type[D], given: Mapping[str, Any], refuse: Callable[[str], Exception] = InvalidInput
) -> None:
    """Raise for an unknown name."""
    known = _read_options(declared)
    if unknown := sorted(given.keys() - known.keys()):
        names = ", ".join(sorted(known))
        raise refuse(f"no such option: {', '.join(unknown)} (there are {names})")


def read_choice(
    kind: type[E], name: str, given: str, refuse: Callable[[str], Exception] = InvalidInput
) -> E:
    """Return the member of an enum that an option names."""
    try:
        return kind(given)
    except ValueError:
        raise refuse(f"{name}={given!r} must be one of {', '.join(kind)}") from None


def show_options(declared: type[D]) -> Callable[[F], F]:
    """Show the options in place of the keyword arguments that a function takes for them."""

    def decorate(call: F) -> F:
        signature, kind = inspect.signature(call), inspect.Parameter.KEYWORD_ONLY
        shown = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
        meanings = []
        for name, (annotation, option) in _read_options(declared).items():
            default, meaning = option
            shown.append(inspect.Parameter(name, kind, default=default, annotation=annotation))
            meanings.append(f"{name}: {meaning}")
        call.__signature__ = signature.replace(parameters=shown)  # type: ignore[attr-defined]
        call.__doc__ = "\n".join((inspect.cleandoc(call.__doc__ or ""), "", *meanings))
        return call

    return decorate


@cache
def _read_options(declared: type[Mapping[str, Any]]) -> dict[str, tuple[Any, Option]]:
    """Return the type of each option, and the option itself."""
    hints = get_type_hints(declared, include_extras=True)
    return {name: (hint.__origin__, hint.__metadata__[0]) for name, hint in hints.items()}
