"""Fields that mean the same in every JSON view, each with its example.

The examples tell one story: the upgrade of a tenant has failed three times and waits for a person.
"""

from __future__ import annotations

from typing import Annotated, Any

from holdfast.insight.views.view import example

EXAMPLE_ID = "019c1a4e-9d00-7c31-8a52-6f0b7c9d1e24"
EXAMPLE_AT = 1_769_860_800.0

Actor = Annotated[str, example("api:ann")]
Attempt = Annotated[int, example(3)]
Changed = Annotated[bool, example(True, "False if nothing had to change")]
Cursor = Annotated[str | None, example(None, "Send it to get the next page; null on the last page")]
Durable = Annotated[bool, example(True)]
Fence = Annotated[int, example(4)]
Fingerprint = Annotated[str, example("4f0c9a7d12ab", "The same for all failures of one cause")]
Origin = Annotated[str, example("10.0.0.7")]
Payload = Annotated[Any, example({"version": 7})]
PlanId = Annotated[str, example("upgrade-7")]
ProcessId = Annotated[int, example(4711)]
QueueName = Annotated[str, example("default")]
Reason = Annotated[str | None, example(None)]
Run = Annotated[int, example(1)]
StageName = Annotated[str, example("migrate")]
StageNames = Annotated[tuple[str, ...], example(["snapshot", "migrate"])]
TaskId = Annotated[str, example(EXAMPLE_ID)]
TenantId = Annotated[str, example("t-001")]
TriggerId = Annotated[str, example("nightly")]
TypeName = Annotated[str, example("tenant.upgrade")]
WorkerName = Annotated[str, example("host-1-4711")]
