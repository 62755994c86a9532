"""The example of a roll-out, run as its README says, with real processes that are killed."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from holdfast.testing.servers import RedisServer

EXAMPLE = Path(__file__).parent.parent / "examples" / "rollout"


def test_a_roll_out_halts_is_looked_at_and_rolled_back_on_sqlite(tmp_path: Path) -> None:
    assert_rolled_back(f"sqlite:///{tmp_path / 'rollout.db'}", "executor", tmp_path)


def test_a_roll_out_halts_is_looked_at_and_rolled_back_on_redis(
    redis_server: RedisServer, redis_namespace: str, tmp_path: Path
) -> None:
    assert_rolled_back(redis_server.url, redis_namespace, tmp_path)


def assert_rolled_back(store: str, namespace: str, tmp_path: Path) -> None:
    data = tmp_path / "data"
    environment = {
        **os.environ,
        "HOLDFAST_STORE": store,
        "HOLDFAST_NAMESPACE": namespace,
        "ROLLOUT_DATA": str(data),
    }
    said = _run([sys.executable, "rollout.py"], environment)
    assert "HALTED: 3 of the 40 tasks of wave 3 have failed" in said
    assert len(re.findall(r"^killed ", said, re.MULTILINE)) == 3
    assert "ROLLED_BACK" in said
    assert said.endswith("every tenant is as it was\n")

    databases = sorted(data.glob("*.json"))
    assert len(databases) == 200
    assert {json.loads(one.read_text())["version"] for one in databases} == {6}
    assert not list(data.glob("*.backup"))

    shown = _run(
        [sys.executable, "-m", "holdfast", "plans", "show", "upgrade-7", "--json"], environment
    )
    plan = json.loads(shown)
    counts = [wave["counts"] for wave in plan["waves"]]
    assert plan["status"] == "ROLLED_BACK"
    assert [sum(of.values()) for of in counts] == [1, 9, 40, 150]
    assert counts[0] == {"rolled-back": 1}
    assert _run([sys.executable, "-m", "holdfast", "doctor"], environment)


def _run(command: list[str], environment: dict[str, str]) -> str:
    done = subprocess.run(
        command,
        check=False,
        cwd=EXAMPLE,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
