"""The command: rounds of chaos, a table, and exit 1 if anything is not as it must be."""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import sys
import tempfile
import time
from dataclasses import dataclass, fields, replace
from pathlib import Path

from verify.chaos import document, plan_round, trigger_round, wire
from verify.chaos.amounts import (
    MANNERS,
    REDIS,
    ROUND_KILLS_MAX,
    SQLITE,
    TIMED_KILLS_MAX,
    Amount,
    preset,
)
from verify.chaos.report import print_tables
from verify.chaos.round_plan import RoundPlan, Subject
from verify.chaos.rounds import FinishedRound, run_round

TASKS_PER_KILL = 4
SKEWED_TASKS_PER_KILL = 1  # few tenants work them off one by one, and each kill stops one of them
SKEWED_TENANTS = 20
LEAST_TASKS = 150
KILLS_PER_PLAN = 4
COMPLAINTS_SHOWN = 20
STOPPED = 143


@dataclass(frozen=True, slots=True, kw_only=True)
class Stint:
    """The work of one round."""

    subject: Subject
    tenants: int
    amount: Amount


def main(arguments: list[str] | None = None) -> int:
    given = _parse(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(STOPPED))  # not without its children
    stints = [stint for subject in given.only for stint in _stints(given, subject)]
    folder = Path(tempfile.mkdtemp(prefix="holdfast-chaos-"))
    ends = time.monotonic() + (given.seconds or sum(stint.amount.seconds for stint in stints))
    rounds = []
    for number, stint in enumerate(stints):
        seconds = (ends - time.monotonic()) / (len(stints) - number)
        plan = _plan(given, folder, number, stint, seconds=seconds)
        print(_told(plan), flush=True)
        rounds.append(run_round(plan))
        _tidy(rounds[-1], given.keep)
    print_tables(rounds)
    if given.report is not None:
        _document(given, rounds, sys.argv[1:] if arguments is None else arguments)
    return _conclude(given, rounds, folder)


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=document.COMMAND, description=__doc__)
    parser.add_argument(
        "--only", type=_subjects, default=list(Subject), help="a part of: tasks,triggers,plans"
    )
    parser.add_argument("--kills", type=int, help="workers to kill, over all rounds of a subject")
    parser.add_argument("--zombies", type=int, help="workers to freeze past a lease")
    parser.add_argument("--server-kills", type=int, help="kills of the redis-server")
    parser.add_argument("--lost-replies", type=int, help="answers of it that the proxy throws away")
    parser.add_argument(
        "--tenants",
        type=_numbers,
        default=[5, 400],
        help="a round of tasks for each, or several: 5,400",
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


def _subjects(text: str) -> list[Subject]:
    return [Subject(part) for part in text.split(",")]


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def _stints(given: argparse.Namespace, subject: Subject) -> list[Stint]:
    amount = _amount(given, subject)
    is_task = subject is Subject.TASKS
    tenants = given.tenants if is_task else [plan_round.SHARED_TENANTS]
    count = amount.rounds(len(tenants), ROUND_KILLS_MAX if is_task else TIMED_KILLS_MAX)
    return [
        Stint(
            subject=subject,
            tenants=tenants[number % len(tenants)],
            amount=amount.part(number, count),
        )
        for number in range(count)
    ]


def _amount(given: argparse.Namespace, subject: Subject) -> Amount:
    """The store's own, to the scale of the kills asked for, but for what else is asked for."""
    amount = preset(subject, given.store, long=given.long)
    amount = amount if given.kills is None else amount.scaled_to(given.kills)
    asked = {field.name: getattr(given, field.name) for field in fields(Amount)}
    if given.store != REDIS and (given.server_kills or given.lost_replies):
        raise SystemExit("--server-kills and --lost-replies need --store redis")
    return replace(amount, **{name: value for name, value in asked.items() if value is not None})


def _plan(
    given: argparse.Namespace, folder: Path, number: int, stint: Stint, *, seconds: float
) -> RoundPlan:
    name = f"round-{number + 1}"
    files = folder / name
    files.mkdir()
    amount, manner = stint.amount, MANNERS[stint.subject]
    url = f"sqlite:///{files}/store.db" if given.store == SQLITE else given.store
    return RoundPlan(
        name=name,
        subject=stint.subject,
        store=url.replace("{round}", name),
        folder=files,
        tenants=stint.tenants,
        kills=amount.kills,
        zombies=amount.zombies,
        server_kills=amount.server_kills,
        wire=wire.harms_for(amount.lost_replies),
        tasks=_how_many(stint),
        seed=given.seed + number,
        seconds=seconds,
        workers=manner.workers,
        slots=manner.slots,
        kill_every_seconds=manner.kill_every_seconds,
    )


def _how_many(stint: Stint) -> int:
    kills = stint.amount.kills
    match stint.subject:
        case Subject.TASKS:
            is_skewed = stint.tenants <= SKEWED_TENANTS
            each = SKEWED_TASKS_PER_KILL if is_skewed else TASKS_PER_KILL
            return max(LEAST_TASKS, each * kills)
        case Subject.TRIGGERS:
            return trigger_round.LEAST_TRIGGERS
        case Subject.PLANS:
            return max(plan_round.LEAST_PLANS, kills // KILLS_PER_PLAN)


def _told(plan: RoundPlan) -> str:
    beside = f", {plan.server_kills} of the server" if plan.server_kills else ""
    return (
        f"{plan.name}: {plan.kills} kills{beside} and {plan.zombies} zombies over {plan.tenants} "
        f"tenants, {plan.tasks} {plan.subject}, seed {plan.seed}, {plan.store}"
    )


def _tidy(one: FinishedRound, keep: bool) -> None:
    """Remove the files of a round without complaints."""
    if not one.complaints and not keep:
        shutil.rmtree(one.plan.folder)


def _document(given: argparse.Namespace, rounds: list[FinishedRound], arguments: list[str]) -> None:
    section = document.Section(
        store=given.store,
        version=rounds[0].version,
        arguments=arguments,
        rounds=rounds,
    )
    document.write(given.report, section)


def _conclude(given: argparse.Namespace, rounds: list[FinishedRound], folder: Path) -> int:
    complaints = [said for one in rounds for said in one.complaints]
    for said in complaints[:COMPLAINTS_SHOWN]:
        print(f"  {said}")
    if len(complaints) > COMPLAINTS_SHOWN:
        print(f"  … and {len(complaints) - COMPLAINTS_SHOWN} more")
    for one in rounds:
        if one.complaints:
            print(f"{one.plan.name} once more: {_again(given, one.plan)}")
    if complaints or given.keep:
        print(f"Stores, ledgers and logs are in {folder}")
    else:
        shutil.rmtree(folder)
    return 1 if complaints else 0


def _again(given: argparse.Namespace, plan: RoundPlan) -> str:
    """The same work, the same harm in the same measure; when it strikes, the machine decides."""
    asked = f"--only {plan.subject} --store {given.store} --seed {plan.seed} --kills {plan.kills}"
    of_tasks = f" --tenants {plan.tenants}" if plan.subject is Subject.TASKS else ""
    return f"{document.COMMAND} {asked} --zombies {plan.zombies}{of_tasks} --keep"


if __name__ == "__main__":
    sys.exit(main())
