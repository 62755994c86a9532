"""A deliberate defect, and how it is switched on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

Patch = tuple[Any, str, Any]  # whose attribute, its name, what stands there instead


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    name: str
    says: str
    patches: tuple[Patch, ...]
    seed: int | None = None  # it is hard to meet, but was met in this world: tried first
    in_contract: bool = False  # the engine alone cannot get to it: only the contract can

    @contextmanager
    def alive(self) -> Iterator[None]:
        with ExitStack() as stack:
            for owner, name, instead in self.patches:
                stack.enter_context(patch.object(owner, name, instead))
            yield


MUTANTS: list[Mutant] = []


def mutant(
    owner: Any, name: str, *, seed: int | None = None, in_contract: bool = False
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Replace ``owner.name`` by the decorated function, whose docstring says what is wrong.

    The function gets the real one as its first argument.
    """

    def enter(broken: Callable[..., Any]) -> Callable[..., Any]:
        MUTANTS.append(
            Mutant(
                name=broken.__name__.replace("_", "-"),
                says=(broken.__doc__ or "").strip().rstrip("."),
                patches=((owner, name, _instead(getattr(owner, name), broken)),),
                seed=seed,
                in_contract=in_contract,
            )
        )
        return broken

    return enter


def _instead(real: Callable[..., Any], broken: Callable[..., Any]) -> Callable[..., Any]:
    def stand_in(*arguments: Any, **options: Any) -> Any:
        return broken(real, *arguments, **options)

    return stand_in
