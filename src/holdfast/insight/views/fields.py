"""Fields that mean the same in every JSON view, each with its example.

The examples tell one story: the upgrade of a tenant has failed three times and waits for a person.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

EXAMPLE_ID = "019c1a4e-9d00-7c31-8a52-6f0b7c9d1e24"
EXAMPLE_AT = 1_769_860_800.0

Actor = Annotated[str, Field(examples=["api:ann"])]
Attempt = Annotated[int, Field(examples=[3])]
Changed = Annotated[bool, Field(examples=[True], description="False if it was so already")]
Cursor = Annotated[
    str | None,
    Field(examples=[None], description="Send it to get the next page; null on the last page"),
]
Durable = Annotated[bool, Field(examples=[True])]
Fence = Annotated[int, Field(examples=[4])]
Fingerprint = Annotated[
    str, Field(examples=["4f0c9a7d12ab"], description="Failures of one cause have the same")
]
Origin = Annotated[str, Field(examples=["10.0.0.7"])]
Payload = Annotated[Any, Field(examples=[{"version": 7}])]
PlanId = Annotated[str, Field(examples=["upgrade-7"])]
ProcessId = Annotated[int, Field(examples=[4711])]
QueueName = Annotated[str, Field(examples=["default"])]
Reason = Annotated[str | None, Field(examples=[None])]
Run = Annotated[int, Field(examples=[1])]
StageName = Annotated[str, Field(examples=["migrate"])]
StageNames = Annotated[tuple[str, ...], Field(examples=[["snapshot", "migrate"]])]
TaskId = Annotated[str, Field(examples=[EXAMPLE_ID])]
TenantId = Annotated[str, Field(examples=["t-001"])]
TriggerId = Annotated[str, Field(examples=["nightly"])]
TypeName = Annotated[str, Field(examples=["tenant.upgrade"])]
WorkerName = Annotated[str, Field(examples=["host-1-4711"])]
