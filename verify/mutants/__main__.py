"""The command `python -m verify.mutants`: a table of which check catches each mutant, and where."""

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
from verify.simulation.report import failure, print_line
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
    print_line(f"{chosen} mutants, {len(survivors)} survived: {', '.join(survivors) or 'none'}")
    return 1 if survivors or not chosen else 0


def _sound(pool: ProcessPoolExecutor, seeds: int) -> bool:
    """Return whether nothing is caught without a mutant."""
    broken = [result for result in pool.map(run, range(seeds), chunksize=5) if result.broken]
    for result in broken[:1]:
        print_line(failure(result))
    print_line(f"baseline: {seeds} seeds without a mutant, {len(broken)} broken")
    contract = in_contract(None)
    if contract is not None:
        print_line(f"baseline: the store contract is broken without a mutant: {contract.where}")
    return not broken and contract is None


def _hunt(name: str, *, seeds: int) -> Catch | None:
    return hunt(_find_mutant(name), range(seeds))


def _table(rows: Iterable[tuple[str, Catch | None]], says: Mapping[str, str]) -> list[str]:
    """Print the rows one by one, and return the names of the mutants that nothing caught."""
    print_line(f"{'mutant':<30} {'caught by':<10} {'where':<44} {'steps':>7}  what is wrong")
    survivors = []
    for name, catch in rows:
        if catch is None:
            survivors.append(name)
        by, where, steps = (catch.by, catch.where, catch.steps) if catch else ("nothing", "-", 0)
        print_line(f"{name:<30} {by:<10} {where:<44.44} {steps:>7}  {says[name]}")
    return survivors


def _contract(name: str) -> int:
    from verify.mutants.memory_contract import contract

    with _without_patience(_find_mutant(name).alive()) if name else nullcontext():
        return contract()


def _hunt_in_lua(given: argparse.Namespace) -> int:
    from verify.mutants.lua_mutants import LUA_MUTANTS

    says = {mutant.name: mutant.says for mutant in LUA_MUTANTS if given.only in (None, mutant.name)}
    baseline = in_lua("")
    if baseline is not None:
        print_line(f"baseline: the contract is broken without a mutant: {baseline.where}")
        return 1
    with ProcessPoolExecutor(given.processes) as pool:
        survivors = _table(zip(says, pool.map(in_lua, says), strict=True), says)
    return _conclude(len(says), survivors)


def _contract_on_redis(name: str) -> int:
    from verify.mutants.lua_mutants import LUA_MUTANTS
    from verify.mutants.redis_contract import contract, straight_comparison

    mutants = [one for one in LUA_MUTANTS if one.name == name]
    with _without_patience(mutants[0].alive()) if name else nullcontext():
        return straight_comparison() if name.startswith("straight-") else contract()


@contextmanager
def _without_patience(mutant: AbstractContextManager[None]) -> Iterator[None]:
    """Run a mutant with short timeouts: what a mutant holds back never comes."""
    with mutant, patch.object(store_driver, "PATIENCE_SECONDS", PATIENCE_SECONDS):
        yield


def _find_mutant(name: str) -> Mutant:
    return next(mutant for mutant in MUTANTS if mutant.name == name)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m verify.mutants")
    parser.add_argument(
        "--seeds", type=int, default=150, help="number of seeds per mutant at most (150)"
    )
    parser.add_argument(
        "--baseline", type=int, default=50, help="number of seeds to run without a mutant (50)"
    )
    parser.add_argument("--only", help="hunt only the mutant of this name")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--store", choices=["memory", "redis"], default="memory")
    parser.add_argument("--contract", help=argparse.SUPPRESS)
    parser.add_argument("--lua", help=argparse.SUPPRESS)
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
