"""The ids of a store that has only one partition: a name is its own id."""

from __future__ import annotations


class SinglePartition:
    def partitioned_id(self, name: str, *, tenant: str | None, key: str | None) -> str:
        del tenant, key
        return name

    def colocated_id(self, name: str, *, task_id: str = "", plan_id: str = "") -> str:
        del task_id, plan_id
        return name

    def trigger_id(self, name: str, *, tenant: str | None) -> str:
        del tenant
        return name
