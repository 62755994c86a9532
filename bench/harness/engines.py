"""Who is measured: our own engine and each peer, as its adapter describes itself."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from bench.harness import processes
from bench.harness.environments import CannotInstall, python_for
from bench.harness.figures import Who
from bench.harness.paths import OURS, PEERS, PYTHON, peer_names

DESCRIBE_SECONDS = 60.0


class Engine(msgspec.Struct, frozen=True, kw_only=True):
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

    def told(self) -> dict[str, Any]:
        return {
            "version": self.version,
            "stores": list(self.stores),
            "settings": self.settings,
            "can": sorted(self.can),
        }


def ours() -> Engine:
    return _described(PYTHON, OURS / "adapter.py")


def peers(names: Sequence[str] | None = None) -> tuple[list[Engine], dict[str, str]]:
    """Those that can be started, and for the others the reason why not."""
    found, problems = [], {}
    for name in peer_names() if names is None else names:
        script = PEERS / name / "adapter.py"
        try:
            if not script.is_file():
                raise CannotInstall("there is no adapter for it")
            found.append(_described(python_for(name), script))
        except (CannotInstall, processes.Failed) as error:
            problems[name] = str(error)
    return found, problems


def _described(python: Path, script: Path) -> Engine:
    said = processes.call([python, script, "describe"], seconds=DESCRIBE_SECONDS)
    return Engine(
        name=said["name"],
        version=said["version"],
        stores=tuple(said["stores"]),
        settings=said["settings"],
        can=frozenset(said["can"]),
        python=python,
        script=script,
    )
