"""The command: rounds of chaos, a table, and exit 1 if anything is not as it must be."""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

from holdfast.testing.chaos.plan import Plan
from holdfast.testing.chaos.report import Round, print_table, run_round

TASKS_PER_KILL = 4
LEAST_TASKS = 150
COMPLAINTS_SHOWN = 20
STOPPED = 143


def main(arguments: list[str] | None = None) -> int:
    given = _parse(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(STOPPED))  # not without its children
    folder = Path(tempfile.mkdtemp(prefix="holdfast-chaos-"))
    ends = time.monotonic() + given.seconds
    rounds = []
    for number, tenants in enumerate(given.tenants):
        left = len(given.tenants) - number
        plan = _plan(given, folder, number, seconds=(ends - time.monotonic()) / left)
        print(
            f"{plan.name}: {plan.kills} kills and {plan.zombies} zombies over {tenants} tenants, "
            f"{plan.tasks} tasks, seed {plan.seed}, {plan.store}",
            flush=True,
        )
        rounds.append(run_round(plan))
    print_table(rounds)
    return _conclude(rounds, folder, given.keep)


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m holdfast.testing.chaos", description=__doc__)
    parser.add_argument("--kills", type=int, default=300, help="workers to kill, over all rounds")
    parser.add_argument("--zombies", type=int, default=30, help="workers to freeze past a lease")
    parser.add_argument(
        "--tenants", type=_numbers, default=[5, 400], help="a round for each: 5,400"
    )
    parser.add_argument("--seconds", type=float, default=300.0, help="it ends then at the latest")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument(
        "--store", help="URL of an empty store; {round} in it becomes the round's name"
    )
    parser.add_argument(
        "--keep", action="store_true", help="keep ledger and store when all is well"
    )
    return parser.parse_args(arguments)


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def _plan(given: argparse.Namespace, folder: Path, number: int, *, seconds: float) -> Plan:
    rounds, tenants = len(given.tenants), given.tenants[number]
    name = f"round-{number + 1}"
    files = folder / name
    files.mkdir()
    kills = _share(given.kills, number, rounds)
    return Plan(
        name=name,
        store=(given.store or f"sqlite:///{folder}/{{round}}.db").replace("{round}", name),
        folder=files,
        tenants=tenants,
        kills=kills,
        zombies=_share(given.zombies, number, rounds),
        tasks=max(LEAST_TASKS, TASKS_PER_KILL * kills),
        seed=given.seed + number,
        seconds=seconds,
    )


def _share(whole: int, number: int, parts: int) -> int:
    return whole // parts + (number < whole % parts)


def _conclude(rounds: list[Round], folder: Path, keep: bool) -> int:
    complaints = [said for one in rounds for said in one.complaints]
    for said in complaints[:COMPLAINTS_SHOWN]:
        print(f"  {said}")
    if len(complaints) > COMPLAINTS_SHOWN:
        print(f"  … and {len(complaints) - COMPLAINTS_SHOWN} more")
    if complaints or keep:
        print(f"Stores, ledgers and logs are in {folder}")
    else:
        shutil.rmtree(folder)
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
