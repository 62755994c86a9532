"""Names that a person on call may meet, read from the source and not from a list here."""

import ast
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]  # no stubs among the tools

from holdfast.domain import bulk, notification
from holdfast.domain.plan import plan
from holdfast.domain.task import state
from holdfast.domain.task.task import FailureKind
from holdfast.domain.trigger import trigger
from holdfast.observe.alerts import SEVERITIES
from holdfast.ports import Switch
from holdfast.server.http import problems
from tests.support.source_tree import PACKAGE, ROOT, files_under, nodes_of

RULES = ROOT / "deploy" / "prometheus" / "holdfast.rules.yml"
DOCTOR = PACKAGE / "cli" / "commands" / "doctor.py"
OWN = ("self", "cls")
INVARIANT = re.compile(r"I\d{1,2}")


@cache
def codes() -> frozenset[str]:
    return frozenset({*problems._CODES.values(), *codes_in(files_under(PACKAGE, ".py"))})


def codes_in(paths: Iterable[Path]) -> Iterator[str]:
    """The texts that are given to a name `code`: one of a class, a variable, or a parameter."""
    files = list(paths)
    places = _places(files)
    for node in (node for path in files for node in nodes_of(path)):
        if isinstance(node, ast.Assign | ast.AnnAssign):
            yield from _assigned(node)
        elif isinstance(node, ast.Call):
            yield from _given(node, places)
        elif isinstance(node, ast.ClassDef):
            yield from _texts([one.value for one in node.keywords if one.arg == "code"])


def _places(paths: Iterable[Path]) -> dict[str, set[int]]:
    """Return, for each function or class, the positions at which `code` may be given."""
    found: dict[str, set[int]] = {}
    for scope in (node for path in paths for node in nodes_of(path)):
        for node in ast.iter_child_nodes(scope):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                of = scope.name if isinstance(scope, ast.ClassDef) else ""
                name = of if node.name == "__init__" else node.name
                found.setdefault(name, set()).update(_place(node))
    return found


def _place(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[int]:
    given = [one for one in (*node.args.posonlyargs, *node.args.args) if one.arg not in OWN]
    for at, one in enumerate(given):
        is_number = isinstance(one.annotation, ast.Name) and one.annotation.id == "int"
        if one.arg == "code" and not is_number:  # else it is one that a process ends with
            yield at


def _given(node: ast.Call, places: dict[str, set[int]]) -> Iterator[str]:
    for at in places.get(_last_name(node.func), ()):
        yield from _texts(node.args[at : at + 1])
    yield from _texts([one.value for one in node.keywords if one.arg == "code"])


def _assigned(node: ast.Assign | ast.AnnAssign) -> Iterator[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    if node.value is not None and any(_last_name(one) == "code" for one in targets):
        yield from _texts(node.value.args if isinstance(node.value, ast.Call) else [node.value])


def _last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _texts(nodes: list[ast.expr]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def kinds() -> frozenset[str]:
    return frozenset(FailureKind)


def alerts() -> frozenset[str]:
    return frozenset(SEVERITIES)


def rules() -> frozenset[str]:
    groups: list[dict[str, Any]] = yaml.safe_load(RULES.read_text())["groups"]
    return frozenset(rule["alert"] for group in groups for rule in group["rules"])


def invariants() -> frozenset[str]:
    """Return the invariants that an examination of any store may name."""
    return frozenset(
        node.value
        for path in files_under(PACKAGE, ".py")
        if not path.is_relative_to(PACKAGE / "testing")
        for node in nodes_of(path)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        if INVARIANT.fullmatch(node.value)
    )


def doctor_lines() -> frozenset[str]:
    """Return the words that a line of `holdfast doctor` may begin with, besides the invariants."""
    return frozenset(
        text
        for node in nodes_of(DOCTOR)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "item"
        for text in _texts(node.args[:1])
    )


def parked() -> frozenset[str]:
    """Return everything that does not continue by itself, as the headings name it."""
    return frozenset((*_tasks(), *_plans(), *_triggers(), *_switches(), *_own()))


def _tasks() -> Iterator[str]:
    """Unsettled, and neither a worker nor the store may move it."""
    for status, row in state.TABLE.items():
        if status not in state.SETTLED and row.keys() <= state.OPERATOR | state.PLAN | state.RECORD:
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
    return (f"Task of type `{name}`" for name in (bulk.TYPE, notification.TYPE))
