"""The report of the rounds: a table for each subject, a column for each number of tenants."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from rich.console import Console
from rich.table import Table

from verify.chaos.crew import KillCounts
from verify.chaos.judges.plans import PlanVerdict
from verify.chaos.judges.tasks import TaskVerdict
from verify.chaos.judges.triggers import TriggerVerdict
from verify.chaos.round_plan import Subject
from verify.chaos.rounds import FinishedRound
from verify.proxy import Harm

Rounds = Sequence[FinishedRound]
V = TypeVar("V", TaskVerdict, TriggerVerdict, PlanVerdict)


def by_subject(rounds: Rounds) -> dict[Subject, list[FinishedRound]]:
    found: dict[Subject, list[FinishedRound]] = {}
    for one in rounds:
        found.setdefault(one.plan.subject, []).append(one)
    return found


def columns(rounds: Rounds) -> dict[str, list[FinishedRound]]:
    """Group one subject's rounds by their number of tenants."""
    found: dict[str, list[FinishedRound]] = {}
    for one in rounds:
        is_task = one.plan.subject is Subject.TASKS
        name = f"{one.plan.tenants} tenants" if is_task else str(one.plan.subject)
        found.setdefault(name, []).append(one)
    return found


def rows(rounds: Rounds) -> dict[str, list[str]]:
    """Return the rows of one subject; a row with nothing to say is left out."""
    by_column = columns(rounds).values()
    subject = rounds[0].plan.subject
    with_server = any(one.plan.server_kills or one.plan.wire for one in rounds)
    shown = {**HARM, **(SERVER_HARM if with_server else {}), **FOUND[subject], **LASTED}
    return {name: [cell(column) for column in by_column] for name, cell in shown.items()}


def print_tables(rounds: Rounds) -> None:
    for subject, of in by_subject(rounds).items():
        _print_table(subject, of)


def _print_table(subject: Subject, rounds: Rounds) -> None:
    table = Table(title=f"Chaos over {subject}, and what the store and the ledger say of it")
    table.add_column("")
    for name in columns(rounds):
        table.add_column(name, justify="right")
    for name, cells in rows(rounds).items():
        table.add_row(name, *cells)
    Console().print(table)


Cell = Callable[[Rounds], str]


def _tally(pick: Callable[[KillCounts], int]) -> Cell:
    return lambda rounds: str(sum(pick(one.tally) for one in rounds))


def _verdict(pick: Callable[[TaskVerdict], int]) -> Cell:
    return lambda rounds: str(sum(map(pick, _verdicts(rounds, TaskVerdict))))


def _triggers(pick: Callable[[TriggerVerdict], int]) -> Cell:
    return lambda rounds: str(sum(map(pick, _verdicts(rounds, TriggerVerdict))))


def _plans(pick: Callable[[PlanVerdict], int]) -> Cell:
    return lambda rounds: str(sum(map(pick, _verdicts(rounds, PlanVerdict))))


def _verdicts(rounds: Rounds, kind: type[V]) -> list[V]:
    return [one.verdict for one in rounds if isinstance(one.verdict, kind)]


def _seconds(pick: Callable[[FinishedRound], float]) -> Cell:
    return lambda rounds: f"{sum(pick(one) for one in rounds):.1f}"


def _spread(pick: Callable[[TaskVerdict], Sequence[float]]) -> Cell:
    return lambda rounds: _percentiles(
        [value for verdict in _verdicts(rounds, TaskVerdict) for value in pick(verdict)]
    )


def _stood_still(rounds: Rounds) -> str:
    return f"{sum(one.stood_still_seconds for one in _verdicts(rounds, TaskVerdict)):.1f}"


def _rate(rounds: Rounds) -> str:
    lasted = sum(one.tally.calm_after_seconds for one in rounds)
    return f"{sum(one.tally.kills for one in rounds) / lasted:.1f}" if lasted else "–"


def _percentiles(values: Sequence[float]) -> str:
    if not values:
        return "–"
    ordered = sorted(values)
    picks = [ordered[int(share * (len(ordered) - 1))] for share in (0.5, 0.99, 1.0)]
    return " / ".join(f"{pick:.2f}" for pick in picks)


HARM: dict[str, Cell] = {
    "workers killed": _tally(lambda tally: tally.kills),
    "  of these inside a stage or a firing": _tally(lambda tally: tally.inside),
    "zombies (frozen past their lease)": _tally(lambda tally: tally.zombies),
    "  kills per second": _rate,
    "submitters killed": _tally(lambda tally: tally.submitter_kills),
    "operators killed": _tally(lambda tally: tally.operator_kills),
}

SERVER_HARM: dict[str, Cell] = {
    "servers killed": _tally(lambda tally: tally.server_kills),
    "  away for, s": _seconds(lambda one: one.tally.server_away_seconds),
    "replies lost": _tally(lambda tally: tally.replies_lost),
    "  of these cut in the middle": _tally(lambda tally: tally.wire[Harm.TEAR]),
    "  connection left open": _tally(lambda tally: tally.wire[Harm.MUTE]),
    "connections cut": _tally(lambda tally: tally.wire[Harm.CUT]),
    "connections half-open": _tally(lambda tally: tally.wire[Harm.DEAF]),
    "requests delayed": _tally(lambda tally: tally.wire[Harm.DELAY]),
}

FOUND: dict[Subject, dict[str, Cell]] = {
    Subject.TASKS: {
        "tasks": _verdict(lambda verdict: verdict.tasks),
        "submits sent again": _verdict(lambda verdict: verdict.repeated_submits),
        "stages committed": _verdict(lambda verdict: verdict.stages),
        "undos committed": _verdict(lambda verdict: verdict.undos),
        "retries": _verdict(lambda verdict: verdict.retries),
        "suspended as poison, resumed": _verdict(lambda verdict: verdict.poison),
        "take-overs (s after lease end)": _verdict(lambda verdict: len(verdict.taken_over)),
        "  lease taken back after, p50 / p99 / max s": _spread(lambda verdict: verdict.swept),
        "  resumed after, p50 / p99 / max s": _spread(lambda verdict: verdict.taken_over),
        "  later than the limit L1, without standstills": _verdict(lambda verdict: verdict.late),
        "time in which the store did not answer, s": _stood_still,
        "stale commits refused": _verdict(lambda verdict: verdict.stale),
        "lost": _verdict(lambda verdict: len(verdict.lost)),
        "double commits": _verdict(lambda verdict: len(verdict.double)),
        "two owners": _verdict(lambda verdict: len(verdict.two_owners)),
        "out of order": _verdict(lambda verdict: len(verdict.disorder)),
        "doctor's findings": _verdict(lambda verdict: len(verdict.doctor)),
    },
    Subject.TRIGGERS: {
        "clock jumps": _triggers(lambda verdict: verdict.jumps),
        "triggers": _triggers(lambda verdict: verdict.triggers),
        "fire times answered for": _triggers(lambda verdict: verdict.fire_times),
        "  missed, by their policies": _triggers(lambda verdict: verdict.missed),
        "tasks": _triggers(lambda verdict: verdict.tasks),
        "  fired by hand": _triggers(lambda verdict: verdict.by_hand),
        "taken over": _triggers(lambda verdict: verdict.taken_over),
        "stale firings refused": _triggers(lambda verdict: verdict.stale),
        "lost": _triggers(lambda verdict: len(verdict.lost)),
        "fire times with two tasks": _triggers(lambda verdict: len(verdict.doubled)),
        "miscounted": _triggers(lambda verdict: len(verdict.miscounted)),
        "not answered for": _triggers(lambda verdict: len(verdict.unanswered)),
        "doctor's findings": _triggers(lambda verdict: len(verdict.doctor)),
    },
    Subject.PLANS: {
        "plans": _plans(lambda verdict: verdict.plans),
        "  waves": _plans(lambda verdict: verdict.waves),
        "  halts": _plans(lambda verdict: verdict.halts),
        "  pauses": _plans(lambda verdict: verdict.pauses),
        "  rolled back": _plans(lambda verdict: verdict.rolled_back),
        "drivers": _plans(lambda verdict: verdict.drivers),
        "  their stale writes refused": _plans(lambda verdict: verdict.stale),
        "tasks": _plans(lambda verdict: verdict.tasks.tasks),
        "stages committed": _plans(lambda verdict: verdict.tasks.stages),
        "undos committed": _plans(lambda verdict: verdict.tasks.undos),
        "lost": _plans(lambda verdict: len(verdict.lost)),
        "over max_concurrency": _plans(lambda verdict: len(verdict.crowded)),
        "two drivers": _plans(lambda verdict: len(verdict.two_drivers)),
        "waves out of order": _plans(lambda verdict: len(verdict.disorder)),
        "double commits": _plans(lambda verdict: len(verdict.tasks.double)),
        "two owners": _plans(lambda verdict: len(verdict.tasks.two_owners)),
        "out of order": _plans(lambda verdict: len(verdict.tasks.disorder)),
        "doctor's findings": _plans(lambda verdict: len(verdict.tasks.doctor)),
    },
}

LASTED: dict[str, Cell] = {
    "rounds": lambda rounds: str(len(rounds)),
    "seconds": _seconds(lambda one: one.seconds),
}
