"""The command: rounds of chaos, a table, and exit 1 if anything is not as it must be."""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import sys
import tempfile
import time
from dataclasses import fields, replace
from pathlib import Path

from holdfast.testing.chaos import document, wire
from holdfast.testing.chaos.amounts import LONG, REDIS, SHORT, SQLITE, Amount
from holdfast.testing.chaos.plan import Plan
from holdfast.testing.chaos.report import print_table
from holdfast.testing.chaos.rounds import Round, run_round

TASKS_PER_KILL = 4
SKEWED_TASKS_PER_KILL = 1  # few tenants work them off one by one, and each kill stops one of them
SKEWED_TENANTS = 20
LEAST_TASKS = 150
COMPLAINTS_SHOWN = 20
STOPPED = 143


def main(arguments: list[str] | None = None) -> int:
    given = _parse(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(STOPPED))  # not without its children
    folder = Path(tempfile.mkdtemp(prefix="holdfast-chaos-"))
    amount = _amount(given)
    count = amount.rounds(len(given.tenants))
    ends = time.monotonic() + (given.seconds or amount.seconds)
    rounds = []
    for number in range(count):
        seconds = (ends - time.monotonic()) / (count - number)
        plan = _plan(given, folder, number, amount.part(number, count), seconds=seconds)
        print(_told(plan), flush=True)
        rounds.append(run_round(plan))
        _tidy(rounds[-1], given.keep)
    print_table(rounds)
    if given.report is not None:
        _document(given, rounds, sys.argv[1:] if arguments is None else arguments)
    return _conclude(rounds, folder, given.keep)


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=document.COMMAND, description=__doc__)
    parser.add_argument("--kills", type=int, help="workers to kill, over all rounds")
    parser.add_argument("--zombies", type=int, help="workers to freeze past a lease")
    parser.add_argument("--server-kills", type=int, help="kills of the redis-server")
    parser.add_argument("--lost-replies", type=int, help="answers of it that the proxy throws away")
    parser.add_argument(
        "--tenants", type=_numbers, default=[5, 400], help="a round for each, or several: 5,400"
    )
    parser.add_argument("--seconds", type=float, help="it ends then at the latest")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument(
        "--store",
        default=SQLITE,
        help="sqlite, redis (a server of our own, killed too), or the URL of an empty store; "
        "{round} in it becomes the round's name",
    )
    parser.add_argument("--long", action="store_true", help="10 000 kills")
    parser.add_argument("--report", type=Path, help="write the figures into this page, too")
    parser.add_argument(
        "--keep", action="store_true", help="keep ledger and store when all is well"
    )
    return parser.parse_args(arguments)


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def _amount(given: argparse.Namespace) -> Amount:
    """The store's own, to the scale of the kills asked for, but for what else is asked for."""
    preset = (LONG if given.long else SHORT).get(given.store, SHORT[SQLITE])
    amount = preset if given.kills is None else preset.scaled_to(given.kills)
    asked = {field.name: getattr(given, field.name) for field in fields(Amount)}
    if given.store != REDIS and (given.server_kills or given.lost_replies):
        raise SystemExit("--server-kills and --lost-replies need --store redis")
    return replace(amount, **{name: value for name, value in asked.items() if value is not None})


def _plan(
    given: argparse.Namespace, folder: Path, number: int, amount: Amount, *, seconds: float
) -> Plan:
    name = f"round-{number + 1}"
    files = folder / name
    files.mkdir()
    tenants = given.tenants[number % len(given.tenants)]
    each = SKEWED_TASKS_PER_KILL if tenants <= SKEWED_TENANTS else TASKS_PER_KILL
    url = f"sqlite:///{files}/store.db" if given.store == SQLITE else given.store
    return Plan(
        name=name,
        store=url.replace("{round}", name),
        folder=files,
        tenants=tenants,
        kills=amount.kills,
        zombies=amount.zombies,
        server_kills=amount.server_kills,
        wire=wire.harms_for(amount.lost_replies),
        tasks=max(LEAST_TASKS, each * amount.kills),
        seed=given.seed + number,
        seconds=seconds,
    )


def _told(plan: Plan) -> str:
    beside = f", {plan.server_kills} of the server" if plan.server_kills else ""
    return (
        f"{plan.name}: {plan.kills} kills{beside} and {plan.zombies} zombies over {plan.tenants} "
        f"tenants, {plan.tasks} tasks, seed {plan.seed}, {plan.store}"
    )


def _tidy(one: Round, keep: bool) -> None:
    """Of a round without complaints nothing is needed any more."""
    if not one.complaints and not keep:
        shutil.rmtree(one.plan.folder)


def _document(given: argparse.Namespace, rounds: list[Round], arguments: list[str]) -> None:
    section = document.Section(
        store=given.store,
        version=rounds[0].version,
        arguments=arguments,
        rounds=rounds,
    )
    document.write(given.report, section)


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
