"""The layers of the source, held by reading its imports, and its folders. Imports point down:

server   cli   integrations   testing       edges: of each other, cli and integrations import server
         insight   notify                   what people are shown, and what is sent to them
             engine                         the composition root
runtime   stores   sinks   observe          never import each other
 registry   encoding   settings   clock   ports
             domain                         pure: no await, no clock, no random, no I/O

`engine/core.py` holds the class that puts all of it together, so it alone may import insight and
notify from below, and the package of the integrations, in which these register themselves.
"""

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.support.source_tree import (
    PACKAGE,
    ROOT,
    Breach,
    assert_none,
    calls_of,
    files_under,
    nodes_of,
    text_of,
)

DOMAIN = {"domain"}
BESIDE_PORTS = {"ports", "registry", "encoding", "settings", "clock", "version"}
SIDES = {"runtime", "stores", "sinks", "observe"}
BELOW_ENGINE = DOMAIN | BESIDE_PORTS | SIDES
ROOT_LAYER = "holdfast"  # holdfast/__init__.py: the public names
FOR_PEOPLE = {"insight", "notify"}
BELOW_EDGES = BELOW_ENGINE | FOR_PEOPLE | {"engine", ROOT_LAYER}
COMPOSITION_ROOT = PACKAGE / "engine" / "core.py"
LOADED = {"integrations"}  # by the composition root: the package, and no module in it
HEART = ("domain", "engine", "notify")  # they know no integration by name

# A layer may import itself and what stands here. A new top-level module has to be entered.
MAY_IMPORT: dict[str, set[str]] = {
    "domain": set(),
    "ports": DOMAIN,
    "clock": {"ports"},
    "encoding": DOMAIN,
    "registry": DOMAIN | {"encoding"},
    "settings": DOMAIN,
    "stores": DOMAIN | {"ports"},
    "sinks": DOMAIN | {"ports"},
    "version": set(),
    "observe": DOMAIN | {"ports", "version"},
    "runtime": DOMAIN | BESIDE_PORTS,
    "engine": BELOW_ENGINE,
    "insight": BELOW_ENGINE | {"engine", "notify"},
    "notify": BELOW_ENGINE | {"engine", "insight"},
    ROOT_LAYER: BELOW_ENGINE | {"engine"},
    "errors": DOMAIN,  # the public names of domain/errors.py; the source itself imports that
    "types": DOMAIN | {"engine"},
    "server": BELOW_EDGES,
    "cli": BELOW_EDGES | {"server"},
    "integrations": BELOW_EDGES | {"server"},
    "testing": BELOW_EDGES,
    "__main__": {"cli"},
}

DOMAIN_LIBRARIES = {"msgspec", "cronsim"}
IMPURE_MODULES = set(
    "asyncio concurrent ctypes fcntl ftplib glob http importlib io logging mmap multiprocessing os "
    "pathlib queue random sched secrets select selectors shutil signal smtplib socket socketserver "
    "sqlite3 ssl subprocess sys tempfile threading time urllib _thread".split()
)
IMPURE_CALLS = {"open", "print", "input", "now", "utcnow", "today", "uuid1", "uuid4"}

CODE_LOADING_MODULES = {"pickle", "cPickle", "cloudpickle", "dill", "marshal", "runpy", "shelve"}
CODE_LOADING_CALLS = {"__import__", "importlib.import_module", "importlib.__import__"}
LOADER = PACKAGE / "cli" / "loader.py"  # `holdfast worker app:app` names a module on purpose

# Folders without a folder in tests/, each with the tests that run its code. The list only shrinks.
TESTED_ELSEWHERE = {
    "testing/contract": "tests/stores, where every store runs the contract",
    "verify/golden": "tests/stores/test_golden.py, which opens the stores that it wrote",
    "verify/simulation/actors": "tests/verify/simulation/test_world.py",
}


def test_every_import_points_down() -> None:
    assert_none(
        Breach(path, line, f"{layer} may not import {target} ({module})")
        for path in python_files()
        for layer in [layer_of(path)]
        for line, module in imports_of(path)
        for target in [layer_named(module)]
        if target and target != layer and target not in may_import(path)
    )


@pytest.mark.parametrize("layer", HEART)
def test_the_heart_of_the_engine_names_no_chat_service(layer: str) -> None:
    assert_none(
        Breach(path, line, f"{layer} may not name Telegram: see integrations/__init__.py")
        for path in files_under(PACKAGE / layer, ".py", ".md")
        for line, text in enumerate(text_of(path).splitlines(), start=1)
        if "telegram" in text.lower()
    )


def test_every_top_level_module_has_a_place_in_the_layers() -> None:
    assert_none(
        Breach(path, 1, f"{layer_of(path)} is in no layer: enter it in MAY_IMPORT")
        for path in python_files()
        if layer_of(path) not in MAY_IMPORT
    )


def test_every_folder_of_the_source_has_a_folder_of_tests() -> None:
    tested = {path.parent for path in files_under(ROOT / "tests") if is_test(path)}
    assert_none(
        Breach(folder, 0, f"no test is in tests/{name}")
        for folder, name in folders_of_the_source()
        if not any(place.is_relative_to(ROOT / "tests" / name) for place in tested)
        and not any(
            name == left_out or name.startswith(f"{left_out}/") for left_out in TESTED_ELSEWHERE
        )
    )


def test_the_domain_imports_only_pure_modules() -> None:
    allowed = (set(sys.stdlib_module_names) - IMPURE_MODULES) | DOMAIN_LIBRARIES | {"holdfast"}
    assert_none(
        Breach(path, line, f"domain is pure and may not import {module}")
        for path in python_files("domain")
        for line, module in imports_of(path)
        if top_of(module) not in allowed
    )


def test_the_domain_awaits_nothing() -> None:
    waiting = (ast.AsyncFunctionDef, ast.AsyncFor, ast.AsyncWith, ast.Await)
    assert_none(
        Breach(path, node.lineno, "domain is pure: no async, no await")
        for path in python_files("domain")
        for node in nodes_of(path)
        if isinstance(node, waiting)
    )


def test_the_domain_is_told_the_time_and_takes_no_chances() -> None:
    assert_none(
        Breach(path, call.lineno, f"domain is pure and may not call {name}(): pass the value in")
        for path in python_files("domain")
        for call, name in calls_of(path)
        if name.rpartition(".")[2] in IMPURE_CALLS
    )


def test_nothing_unpickles() -> None:
    assert_none(
        Breach(path, line, f"{module} runs code out of data: JSON only")
        for path in python_files()
        for line, module in imports_of(path)
        if top_of(module) in CODE_LOADING_MODULES
    )


def test_only_the_command_line_loader_imports_by_name() -> None:
    assert_none(
        Breach(path, call.lineno, f"{name}() is for {LOADER.relative_to(PACKAGE)} only")
        for path in python_files()
        if path != LOADER
        for call, name in calls_of(path)
        if name in CODE_LOADING_CALLS
    )


def test_status_names_are_spelled_in_the_domain_only() -> None:
    assert_none(
        Breach(path, line, f"status name {text!r} as a string: use Status")
        for path in python_files()
        if layer_of(path) != "domain"
        for line, text in strings_of(path)
        if text in status_names()
    )


def test_stores_know_no_status_names() -> None:
    assert_none(
        Breach(path, line, f"a store may not know the status {name}: pass it in")
        for path in files_under(PACKAGE / "stores", ".py", ".sql", ".lua")
        for line, text in (strings_of(path) if path.suffix == ".py" else statements_of(path))
        for name in sorted(status_names().intersection(re.findall(r"\w+", text)))
    )


def test_the_status_names_are_found_where_these_rules_look_for_them() -> None:
    expected = {"PENDING", "RUNNING", "COMPLETED", "HALTED", "PROCESSING"}
    assert expected <= status_names(), "no class Status in domain/"


@pytest.mark.parametrize(
    ("source", "module"),
    [
        ("import holdfast.engine", "holdfast.engine"),
        ("from holdfast import engine", "holdfast.engine"),
        ("from holdfast.stores import codec", "holdfast.stores.codec"),
        ("from ..runtime import worker", "holdfast.runtime.worker"),
        ("from . import memory", "holdfast.stores.memory"),
        ("from .codec import encode", "holdfast.stores.codec.encode"),
    ],
)
def test_an_import_is_read_in_any_of_its_forms(source: str, module: str) -> None:
    node = ast.parse(source).body[0]
    assert list(modules_named_by(node, package="holdfast.stores")) == [module]


def may_import(path: Path) -> set[str]:
    allowed = MAY_IMPORT.get(layer_of(path), set())
    return allowed | FOR_PEOPLE | LOADED if path == COMPOSITION_ROOT else allowed


def folders_of_the_source() -> set[tuple[Path, str]]:
    """Return each folder with modules, and the name that its folder of tests has."""
    modules = [path for path in python_files() if path.name != "__init__.py"]
    package = {(path.parent, str(path.parent.relative_to(PACKAGE))) for path in modules}
    verify = files_under(ROOT / "verify", ".py")
    return package | {(path.parent, str(path.parent.relative_to(ROOT))) for path in verify}


def is_test(path: Path) -> bool:
    return path.name.startswith("test_") and path.suffix == ".py"


def python_files(layer: str = "") -> Iterator[Path]:
    return files_under(PACKAGE / layer, ".py")


def layer_of(path: Path) -> str:
    first = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    return ROOT_LAYER if first == "__init__" else first


def layer_named(module: str) -> str | None:
    """The layer that a dotted name belongs to; None for somebody else's module."""
    top, _, rest = module.partition(".")
    if top != "holdfast":
        return None
    first = top_of(rest)
    return first if is_module(first) else ROOT_LAYER


def is_module(name: str) -> bool:
    return name in MAY_IMPORT or (PACKAGE / name).is_dir() or (PACKAGE / f"{name}.py").is_file()


def top_of(module: str) -> str:
    return module.partition(".")[0]


def imports_of(path: Path) -> Iterator[tuple[int, str]]:
    """Line and full dotted name of everything imported, anywhere in the file."""
    package = ".".join(path.parent.relative_to(PACKAGE.parent).parts)
    for node in nodes_of(path):
        if isinstance(node, ast.Import | ast.ImportFrom):
            for module in modules_named_by(node, package=package):
                yield node.lineno, module


def modules_named_by(node: ast.AST, *, package: str) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (item.name for item in node.names)
    elif isinstance(node, ast.ImportFrom):
        above = package.split(".")[: 1 - node.level or None] if node.level else []
        base = ".".join([*above, *([node.module] if node.module else [])])
        yield from (f"{base}.{item.name}" for item in node.names)


def strings_of(path: Path) -> Iterator[tuple[int, str]]:
    """Line and value of each string in the code; documentation may say what it likes."""
    prose = {id(node.value) for node in nodes_of(path) if isinstance(node, ast.Expr)}
    for node in nodes_of(path):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose:
            yield node.lineno, node.value


def statements_of(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of an SQL or Lua file; in both, `--` begins a comment."""
    for line, text in enumerate(text_of(path).splitlines(), start=1):
        yield line, text.partition("--")[0]


@cache
def status_names() -> frozenset[str]:
    """The members of `Status`, `PlanStatus`, `TriggerStatus`, wherever in the domain they stand."""
    return frozenset(
        target.id
        for path in python_files("domain")
        for node in nodes_of(path)
        if isinstance(node, ast.ClassDef) and node.name.endswith("Status")
        for line in node.body
        if isinstance(line, ast.Assign)
        for target in line.targets
        if isinstance(target, ast.Name)
    )
