"""What the rounds came to: a table with a column for each number of tenants."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.console import Console
from rich.table import Table

from holdfast.testing.chaos.crew import Tally
from holdfast.testing.chaos.judge import Verdict
from holdfast.testing.chaos.rounds import Round
from holdfast.testing.proxy import Harm

Rounds = Sequence[Round]


def columns(rounds: Rounds) -> dict[str, list[Round]]:
    """Rounds over as many tenants are counted together."""
    found: dict[str, list[Round]] = {}
    for one in rounds:
        found.setdefault(f"{one.plan.tenants} tenants", []).append(one)
    return found


def rows(rounds: Rounds) -> dict[str, list[str]]:
    """What there is nothing to say about is left out."""
    by_column = columns(rounds).values()
    with_server = any(one.plan.server_kills or one.plan.wire for one in rounds)
    shown = {**HARM, **(SERVER_HARM if with_server else {}), **FOUND}
    return {name: [cell(column) for column in by_column] for name, cell in shown.items()}


def print_table(rounds: Rounds) -> None:
    table = Table(title="Chaos, and what the store and the ledger say of it")
    table.add_column("")
    for name in columns(rounds):
        table.add_column(name, justify="right")
    for name, cells in rows(rounds).items():
        table.add_row(name, *cells)
    Console().print(table)


Cell = Callable[[Rounds], str]


def _tally(pick: Callable[[Tally], int]) -> Cell:
    return lambda rounds: str(sum(pick(one.tally) for one in rounds))


def _verdict(pick: Callable[[Verdict], int]) -> Cell:
    return lambda rounds: str(sum(pick(one.verdict) for one in rounds))


def _seconds(pick: Callable[[Round], float]) -> Cell:
    return lambda rounds: f"{sum(pick(one) for one in rounds):.1f}"


def _spread(pick: Callable[[Verdict], Sequence[float]]) -> Cell:
    return lambda rounds: _percentiles([value for one in rounds for value in pick(one.verdict)])


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
    "  of these inside a stage": _tally(lambda tally: tally.inside),
    "zombies (frozen past their lease)": _tally(lambda tally: tally.zombies),
    "  a second, while it lasted": _rate,
    "submitters killed": _tally(lambda tally: tally.submitter_kills),
    "operators killed": _tally(lambda tally: tally.operator_kills),
}

SERVER_HARM: dict[str, Cell] = {
    "servers killed": _tally(lambda tally: tally.server_kills),
    "  away for, s": _seconds(lambda one: one.tally.server_away_seconds),
    "replies lost": _tally(lambda tally: tally.replies_lost),
    "  of these torn in the middle": _tally(lambda tally: tally.wire[Harm.TEAR]),
    "  connection left open": _tally(lambda tally: tally.wire[Harm.MUTE]),
    "connections cut": _tally(lambda tally: tally.wire[Harm.CUT]),
    "connections half-open": _tally(lambda tally: tally.wire[Harm.DEAF]),
    "requests delayed": _tally(lambda tally: tally.wire[Harm.DELAY]),
}

FOUND: dict[str, Cell] = {
    "tasks": _verdict(lambda verdict: verdict.tasks),
    "submits sent again": _verdict(lambda verdict: verdict.repeated_submits),
    "stages committed": _verdict(lambda verdict: verdict.stages),
    "undos committed": _verdict(lambda verdict: verdict.undos),
    "retries": _verdict(lambda verdict: verdict.retries),
    "suspended as poison, resumed": _verdict(lambda verdict: verdict.poison),
    "take-overs (s after lease end)": _verdict(lambda verdict: len(verdict.taken_over)),
    "  swept after, p50 / p99 / max s": _spread(lambda verdict: verdict.swept),
    "  resumed after, p50 / p99 / max s": _spread(lambda verdict: verdict.taken_over),
    "  late by L1, standstills aside": _verdict(lambda verdict: verdict.late),
    "standstills (nobody answered), s": _seconds(lambda one: one.verdict.stood_still_seconds),
    "stale commits refused": _verdict(lambda verdict: verdict.stale),
    "lost": _verdict(lambda verdict: len(verdict.lost)),
    "double commits": _verdict(lambda verdict: len(verdict.double)),
    "two owners": _verdict(lambda verdict: len(verdict.two_owners)),
    "out of order": _verdict(lambda verdict: len(verdict.disorder)),
    "doctor's findings": _verdict(lambda verdict: len(verdict.doctor)),
    "rounds": lambda rounds: str(len(rounds)),
    "seconds": _seconds(lambda one: one.seconds),
}
