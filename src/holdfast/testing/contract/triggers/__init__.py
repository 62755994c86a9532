"""The suite that every store of triggers passes.

For a store that keeps triggers beside its tasks:

    class TestRedis(DurableTriggerStoreContract):
        open = open_redis

where ``async def open_redis(self, clock)`` returns a store that is open and empty and takes its
time from ``clock`` (see `holdfast.testing.contract`).

A store of triggers alone, on a database of its own, derives from `SeparateTriggerStoreContract`:
there a change and its tasks need not be one step. ``open`` then returns any store of tasks that has
the `holdfast.ports.TriggerStore` under test as ``.triggers``, such as a `MemoryStore` whose
attribute was replaced.
"""

from __future__ import annotations

from holdfast.domain.trigger.trigger import Trigger
from holdfast.testing.contract.drivers.record_driver import RecordDriver
from holdfast.testing.contract.durability import TriggerDurability
from holdfast.testing.contract.records import RecordContract
from holdfast.testing.contract.triggers.changes import FireContract, OneStepFireContract
from holdfast.testing.contract.triggers.leases import TriggerLeaseContract
from holdfast.testing.contract.triggers.saves import TriggerSaveContract

__all__ = ["DurableTriggerStoreContract", "SeparateTriggerStoreContract", "TriggerStoreContract"]


class SeparateTriggerStoreContract(
    RecordContract, TriggerSaveContract, TriggerLeaseContract, FireContract
):
    """The suite of a store of triggers whose tasks are kept elsewhere."""

    @property
    def records(self) -> RecordDriver[Trigger]:
        return self.triggers


class TriggerStoreContract(SeparateTriggerStoreContract, OneStepFireContract):
    """Derive a test class from it and implement ``open``."""


class DurableTriggerStoreContract(TriggerStoreContract, TriggerDurability):
    """The suite of a store whose triggers outlive the process."""
