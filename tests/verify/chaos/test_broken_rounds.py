"""Chaos over stores and drivers that are broken on purpose: the judge must find each defect."""

from pathlib import Path

import pytest

from tests.support.programs import complaints_in_rounds, run_python
from tests.support.source_tree import ROOT

LOST, DOUBLE, TWO_OWNERS = range(3)


def assert_found(name: str, folder: Path, *headings: int) -> None:
    """Assert that the judge complains under these headings, or under all."""
    counts = list[int]()
    for counts in complaints_in_rounds(name, folder):
        if all(counts[heading] for heading in headings or range(len(counts))):
            return
    raise AssertionError(f"complaints of {name}: {counts}")


def test_the_code_that_each_sabotage_replaces_is_there() -> None:
    done = run_python(ROOT, "-m", "tests.support.verify.chaos_sabotage", "--check")
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("store", ["sqlite", "redis"])
def test_a_store_that_compares_nothing_is_found_out(store: str, tmp_path: Path) -> None:
    assert_found(f"{store}-compares-nothing", tmp_path, DOUBLE, TWO_OWNERS)


@pytest.mark.slow
def test_a_store_that_lets_a_tenant_s_tasks_run_side_by_side_is_found_out(tmp_path: Path) -> None:
    assert_found("redis-without-lines", tmp_path, TWO_OWNERS)


def test_a_server_that_forgets_when_it_is_killed_is_found_out(tmp_path: Path) -> None:
    assert_found("redis-forgetful", tmp_path, LOST)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["fired-in-two-steps", "fired-blindly", "two-slots-too-many", "all-waves", "no-fences"],
)
def test_what_is_broken_is_found_out(name: str, tmp_path: Path) -> None:
    assert_found(name, tmp_path)
