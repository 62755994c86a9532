"""Decorators of commands change the signature from which Typer reads arguments and options."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import Parameter, Signature, signature
from typing import Any


def replace_parameter(
    call: Callable[..., Any], command: Callable[..., Any], name: str, others: Sequence[Parameter]
) -> None:
    """Give ``call`` the signature of the command, with ``others`` in place of one parameter."""
    parameters: list[Parameter] = []
    for parameter in signature(command, eval_str=True).parameters.values():
        parameters += others if parameter.name == name else [parameter]
    vars(call)["__signature__"] = Signature(parameters)
    call.__annotations__ = {given.name: given.annotation for given in parameters}
