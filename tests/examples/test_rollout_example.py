"""The example of a roll-out, run as its README says, with real processes that are killed."""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.testing.plugin import MakeEngine
from tests.support.programs import loaded
from verify.servers import RedisServer

EXAMPLE = Path(__file__).parents[2] / "examples" / "rollout"
ROLL_OUT = [sys.executable, str(EXAMPLE / "rollout.py")]
BOUND_SECONDS = 900
TOO_LATE = "nobody drives the plan"  # who did has come to the end before he could be killed
TRIES = 4


def test_a_roll_out_halts_is_looked_at_and_rolled_back_on_sqlite(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'rollout.db'}"
    assert_rolled_back(store, "executor", tmp_path, lambda: forget(tmp_path))


def test_a_second_run_on_the_same_store_says_so_and_wipes_nothing(tmp_path: Path) -> None:
    """And it may be started from any folder."""
    environment = settings("sqlite:///rollout.db", "executor", Path())
    rolled_out(environment, lambda: forget(tmp_path), "--stop-when-halted", folder=tmp_path)
    before = {path.name: path.read_bytes() for path in (tmp_path / "data").iterdir()}
    said = _run(ROLL_OUT, environment, ends_with=1, folder=tmp_path)
    assert said == (
        "plan upgrade-7 is in this store already, and HALTED: "
        "remove rollout.db, or name another store\n"
    )
    assert {path.name: path.read_bytes() for path in (tmp_path / "data").iterdir()} == before


def test_it_may_stop_at_the_halt_and_be_rolled_back_by_hand(tmp_path: Path) -> None:
    """With the lines that it prints and the README has."""
    environment = settings(f"sqlite:///{tmp_path / 'rollout.db'}", "executor", tmp_path)
    said = rolled_out(environment, lambda: forget(tmp_path), "--stop-when-halted")
    assert "HALTED: 3 of the 40 tasks of wave 3 have failed" in said
    lines = re.findall(r"^  (holdfast --store \S+) (.+)$", said, re.MULTILINE)
    assert {store for store, _ in lines} == {f"holdfast --store {environment['HOLDFAST_STORE']}"}
    readme = (EXAMPLE / "README.md").read_text()
    assert [line for _, line in lines if line not in readme] == []
    look, suspended, back, work, watch = (
        [sys.executable, "-m", *shlex.split(f"{first} {line}")] for first, line in lines
    )
    assert "HALTED" in _run(look, environment)
    assert _run(suspended, environment).count("Permanent: the plug-in") == 3
    _run(back, environment)
    with subprocess.Popen(work, cwd=EXAMPLE, env=environment) as worker:
        try:
            assert "ROLLED_BACK" in _run(watch, environment)
        finally:
            worker.terminate()
    assert versions(tmp_path) == {6}


async def test_a_later_upgrade_is_rolled_back_to_what_was_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, holdfast_engine: MakeEngine
) -> None:
    monkeypatch.setenv("ROLLOUT_DATA", str(tmp_path))
    example: Any = loaded(EXAMPLE / "app.py", "rollout_app")
    place, engine = example.database("t-1"), holdfast_engine(example.app)
    example.write(place, {"version": 6})
    await example.upgrade.submit(example.Upgrade(version=7), tenant="t-1")
    await engine.drain()
    at_7 = {**example.read(place), "orders": ["made with version 7"]}
    example.write(place, at_7)
    second = await example.upgrade.submit(example.Upgrade(version=8), tenant="t-1")
    await engine.drain()
    assert example.read(place) == {**at_7, "version": 8}
    await second.rollback("8 is bad")
    await engine.drain()
    assert example.read(place) == at_7


def test_what_a_user_writes_is_all_in_app_py() -> None:
    """tests/examples/test_llm_example.py counts its lines."""
    assert "await app.plan(" in (EXAMPLE / "app.py").read_text()
    assert "app.plan(" not in (EXAMPLE / "rollout.py").read_text()


def test_a_roll_out_halts_is_looked_at_and_rolled_back_on_redis(
    redis_server: RedisServer, redis_namespace: str, tmp_path: Path
) -> None:
    def forget_all() -> None:
        with redis_server.client() as client:
            client.delete(*client.scan_iter(f"{redis_namespace}:*"))

    store = f"{redis_server.url}?timeout=60s"
    assert_rolled_back(store, redis_namespace, tmp_path, forget_all)


def assert_rolled_back(
    store: str, namespace: str, tmp_path: Path, forget: Callable[[], None]
) -> None:
    environment = settings(store, namespace, tmp_path)
    said = rolled_out(environment, forget)
    assert "HALTED: 3 of the 40 tasks of wave 3 have failed" in said
    assert len(re.findall(r"^killed ", said, re.MULTILINE)) == 3
    assert "ROLLED_BACK" in said
    assert said.endswith("every tenant is as it was\n")

    assert versions(tmp_path) == {6}
    assert not list((tmp_path / "data").glob("*.backup"))

    shown = _run(
        [sys.executable, "-m", "holdfast", "plans", "show", "upgrade-7", "--json"], environment
    )
    plan = json.loads(shown)
    counts = [wave["counts"] for wave in plan["waves"]]
    assert plan["status"] == "ROLLED_BACK"
    assert [sum(of.values()) for of in counts] == [1, 9, 40, 150]
    assert counts[0] == {"rolled-back": 1}
    assert _run([sys.executable, "-m", "holdfast", "doctor"], environment)


def forget(folder: Path) -> None:
    for path in folder.glob("rollout.db*"):
        path.unlink()


def rolled_out(
    environment: dict[str, str], forget: Callable[[], None], *words: str, folder: Path = EXAMPLE
) -> str:
    """What it said; again from the start where there was nobody left to kill."""
    done = _ran([*ROLL_OUT, *words], environment, folder)
    for _ in range(TRIES - 1):
        if TOO_LATE not in done.stderr:
            break
        forget()
        done = _ran([*ROLL_OUT, *words], environment, folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def settings(store: str, namespace: str, tmp_path: Path) -> dict[str, str]:
    return {
        **os.environ,
        "HOLDFAST_STORE": store,
        "HOLDFAST_NAMESPACE": namespace,
        "HOLDFAST_CRASH_LIMIT": "100",  # a machine that stands still fails none
        "ROLLOUT_DATA": str(tmp_path / "data"),
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def versions(tmp_path: Path) -> set[int]:
    databases = list((tmp_path / "data").glob("*.json"))
    assert len(databases) == 200
    return {json.loads(one.read_text())["version"] for one in databases}


def _run(
    command: list[str],
    environment: dict[str, str],
    *,
    ends_with: int = 0,
    folder: Path = EXAMPLE,
) -> str:
    done = _ran(command, environment, folder)
    assert done.returncode == ends_with, done.stdout + done.stderr
    return done.stdout if not ends_with else done.stderr


def _ran(
    command: list[str], environment: dict[str, str], folder: Path
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        check=False,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=BOUND_SECONDS,
    )
