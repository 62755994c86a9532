"""Breaks the engine on purpose, one rule at a time: each break must be caught.

    python -m holdfast.testing.mutants

A check that lets a mutant live is not worth its name.
"""

from __future__ import annotations

from holdfast.testing.mutants import in_engine, in_plans, in_store, in_triggers
from holdfast.testing.mutants.hunt import Catch, hunt
from holdfast.testing.mutants.mutant import MUTANTS, Mutant

__all__ = ["MUTANTS", "Catch", "Mutant", "hunt", "in_engine", "in_plans", "in_store", "in_triggers"]
