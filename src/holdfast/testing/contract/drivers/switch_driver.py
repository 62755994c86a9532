"""The switch driver acts as a person who sets the switches of a store."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.domain.audit import Audit
from holdfast.ports import Store, Switch, SwitchSetting
from holdfast.testing.clock import ManualClock
from holdfast.testing.contract.drivers.store_driver import build_audit

KIND = {
    Switch.INTAKE: "queue",
    Switch.CLAIMING: "queue",
    Switch.DRAIN: "worker",
    Switch.HOLD: "tenant",
}


class SwitchDriver:
    def __init__(self, store: Store, clock: ManualClock) -> None:
        self.store, self.clock = store, clock

    def audit(self, switch: Switch, name: str, *, on: bool) -> Audit:
        before, after = ("off", "on") if on else ("on", "off")
        about, command = f"{KIND[switch]}:{name}", f"{switch}-{after}"
        return build_audit(self.clock, about, command, before=before, after=after)

    async def set(self, switch: Switch, name: str, *, on: bool, until: float | None = None) -> bool:
        entry = self.audit(switch, name, on=on)
        return await self.store.admin.set_switch(switch, name, on=on, audit=entry, until=until)

    async def off(self, switch: Switch, name: str = "default") -> bool:
        return await self.set(switch, name, on=False)

    async def on(self, switch: Switch, name: str = "default") -> bool:
        return await self.set(switch, name, on=True)

    async def hold(self, tenant: str, *, seconds: float) -> float:
        """Hold a tenant for so many seconds; return when the hold ends."""
        until = self.clock.now() + seconds
        assert await self.set(Switch.HOLD, tenant, on=False, until=until)
        return until

    async def release_over(self, tenant: str, until: float) -> bool:
        """Release, as a worker does, a hold that ends then; return whether it was there."""
        before = await self.names()
        await self.set(Switch.HOLD, tenant, on=True, until=until)
        return before != await self.names()

    async def names(self) -> list[tuple[Switch, str]]:
        return sorted((setting.switch, setting.name) for setting in await self.settings())

    async def settings(self) -> Sequence[SwitchSetting]:
        return await self.store.admin.switches()
