"""Chaos itself in short, with real processes."""

import subprocess
import sys

SQLITE = "--only tasks --kills 12 --zombies 3 --tenants 5,400 --seconds 600 --seed 7"
REDIS = "--kills 8 --zombies 2 --server-kills 2 --lost-replies 30 --tenants 5,400 --seconds 600"


def chaos(arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "verify.chaos", *arguments.split()],
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )


def test_killed_and_frozen_workers_lose_nothing() -> None:
    done = chaos(SQLITE)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_server_killed_twice_and_thirty_lost_replies_lose_nothing() -> None:
    done = chaos(f"--only tasks --store redis {REDIS} --seed 7")
    assert done.returncode == 0, done.stdout + done.stderr
