"""The suite that every store of triggers passes.

For a store that keeps triggers beside its tasks:

    class TestRedis(DurableTriggerStoreContract):
        open = open_redis

where ``async def open_redis(self, clock)`` returns a store that is open, empty and tells the time
by ``clock`` (see `holdfast.testing.contract`).

Who implements `holdfast.ports.TriggerStore` alone, on a database of his own, gives an object that
has it as ``.triggers`` and the verbs of any store of tasks beside it (a class derived from
``MemoryStore`` that puts another object there will do), and derives from
`SeparateTriggerStoreContract`: there a change and its tasks need not be one step.
"""

from __future__ import annotations

from holdfast.domain.trigger.trigger import Trigger
from holdfast.testing.contract.drivers.record_driver import RecordDriver
from holdfast.testing.contract.durability import TriggerDurability
from holdfast.testing.contract.records import RecordContract
from holdfast.testing.contract.triggers.changes import Firing, FiringInOneStep
from holdfast.testing.contract.triggers.leases import TriggerLeasing
from holdfast.testing.contract.triggers.saves import TriggerSaving

__all__ = ["DurableTriggerStoreContract", "SeparateTriggerStoreContract", "TriggerStoreContract"]


class SeparateTriggerStoreContract(RecordContract, TriggerSaving, TriggerLeasing, Firing):
    """The suite of a store of triggers whose tasks are kept elsewhere."""

    @property
    def records(self) -> RecordDriver[Trigger]:
        return self.triggers


class TriggerStoreContract(SeparateTriggerStoreContract, FiringInOneStep):
    """Derive a test class from it and implement ``open``."""


class DurableTriggerStoreContract(TriggerStoreContract, TriggerDurability):
    """The same, and that everything is there again after a restart."""
