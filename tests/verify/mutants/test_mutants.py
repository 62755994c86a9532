"""Each deliberate defect is caught; without one, nothing is."""

import pytest

from verify.mutants import MUTANTS, Mutant, hunt
from verify.mutants.__main__ import main
from verify.mutants.hunt import in_lua
from verify.mutants.lua_mutants import LUA_MUTANTS, LuaMutant
from verify.simulation import run
from verify.simulation.report import failure

SEEDS = range(150)  # most are caught by one of the first five


def test_nothing_is_caught_where_nothing_is_wrong() -> None:
    for seed in range(5):
        result = run(seed)
        assert result.broken is None, failure(result)


def test_there_are_many_mutants_and_each_says_what_is_wrong() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 15
    assert all(mutant.says for mutant in MUTANTS)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_mutant_is_caught(mutant: Mutant) -> None:
    assert hunt(mutant, SEEDS) is not None, f"it lives: {mutant.says}"


def test_a_mutant_is_gone_when_it_was_hunted() -> None:
    owner, name, instead = MUTANTS[0].patches[0]
    with MUTANTS[0].alive():
        assert getattr(owner, name) is instead
    assert getattr(owner, name) is not instead


def test_the_table_names_each_mutant_and_what_caught_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["--only", "no-tenant-lock", "--baseline", "1", "--processes", "1"]) == 0
    said = capsys.readouterr().out
    assert "baseline: 1 seeds without a mutant, 0 broken" in said
    assert "no-tenant-lock" in said
    assert "I2" in said
    assert "1 mutants, 0 survived: none" in said


QUICK = {"plan-no-lease", "line-always-open"}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(one.name, marks=() if one.name in QUICK else pytest.mark.slow)
        for one in LUA_MUTANTS
    ],
)
def test_a_defect_of_the_redis_scripts_is_caught_by_the_contract(name: str) -> None:
    assert in_lua(name) is not None


@pytest.mark.parametrize("mutant", LUA_MUTANTS, ids=lambda mutant: mutant.name)
def test_a_defect_of_the_redis_scripts_is_where_it_says(mutant: LuaMutant) -> None:
    with mutant.alive():
        pass
