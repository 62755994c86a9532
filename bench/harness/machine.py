"""The machine of a run: versions, cores, settings of the servers."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from typing import Any

import apsw

from bench.harness.bench import Bench
from bench.harness.paths import ROOT
from bench.harness.processes import without_places
from bench.harness.trial_stores import postgres_settings, redis_settings
from verify.servers import find_server


def describe_run(bench: Bench) -> dict[str, Any]:
    return {
        "taken_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _commit(),
        "quick": bench.quick,
        "runs": bench.runs,
        "machine": {
            "system": f"{platform.system()} {platform.machine()}",
            "cores": os.cpu_count(),
            "processor": _processor(),
        },
        "versions": {
            "python": platform.python_version(),
            "redis": _redis(),
            "postgresql": _postgres(bench),
            "sqlite": apsw.sqlite_lib_version(),
        },
        "servers": {
            "redis": redis_settings(),
            "postgresql": postgres_settings(),
            "sqlite": "a file in the system's folder for passing files; settings as each has them",
        },
    }


def _commit() -> str | None:
    """Return the commit, with "-dirty" if files were changed; None where there is no history."""
    try:
        said = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--exclude=*"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
            timeout=10,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return said.stdout.strip() or None


def _redis() -> str:
    said = subprocess.run(
        [str(find_server()), "--version"], capture_output=True, text=True, check=True, timeout=10
    ).stdout
    return next((word[2:] for word in said.split() if word.startswith("v=")), said.strip())


def _postgres(bench: Bench) -> str | None:
    """Return the version of PostgreSQL without starting a server."""
    if not any("postgres" in engine.stores for engine in bench.peers):
        return None
    try:
        return bench.trial_stores.postgres().version
    except (RuntimeError, OSError) as error:
        return without_places(f"not there: {error}")


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            lines = [line for line in file if line.startswith("model name")]
    except OSError:
        return platform.processor()
    return lines[0].partition(":")[2].strip() if lines else platform.processor()
