"""The switch driver plays a person who sets the switches of a store."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.domain.audit import Audit
from holdfast.ports import Store, Switch, SwitchSetting
from holdfast.testing.clock import ManualClock
from holdfast.testing.contract.drivers.store_driver import ASKER

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
        return Audit(
            task_id=f"{KIND[switch]}:{name}",
            command=f"{switch}-{after}",
            by=ASKER,
            at=self.clock.now(),
            before=before,
            after=after,
        )

    async def off(self, switch: Switch, name: str = "default") -> bool:
        entry = self.audit(switch, name, on=False)
        return await self.store.admin.set_switch(switch, name, on=False, audit=entry)

    async def on(self, switch: Switch, name: str = "default") -> bool:
        entry = self.audit(switch, name, on=True)
        return await self.store.admin.set_switch(switch, name, on=True, audit=entry)

    async def hold(self, tenant: str, *, seconds: float) -> float:
        """Hold a tenant for so long; return when it ends."""
        until = self.clock.now() + seconds
        entry = self.audit(Switch.HOLD, tenant, on=False)
        assert await self.store.admin.set_switch(
            Switch.HOLD, tenant, on=False, audit=entry, until=until
        )
        return until

    async def release_over(self, tenant: str, until: float) -> bool:
        """Release a tenant's hold if it is the one that ends then, as a worker does."""
        before = {one.name for one in await self.settings()}
        entry = self.audit(Switch.HOLD, tenant, on=True)
        await self.store.admin.set_switch(Switch.HOLD, tenant, on=True, audit=entry, until=until)
        return before != {one.name for one in await self.settings()}

    async def names(self) -> list[tuple[Switch, str]]:
        found = await self.store.admin.switches()
        return sorted((one.switch, one.name) for one in found)

    async def settings(self) -> Sequence[SwitchSetting]:
        return await self.store.admin.switches()
