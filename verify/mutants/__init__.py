"""Breaks the engine on purpose, one rule at a time: each break must be caught.

    python -m verify.mutants

A check that lets a mutant live is not worth its name.
"""

from __future__ import annotations

from verify.mutants import in_engine, in_plans, in_store, in_triggers
from verify.mutants.hunt import Catch, hunt
from verify.mutants.mutant import MUTANTS, Mutant

__all__ = ["MUTANTS", "Catch", "Mutant", "hunt", "in_engine", "in_plans", "in_store", "in_triggers"]
