"""What the source has that a person on call may meet: read from the code, not from a list here."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]  # no stubs among the tools

from holdfast.domain import bulk, plan, state, telling, trigger
from holdfast.domain.task import Kind
from holdfast.observe.alerts import SEVERITIES
from holdfast.ports import Switch
from holdfast.server import problems
from tests.source_tree import PACKAGE, ROOT, files_under, nodes_of

RULES = ROOT / "deploy" / "prometheus" / "holdfast.rules.yml"
DOCTOR = PACKAGE / "cli" / "doctor.py"
INVARIANT = re.compile(r"I\d{1,2}")


@cache
def codes() -> frozenset[str]:
    """Of each class that has a `code`, of each answer and of each line that names one."""
    found = set(problems._CODES.values())
    for path in files_under(PACKAGE, ".py"):
        found.update(_of_classes(path))
        found.update(_said(path))
    return frozenset(found)


def _of_classes(path: Path) -> Iterator[str]:
    for node in nodes_of(path):
        if isinstance(node, ast.ClassDef):
            for line in node.body:
                yield from _assigned(line)


def _said(path: Path) -> Iterator[str]:
    """The texts that are given to a parameter `code`, or to a variable of that name."""
    places = {
        node.name: [one.arg for one in node.args.args].index("code")
        for node in nodes_of(path)
        if isinstance(node, ast.FunctionDef) and any(a.arg == "code" for a in node.args.args)
    }
    for node in nodes_of(path):
        if isinstance(node, ast.Assign):
            yield from _assigned(node)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            at = places.get(node.func.id, len(node.args))
            yield from _texts(node.args[at : at + 1])


def _assigned(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, ast.Assign):
        targets = node.targets
    elif isinstance(node, ast.AnnAssign) and node.value is not None:
        targets = [node.target]
    else:
        return
    if any(isinstance(one, ast.Name) and one.id == "code" for one in targets):
        value = node.value
        assert value is not None
        yield from _texts(value.args if isinstance(value, ast.Call) else [value])


def _texts(nodes: list[ast.expr]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def kinds() -> frozenset[str]:
    return frozenset(Kind)


def alerts() -> frozenset[str]:
    return frozenset(SEVERITIES)


def rules() -> frozenset[str]:
    groups: list[dict[str, Any]] = yaml.safe_load(RULES.read_text())["groups"]
    return frozenset(rule["alert"] for group in groups for rule in group["rules"])


def invariants() -> frozenset[str]:
    """Those that an examination of any store may name."""
    return frozenset(
        node.value
        for path in files_under(PACKAGE, ".py")
        if not path.is_relative_to(PACKAGE / "testing")
        for node in nodes_of(path)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        if INVARIANT.fullmatch(node.value)
    )


def doctor_lines() -> frozenset[str]:
    """With what a line of `holdfast doctor` begins, beside the invariants."""
    return frozenset(
        text
        for node in nodes_of(DOCTOR)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "item"
        for text in _texts(node.args[:1])
    )


def parked() -> frozenset[str]:
    """Whatever does not go on by itself, as the headings name it."""
    return frozenset((*_tasks(), *_plans(), *_triggers(), *_switches(), *_own()))


def _tasks() -> Iterator[str]:
    """Unsettled, and neither a worker nor the store may move it."""
    for status, row in state.TABLE.items():
        if status not in state.SETTLED and row.keys() <= state.OPERATOR | state.PLAN:
            yield f"Task `{status}`"


def _plans() -> Iterator[str]:
    """Suspended, or to be resumed, or not whole yet."""
    ends = {plan.PlanCommand.RESUME, plan.PlanCommand.SEAL}
    for status, row in plan.TABLE.items():
        if status in plan.SUSPENDED or not ends.isdisjoint(row):
            yield f"Plan `{status}`"


def _triggers() -> Iterator[str]:
    for status, row in trigger.TABLE.items():
        if trigger.TriggerCommand.RESUME in row:
            yield f"Trigger `{status}`"


def _switches() -> Iterator[str]:
    return (f"Switch `{switch}`" for switch in Switch)


def _own() -> Iterator[str]:
    """Tasks of the engine itself."""
    return (f"Task of type `{name}`" for name in (bulk.TYPE, telling.TYPE))
