"""`python -m verify.mutants`: a table of who was caught, by what and where."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from unittest.mock import patch

from holdfast.testing.contract.drivers import store_driver
from verify.mutants import MUTANTS, Catch, Mutant, hunt
from verify.mutants.hunt import in_contract, in_lua
from verify.simulation.report import failure, say
from verify.simulation.world import run

PATIENCE_SECONDS = 3.0


def main(arguments: Sequence[str] | None = None) -> int:
    given = _parser().parse_args(arguments)
    if given.contract is not None:
        return _contract(given.contract)
    if given.lua is not None:
        return _contract_on_redis(given.lua)
    if given.store == "redis":
        return _hunt_in_lua(given)
    chosen = [m.name for m in MUTANTS if given.only in (None, m.name)]
    with ProcessPoolExecutor(given.processes) as pool:
        if not _sound(pool, given.baseline):
            return 1
        catches = pool.map(partial(_hunt, seeds=given.seeds), chosen)
        says = {mutant.name: mutant.says for mutant in MUTANTS}
        survivors = _table(zip(chosen, catches, strict=True), says)
    return _conclude(len(chosen), survivors)


def _conclude(chosen: int, survivors: Sequence[str]) -> int:
    say(f"{chosen} mutants, {len(survivors)} survived: {', '.join(survivors) or 'none'}")
    return 1 if survivors or not chosen else 0


def _sound(pool: ProcessPoolExecutor, seeds: int) -> bool:
    """Return whether nothing is caught without a mutant."""
    broken = [result for result in pool.map(run, range(seeds), chunksize=5) if result.broken]
    for result in broken[:1]:
        say(failure(result))
    say(f"baseline: {seeds} seeds without a mutant, {len(broken)} broken")
    contract = in_contract(None)
    if contract is not None:
        say(f"baseline: the store contract is broken without a mutant: {contract.where}")
    return not broken and contract is None


def _hunt(name: str, *, seeds: int) -> Catch | None:
    return hunt(_named(name), range(seeds))


def _table(rows: Iterable[tuple[str, Catch | None]], says: Mapping[str, str]) -> list[str]:
    """Said row by row; the names of those that nothing caught."""
    say(f"{'mutant':<30} {'caught by':<10} {'where':<44} {'steps':>7}  what is wrong")
    survivors = []
    for name, catch in rows:
        if catch is None:
            survivors.append(name)
        by, where, steps = (catch.by, catch.where, catch.steps) if catch else ("nothing", "-", 0)
        say(f"{name:<30} {by:<10} {where:<44.44} {steps:>7}  {says[name]}")
    return survivors


def _contract(name: str) -> int:
    from verify.mutants.on_memory import contract

    with _hunted(_named(name).alive()) if name else nullcontext():
        return contract()


def _hunt_in_lua(given: argparse.Namespace) -> int:
    from verify.mutants.in_lua import LUA_MUTANTS

    says = {one.name: one.says for one in LUA_MUTANTS if given.only in (None, one.name)}
    baseline = in_lua("")
    if baseline is not None:
        say(f"baseline: the contract is broken without a mutant: {baseline.where}")
        return 1
    with ProcessPoolExecutor(given.processes) as pool:
        survivors = _table(zip(says, pool.map(in_lua, says), strict=True), says)
    return _conclude(len(says), survivors)


def _contract_on_redis(name: str) -> int:
    from verify.mutants.in_lua import LUA_MUTANTS
    from verify.mutants.on_redis import contract

    mutants = [one for one in LUA_MUTANTS if one.name == name]
    with _hunted(mutants[0].alive()) if name else nullcontext():
        return contract()


@contextmanager
def _hunted(mutant: AbstractContextManager[None]) -> Iterator[None]:
    """Run a mutant without patience: what it holds back never comes."""
    with mutant, patch.object(store_driver, "PATIENCE_SECONDS", PATIENCE_SECONDS):
        yield


def _named(name: str) -> Mutant:
    return next(mutant for mutant in MUTANTS if mutant.name == name)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m verify.mutants")
    parser.add_argument("--seeds", type=int, default=150, help="at most so many per mutant (150)")
    parser.add_argument("--baseline", type=int, default=50, help="seeds without a mutant (50)")
    parser.add_argument("--only", help="the name of one mutant")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--store", choices=["memory", "redis"], default="memory")
    parser.add_argument("--contract", help=argparse.SUPPRESS)
    parser.add_argument("--lua", help=argparse.SUPPRESS)
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
