"""Programs as a user has them: run in a process of their own, and checked as strictly as can be."""

import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from tests.support.source_tree import ROOT

BOUND_SECONDS = 180


def loaded(path: Path, name: str) -> ModuleType:
    """A fresh one each time: an app belongs to one test."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # where a dataclass looks for its annotations
    spec.loader.exec_module(module)
    return module


def run_python(folder: Path, *words: str, **settings: str) -> subprocess.CompletedProcess[str]:
    """Run Python in that folder, with these settings and none from outside."""
    outside = {k: v for k, v in os.environ.items() if not k.startswith("HOLDFAST_")}
    return subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env=outside | settings,
        capture_output=True,
        text=True,
        timeout=BOUND_SECONDS,
        check=False,
    )


def complaints_in_rounds(name: str, folder: Path) -> Iterator[list[int]]:
    """Count the complaints in a broken round of `chaos_sabotage` of some seconds; then in longer
    ones, because less happens where the machine is slow."""
    for longer in (1, 4, 16):
        place = folder / f"{longer}"
        place.mkdir()
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "tests.support.verify.chaos_sabotage",
                name,
                str(place),
                f"{longer}",
            ],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=1200,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        yield [int(count) for count in done.stdout.split()]


def said_by_mypy(*programs: Path, beside: Path) -> str:
    """Return what mypy reports without our settings; programs may import from ``beside``."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "mypy", "--strict", "--no-error-summary"),
            *("--config-file", "", "--cache-dir", str(ROOT / ".mypy_cache" / "user")),
            "--explicit-package-bases",
            *map(str, programs),
        ],
        cwd=ROOT,
        env={"MYPYPATH": f"{ROOT / 'src'}:{beside}", "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert not done.stderr, done.stderr
    return done.stdout
