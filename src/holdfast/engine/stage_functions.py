"""Checks that a function fits its declaration: a Context first, then the payload."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from holdfast.domain.errors import DeclarationError
from holdfast.runtime.context import Context

JSON = (dict, list, str, int, float, bool, type(None))
_ANY = (Any, object)


def check_context(call: Callable[..., Any], hints: dict[str, Any]) -> None:
    """Refuse a function whose first parameter is annotated as something else than the Context."""
    first = next(iter(inspect.signature(call).parameters.values()))
    given = hints.get(first.name, Any)
    if not _takes_context(given):
        raise DeclarationError(
            f"{name_of(call)} takes {_describe(given)} first, and is given the Context: "
            f"write {_right_signature(call, hints)}"
        )


def check_payload(call: Callable[..., Any], hints: dict[str, Any], payload: Any, of: str) -> None:
    """Refuse a stage or undo that takes another payload than its workflow's."""
    given = hints.get(list(inspect.signature(call).parameters)[1], Any)
    if fits(payload, given):
        return
    if payload in _ANY:
        raise DeclarationError(
            f"{name_of(call)} takes {_describe(given)}, and workflow {of!r} has no payload type: "
            f"write app.workflow({of!r}, payload={_type_name(given)})"
        )
    raise DeclarationError(
        f"{name_of(call)} takes {_describe(given)}, and the payload of workflow {of!r} is "
        f"{_describe(payload)}: write the same type in both places"
    )


def fits(payload: Any, wanted: Any) -> bool:
    """Return whether a parameter of type ``wanted`` may be given this payload.

    Only what can never be right is refused: in doubt it fits.
    """
    payload, wanted = _bare(payload), _bare(wanted)
    if wanted in _ANY or payload == wanted or isinstance(wanted, TypeVar):
        return True
    if payload in _ANY:
        return _is_json(wanted)
    if _members(payload) or _members(wanted):
        return any(
            fits(one, two) for one in _alternatives(payload) for two in _alternatives(wanted)
        )
    return _classes_fit(payload, wanted)


def _classes_fit(payload: Any, wanted: Any) -> bool:
    """Compare two types of which neither is a union."""
    kind, base = get_origin(payload) or payload, get_origin(wanted) or wanted
    if kind is Literal or base is Literal or not _are_classes(kind, base):
        return True
    if kind is int and base is float:
        return True
    try:
        related = issubclass(kind, base)
    except TypeError:  # a protocol that cannot be asked
        return True
    given, wanted_args = get_args(payload), get_args(wanted)
    if not related or len(given) != len(wanted_args):
        return related
    return all(
        fits(one, two) or fits(two, one) for one, two in zip(given, wanted_args, strict=True)
    )


def _takes_context(given: Any) -> bool:
    given = _bare(given)
    if _members(given):
        return any(map(_takes_context, _members(given)))
    return given in _ANY or not isinstance(given, type) or _is_context(given)


def _is_context(given: type) -> bool:
    if getattr(given, "_is_protocol", False):
        return True
    return issubclass(Context, given) or issubclass(given, Context)


def _is_json(wanted: Any) -> bool:
    """Return whether a type is plain JSON, the only payload that an untyped workflow passes."""
    if _members(wanted):
        return any(map(_is_json, _members(wanted)))
    kind = get_origin(wanted) or wanted
    if kind in _ANY or not isinstance(kind, type):
        return True
    return kind in JSON or kind.__module__ == "collections.abc" or _is_typed_dict(kind)


def _is_typed_dict(kind: type) -> bool:
    return hasattr(kind, "__required_keys__")


def _are_classes(*kinds: Any) -> bool:
    return all(isinstance(kind, type) and not _is_typed_dict(kind) for kind in kinds)


def _bare(given: Any) -> Any:
    """Return a type without what Annotated and NewType add, and None as its type."""
    while True:
        if get_origin(given) is Annotated:
            given = get_args(given)[0]
        elif hasattr(given, "__supertype__"):
            given = given.__supertype__
        else:
            return type(None) if given is None else given


def _members(given: Any) -> tuple[Any, ...]:
    return get_args(given) if get_origin(given) in (Union, types.UnionType) else ()


def _alternatives(given: Any) -> tuple[Any, ...]:
    return _members(given) or (given,)


def _right_signature(call: Callable[..., Any], hints: dict[str, Any]) -> str:
    """Return the right signature as text, with the function's present parameter as payload."""
    names = list(inspect.signature(call).parameters)
    others = [name for name in names if not _takes_context(hints.get(name, Any))]
    payload = f", {others[0]}: {_type_name(hints[others[0]])}" if others else ""
    start = "async def" if inspect.iscoroutinefunction(call) else "def"
    return f"{start} {name_of(call)}(ctx: Context{payload})"


def _describe(given: Any) -> str:
    return "nothing" if given is type(None) else f"a {_type_name(given)}"


def _type_name(given: Any) -> str:
    return given.__name__ if isinstance(given, type) and not get_args(given) else str(given)


def name_of(call: Callable[..., Any]) -> str:
    return getattr(call, "__name__", repr(call))
