"""The demo's tasks act on a directory of facts and effects that all processes share."""

from __future__ import annotations

import asyncio
import os
import random
from dataclasses import dataclass
from pathlib import Path

FOLDER = "DEMO_WORLD"
SPEED = "DEMO_SPEED"


@dataclass(frozen=True, slots=True)
class DemoWorld:
    folder: Path
    speed: float

    @classmethod
    def from_environment(cls) -> DemoWorld:
        return cls(Path(os.environ.get(FOLDER, ".")), float(os.environ.get(SPEED, "1")))

    async def call(self, what: str, key: str, *, seconds: float) -> None:
        """Make an effect, which takes a random time around ``seconds`` and is written to a log."""
        await asyncio.sleep(seconds * random.uniform(0.5, 1.5) / self.speed)
        with (self.folder / "effects.log").open("a", encoding="utf-8") as log:
            log.write(f"{key} {what}\n")

    def is_true(self, fact: str) -> bool:
        return self._path(fact).exists()

    def let(self, fact: str) -> None:
        self._path(fact).touch()

    def end(self, fact: str) -> None:
        self._path(fact).unlink()

    def _path(self, fact: str) -> Path:
        return self.folder / fact.replace(" ", "-")
