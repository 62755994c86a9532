"""The roads of a submit, a stage, a resume and a request touch no more files than before, and a
submit and a stage take no more calls."""

import subprocess
import sys

import pytest

from tests.support.source_tree import ROOT
from verify.calls import PythonCall
from verify.walk import FILES_BEFORE, FILES_MAX, LUA_MAX, ROADS, STORES, Road


@pytest.mark.parametrize("store", ["sqlite", "redis"])
def test_no_road_touches_more_files_than_it_did(store: str) -> None:
    walk = [sys.executable, "-m", "verify.walk", "--store", store, "--check"]
    ended = subprocess.run(walk, check=False, cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert len(ended.stdout.splitlines()) == 4, ended.stdout


def test_a_road_through_too_many_files_is_refused() -> None:
    files = FILES_MAX["sqlite"]["stage"]
    assert road(files=files, ours=files, others=0).excess == ""
    excess = road(files=files + 1, ours=files + 1, others=0).excess
    assert excess == f"TOO MANY FILES, at most {files}"


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("name", ROADS)
def test_each_road_touches_a_third_fewer_files_than_before(store: str, name: str) -> None:
    assert FILES_MAX[store][name] * 3 <= FILES_BEFORE[store][name] * 2


def test_a_road_that_sends_too_many_lua_files_is_refused() -> None:
    lua = [f"{number}.lua" for number in range(LUA_MAX["stage"])]
    assert Road(name="stage", store="redis", calls=[], lua=lua).excess == ""
    excess = Road(name="stage", store="redis", calls=[], lua=[*lua, "more.lua"]).excess
    assert excess == f"TOO MANY LUA FILES, at most {len(lua)}"


@pytest.mark.parametrize(("ours", "others"), [(301, 0), (300, 212)])
def test_a_road_of_too_many_calls_is_refused(ours: int, others: int) -> None:
    assert road(files=1, ours=300, others=211).excess == ""
    excess = road(files=1, ours=ours, others=others).excess
    assert excess == "TOO MANY CALLS, at most 300 in holdfast and 511 in all"


def road(*, files: int, ours: int, others: int) -> Road:
    calls = [PythonCall(f"{number % files}.py", "call") for number in range(ours)]
    calls += [PythonCall(None, "call")] * others
    return Road(name="stage", store="sqlite", calls=calls)
