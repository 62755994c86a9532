"""All that the snapshots read from inside the package, so that one file follows its modules."""

import json
import logging
import pkgutil
import sys
from collections.abc import Iterator, Mapping
from enum import StrEnum
from functools import cache
from importlib import import_module
from typing import Any

import structlog
from typer.main import get_command

import holdfast
from holdfast.cli.exit_codes import exit_code
from holdfast.cli.root import cli
from holdfast.domain import bulk, notification
from holdfast.domain.bulk import BulkCommand
from holdfast.domain.error_text import qualified_name
from holdfast.domain.errors import HoldfastError
from holdfast.domain.plan import events as plan_events
from holdfast.domain.plan.plan import MemberState, OnHalt, PlanCommand, PlanStatus, TenantConflict
from holdfast.domain.redaction import USUAL
from holdfast.domain.task import events
from holdfast.domain.task.placement import Place
from holdfast.domain.task.state import Command, Status
from holdfast.domain.task.task import FailureKind
from holdfast.domain.trigger.trigger import Misfire, Overlap, TriggerCommand, TriggerStatus
from holdfast.observe import logs
from holdfast.observe.alerts import SEVERITIES
from holdfast.observe.families import FAMILIES
from holdfast.ports import Kept, Switch, scope
from holdfast.server import Service, bare_api
from holdfast.server.auth.tokens import Role
from holdfast.server.http.problems import status_of
from holdfast.stores.redis.keys import GROUP, TEMPLATES
from holdfast.stores.redis.keys import TYPES as KEY_TYPES
from tests.support.task_records import task

TOOLS = "holdfast.testing"

COMMAND_LINE: Any = get_command(cli)
METRICS = {name: (family.kind, family.labels) for name, family in FAMILIES.items()}
EVENTS: Mapping[str, Any] = {**events.KINDS, **plan_events.KINDS}
TOLD_TO_HOOKS = notification.TELLABLE
OWN_NAMES = {
    "type of deliveries": notification.TYPE,
    "queue of deliveries": notification.QUEUE,
    "stage of deliveries": notification.STAGE,
    "type of bulk actions": bulk.TYPE,
    "queue of bulk actions": bulk.QUEUE,
    "stage of bulk actions": bulk.STAGE,
    "event of a probe": notification.PROBE,
    "group of consumers": GROUP,
}
VALUES: Mapping[str, type[StrEnum]] = {
    "status of a task": Status,
    "command of a task": Command,
    "kind of a failure": FailureKind,
    "place of a task": Place,
    "status of a plan": PlanStatus,
    "command of a plan": PlanCommand,
    "state of a plan's task": MemberState,
    "answer to a halt": OnHalt,
    "conflict of a plan": TenantConflict,
    "status of a trigger": TriggerStatus,
    "command of a trigger": TriggerCommand,
    "misfire of a trigger": Misfire,
    "overlap of a trigger": Overlap,
    "command of a bulk action": BulkCommand,
    "kind that is pruned": Kept,
    "switch": Switch,
    "role": Role,
}
KEYS = {template: KEY_TYPES.get(name, "") for name, template in TEMPLATES.items()}


ALERTS = SEVERITIES


def fields_of_a_log_line() -> list[str]:
    """Return the fields of the JSON line of an error that is logged inside a stage."""
    stage = scope.Scope(record=task(trace_id="trace-1"), stage="one")
    token = scope.current.set(stage)
    try:
        raise ValueError("no luck")
    except ValueError:
        record = logging.LogRecord("shop", logging.ERROR, "", 1, "failed", (), sys.exc_info())
        line = logs.formatter("json", USUAL).format(record)
    finally:
        scope.current.reset(token)
        structlog.reset_defaults()  # the formatter has configured it for this process
    return list(json.loads(line))


@cache
def openapi() -> dict[str, Any]:
    return bare_api(Service(holdfast.Holdfast("memory://")), None).openapi()


def import_all() -> None:
    """Import every module that is no tool for tests, so that each class is there to be found."""
    for found in pkgutil.walk_packages(holdfast.__path__, "holdfast."):
        if not found.name.endswith("__main__") and not found.name.startswith(TOOLS):
            import_module(found.name)


def errors() -> Iterator[str]:
    """Yield the code, stored name, exit code and HTTP status of each error of the package."""
    import_all()
    waiting: list[type[HoldfastError]] = [HoldfastError]
    while waiting:
        kind = waiting.pop()
        waiting.extend(kind.__subclasses__())
        if kind.__module__.startswith("holdfast.") and not kind.__module__.startswith(TOOLS):
            error = kind.__new__(kind)
            ends = f"exit {exit_code(error):d}, status {status_of(error)}"
            yield f"error {kind.code} stored as {qualified_name(kind)}, {ends}"
