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
SKEWED_TASKS_PER_KILL = 1  # few tenants run them one by one, and each kill stops one tenant
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
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(STOPPED))  # so that the children end, too
    stints = [stint for subject in given.only for stint in _stints(given, subject)]
    folder = Path(tempfile.mkdtemp(prefix="holdfast-chaos-"))
    ends = time.monotonic() + (given.seconds or sum(stint.amount.seconds for stint in stints))
    rounds = []
    for number, stint in enumerate(stints):
        seconds = (ends - time.monotonic()) / (len(stints) - number)
        plan = _plan(given, folder, number, stint, seconds=seconds)
        print(_format_round(plan), flush=True)
        rounds.append(run_round(plan))
        _tidy(rounds[-1], given.keep)
    print_tables(rounds)
    if given.report is not None:
        _document(given, rounds, sys.argv[1:] if arguments is None else arguments)
    return _conclude(given, rounds, folder)


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=document.COMMAND, description=__doc__)
    parser.add_argument(
        "--only", type=_subjects, default=list(Subject), help="some of: tasks,triggers,plans"
    )
    parser.add_argument("--kills", type=int, help="workers to kill, over all rounds of a subject")
    parser.add_argument("--zombies", type=int, help="workers to freeze past a lease")
    parser.add_argument("--server-kills", type=int, help="kills of the redis-server")
    parser.add_argument("--lost-replies", type=int, help="replies that the proxy drops")
    parser.add_argument(
        "--tenants",
        type=_numbers,
        default=[5, 400],
        help="run at least one round of tasks for each number of tenants (5,400)",
    )
    parser.add_argument("--seconds", type=float, help="end the run after this time")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument(
        "--store",
        default=SQLITE,
        help="sqlite, redis (starts a server and kills it, too), or the URL of an empty store, "
        "in which {round} becomes the name of the round",
    )
    parser.add_argument(
        "--straight", choices=("on", "off"), default="on", help="off: only Redis's general scripts"
    )
    parser.add_argument("--long", action="store_true", help="deal 10 000 kills")
    parser.add_argument("--report", type=Path, help="also write the figures to this page")
    parser.add_argument(
        "--keep", action="store_true", help="keep ledger and store even without complaints"
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
    """Return the preset of the store, scaled to ``--kills``, with what other options override."""
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
        straight=given.straight == "on",
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


def _format_round(plan: RoundPlan) -> str:
    of_server = f", {plan.server_kills} of the server" if plan.server_kills else ""
    return (
        f"{plan.name}: {plan.kills} kills{of_server} and {plan.zombies} zombies over "
        f"{plan.tenants} tenants, {plan.tasks} {plan.subject}, seed {plan.seed}, {plan.store}"
    )


def _tidy(finished: FinishedRound, keep: bool) -> None:
    """Remove the files of a round without complaints."""
    if not finished.complaints and not keep:
        shutil.rmtree(finished.plan.folder)


def _document(given: argparse.Namespace, rounds: list[FinishedRound], arguments: list[str]) -> None:
    section = document.Section(
        store=given.store,
        version=rounds[0].version,
        arguments=arguments,
        rounds=rounds,
    )
    document.write(given.report, section)


def _conclude(given: argparse.Namespace, rounds: list[FinishedRound], folder: Path) -> int:
    complaints = [complaint for finished in rounds for complaint in finished.complaints]
    for complaint in complaints[:COMPLAINTS_SHOWN]:
        print(f"  {complaint}")
    if len(complaints) > COMPLAINTS_SHOWN:
        print(f"  … and {len(complaints) - COMPLAINTS_SHOWN} more")
    for finished in rounds:
        if finished.complaints:
            print(f"Run {finished.plan.name} again: {_replay_command(given, finished.plan)}")
    if complaints or given.keep:
        print(f"Stores, ledgers and logs are in {folder}")
    else:
        shutil.rmtree(folder)
    return 1 if complaints else 0


def _replay_command(given: argparse.Namespace, plan: RoundPlan) -> str:
    """Return a command with the same work and amount of harm; the machine decides on its times."""
    asked = f"--only {plan.subject} --store {given.store} --seed {plan.seed} --kills {plan.kills}"
    of_tasks = f" --tenants {plan.tenants}" if plan.subject is Subject.TASKS else ""
    return f"{document.COMMAND} {asked} --zombies {plan.zombies}{of_tasks} --keep"


if __name__ == "__main__":
    sys.exit(main())
