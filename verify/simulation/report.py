"""The report of a run of many seeds, as text."""

from __future__ import annotations

import sys
from collections import Counter

from holdfast.domain.trigger.trigger import Misfire
from verify.simulation.coverage import ENOUGH_SEEDS, missing
from verify.simulation.world import Result


def replay_command(seed: int, tenants: str | None, shadow: str) -> str:
    chosen = f" --tenants {tenants}" if tenants else ""
    chosen += f" --shadow {shadow}" if shadow != "memory" else ""
    return f"python -m verify.simulation --seed {seed}{chosen}"


def failure(result: Result, tenants: str | None = None, shadow: str = "memory") -> str:
    broken = result.broken
    assert broken is not None
    lines = [
        f"seed {result.seed}, step {broken.step}: {broken.invariant} is broken: {broken.message}",
        f"  task {broken.task_id or '-'}",
        *(f"    {event}" for event in broken.events),
        "  the last steps",
        *(f"    {step}" for step in broken.steps),
        f"  replay: {replay_command(result.seed, tenants, shadow)}",
    ]
    return "\n".join(lines)


class Totals:
    def __init__(self) -> None:
        self.seeds = self.steps = self.tasks = self.broken = 0
        self.virtual_seconds = 0.0
        self.counts: Counter[str] = Counter()

    def add(self, result: Result) -> None:
        self.seeds += 1
        self.steps += result.steps
        self.tasks += result.tasks
        self.virtual_seconds += result.virtual_seconds
        self.broken += result.broken is not None
        self.counts += result.counts

    def missing(self) -> list[str]:
        return missing(self.counts) if self.seeds >= ENOUGH_SEEDS else []

    def summary(self) -> str:
        counts = self.counts
        crashes = counts["fault crash"] + counts["zombie thread"]
        figures = {
            "seeds": self.seeds,
            "tasks": self.tasks,
            "steps": self.steps,
            "virtual hours": round(self.virtual_seconds / 3600, 1),
            "crashes": crashes,
            "stops": counts["fault stop"],
            "lost replies": counts["fault lost reply"],
            "claims answered again": counts["claim repeated"],
            "writes answered again": counts["write repeated"],
            "take-overs": counts["event LeaseLost"],
            "stale commits refused": counts["zombie refused"],
            "rollbacks": counts["event TaskRolledBack"],
            "fire times answered late": sum(counts[f"trigger misfire {p}"] for p in Misfire),
            "triggers taken over": counts["trigger taken over"],
            "plans": counts["plan event PlanReady"],
            "plans taken over": counts["plan taken over"],
            "broken": self.broken,
        }
        return ", ".join(f"{value} {name}" for name, value in figures.items())

    def coverage(self) -> str:
        return "\n".join(f"  {count:>9}  {name}" for name, count in sorted(self.counts.items()))


def print_line(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
