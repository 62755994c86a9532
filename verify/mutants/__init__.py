"""Breaks the engine on purpose, one rule at a time: each break must be caught.

    python -m verify.mutants

A check that lets a mutant live is not worth its name.
"""

from __future__ import annotations

from verify.mutants import engine_mutants, plan_mutants, store_mutants, trigger_mutants
from verify.mutants.hunt import Catch, hunt
from verify.mutants.mutant import MUTANTS, Mutant

__all__ = [
    "MUTANTS",
    "Catch",
    "Mutant",
    "engine_mutants",
    "hunt",
    "plan_mutants",
    "store_mutants",
    "trigger_mutants",
]
