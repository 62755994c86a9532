"""The reference store: everything is in dictionaries, each verb is as plain as it can be.

The other stores are compared with it, tests run on it, and users may fall back on it. It keeps
nothing across a restart. Reads over all tasks scan; that is its one excuse.
"""

from __future__ import annotations

from holdfast.ports import Clock
from holdfast.stores.memory.admin import MemoryAdmin
from holdfast.stores.memory.plans import MemoryPlans
from holdfast.stores.memory.state import MemoryState
from holdfast.stores.memory.tasks import MemoryTasks
from holdfast.stores.memory.triggers import MemoryTriggers
from holdfast.stores.memory.views import MemoryViews
from holdfast.stores.single_partition import SinglePartition


class MemoryStore(SinglePartition):
    durable = False
    file = None
    url = "memory://"

    def __init__(self, clock: Clock) -> None:
        self.state = MemoryState(clock)
        self.tasks = MemoryTasks(self.state)
        self.views = MemoryViews(self.state)
        self.admin = MemoryAdmin(self.state)
        self.plans = MemoryPlans(self.state)
        self.triggers = MemoryTriggers(self.state)
        self.ticket, self.wait = self.state.signals.ticket, self.state.signals.wait

    async def open(self) -> None:
        """Do nothing, as ``close`` and ``detach`` do: there is nothing to open."""

    close = detach = open
