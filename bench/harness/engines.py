"""The engines that are measured: our own and each peer, as its adapter describes itself."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec

from bench.harness import processes
from bench.harness.environments import CannotInstall, python_for
from bench.harness.paths import OURS, PEERS, PYTHON, peer_names
from bench.harness.processes import without_places
from bench.harness.trial_stores import ready_binaries
from bench.report.figures import Who

DESCRIBE_SECONDS = 60.0
AT_ONCE = 4  # environments that are made; it is mostly waiting


class MeasuredEngine(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    version: str
    stores: tuple[str, ...]
    settings: dict[str, str]
    can: frozenset[str]
    python: Path
    script: Path

    def on(self, store: str, settings: str = "best") -> Who:
        return Who(engine=self.name, store=store, settings=settings)

    def command(self, role: str, **options: object) -> list[str | Path]:
        words: list[str | Path] = [self.python, self.script, role]
        for name, value in options.items():
            words += [f"--{name.replace('_', '-')}", str(value)]
        return words

    def to_dict(self) -> dict[str, Any]:
        return {
            "version": self.version,
            "stores": list(self.stores),
            "settings": self.settings,
            "can": sorted(self.can),
        }


def ours() -> MeasuredEngine:
    return _describe(PYTHON, OURS / "adapter.py")


def ceiling() -> MeasuredEngine:
    """Return the fixed case with which ours is compared."""
    return _describe(PYTHON, OURS / "ceiling.py")


def peers(names: Sequence[str] | None = None) -> tuple[list[MeasuredEngine], dict[str, str]]:
    """Return the peers that can be started, and for the others the reason why not."""
    wanted = list(peer_names() if names is None else names)
    found, problems = [], {}
    with ThreadPoolExecutor(AT_ONCE) as pool:
        if wanted:
            pool.submit(ready_binaries)  # if it fails, who needs a server will say so
        made = {name: pool.submit(_load_peer, name) for name in wanted}
        for name, future in made.items():
            try:
                found.append(future.result())
            except (CannotInstall, processes.CaseFailed) as error:
                problems[name] = without_places(str(error))
    return found, problems


def _load_peer(name: str) -> MeasuredEngine:
    script = PEERS / name / "adapter.py"
    if not script.is_file():
        raise CannotInstall("there is no adapter for it")
    return _describe(python_for(name), script)


def _describe(python: Path, script: Path) -> MeasuredEngine:
    said = processes.call([python, script, "describe"], seconds=DESCRIBE_SECONDS)
    return MeasuredEngine(
        name=said["name"],
        version=said["version"],
        stores=tuple(said["stores"]),
        settings=said["settings"],
        can=frozenset(said["can"]),
        python=python,
        script=script,
    )
