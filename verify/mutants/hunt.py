"""The search for the check that catches a mutant: seeds first, then the store contract."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass

from verify.mutants.mutant import Mutant
from verify.simulation.world import run

CONTRACT_SECONDS = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class Catch:
    by: str  # the invariant, or "contract"
    where: str  # seed or test
    steps: int
    message: str


def hunt(mutant: Mutant, seeds: Iterable[int]) -> Catch | None:
    if mutant.in_contract:
        return in_contract(mutant)
    likely = () if mutant.seed is None else (mutant.seed,)
    return in_worlds(mutant, (*likely, *seeds)) or in_contract(mutant)


def in_worlds(mutant: Mutant, seeds: Iterable[int]) -> Catch | None:
    steps = 0
    with mutant.alive():
        for seed in seeds:
            result = run(seed)
            steps += result.steps
            if result.broken is not None:
                broken = result.broken
                where = f"seed {seed}, step {broken.step}"
                return Catch(by=broken.invariant, where=where, steps=steps, message=broken.message)
    return None


def in_contract(mutant: Mutant | None) -> Catch | None:
    return _contract("--contract", mutant.name if mutant else "")


def in_lua(name: str) -> Catch | None:
    """Run the contract with a defect in the scripts of Redis, or with none for an empty name."""
    return _contract("--lua", name)


def _contract(option: str, name: str) -> Catch | None:
    """Run the contract in a process of its own: pytest runs once per process."""
    command = [sys.executable, "-m", "verify.mutants", option, name]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=CONTRACT_SECONDS, check=False
    )
    if done.returncode == 0:
        return None
    lines = [
        line for line in done.stdout.splitlines() if "::test_" in line and line.split()[0].isupper()
    ]
    first = (lines or ["(no test was named)"])[0].rpartition("::")[2]
    test, _, message = first.partition(" - ")
    return Catch(by="contract", where=test, steps=0, message=message)
