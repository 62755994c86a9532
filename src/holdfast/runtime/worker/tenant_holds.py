"""What a worker knows of tenants that are held: it gives their tasks back at the next boundary."""

from __future__ import annotations

from collections.abc import Iterable


class HeldTenants:
    """The tenants that were held at the last look.

    The store hands out nothing of a held tenant: a task that was handed out tells of a release
    that the last look has not seen, and must not be given back for it."""

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held: set[str] = set()

    def replace(self, tenants: Iterable[str]) -> None:
        self._held = set(tenants)

    def note_claim(self, tenant: str | None) -> None:
        if tenant is not None:
            self._held.discard(tenant)

    def is_held(self, tenant: str | None) -> bool:
        return tenant in self._held
