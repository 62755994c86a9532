"""Chaos itself in short, with real processes."""

from tests.support.verify.chaos_runs import run_chaos

SQLITE = "--only tasks --kills 12 --zombies 3 --tenants 5,400 --seconds 600 --seed 7"
REDIS = "--kills 8 --zombies 2 --server-kills 2 --lost-replies 30 --tenants 5,400 --seconds 600"


def test_killed_and_frozen_workers_lose_nothing() -> None:
    run_chaos(SQLITE)


def test_a_server_killed_twice_and_thirty_lost_replies_lose_nothing() -> None:
    run_chaos(f"--only tasks --store redis {REDIS} --seed 7")
