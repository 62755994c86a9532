"""The page docs/reliability.md: each chaos run writes the section of its store."""

from __future__ import annotations

import platform
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from holdfast.version import __version__
from verify.chaos.report import by_subject, columns, rows
from verify.chaos.rounds import FinishedRound

TITLE = """# Reliability

This page shows the results of the chaos runs, which use real processes. A run kills workers
(SIGKILL) and freezes them past their lease (SIGSTOP, SIGCONT). It also kills a submitter, an
operator and, where the store has one, its server, and it disturbs the connections to that server.
The stages write every effect to a ledger outside the store, and a judge compares the ledger with
the store.

Runs over triggers let the clock of each process jump by minutes. On Redis the server's clock
decides what is due, and the jumps affect what the schedulers write. Runs over plans use shared
tenants and kill the workers that drive the plans.

`make chaos-long` writes this page. `make chaos` is a short version of the same runs.
"""

COMMAND = "python -m verify.chaos"


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    store: str  # "sqlite"
    version: str  # "SQLite 3.54.1"
    arguments: Sequence[str]
    rounds: Sequence[FinishedRound]

    @property
    def text(self) -> str:
        tables = [line for of in by_subject(self.rounds).values() for line in ("", *_table(of))]
        return "\n".join([f"## {self.version}", "", *self._facts(), *tables, ""])

    def _facts(self) -> list[str]:
        plan = self.rounds[0].plan
        staff = "; ".join(_staff(of[0]) for of in by_subject(self.rounds).values())
        seeds = ", ".join(str(one.plan.seed) for one in self.rounds)
        complaints = sum(len(one.complaints) for one in self.rounds)
        ran = f"Holdfast {__version__}, Python {platform.python_version()}"
        return [
            f"- {datetime.now(UTC):%Y-%m-%d}, {ran}, {self.version}",
            f"- `{COMMAND} {shlex.join(self.arguments)}`",
            f"- {staff}, a lease of {plan.lease_seconds:g} s",
            f"- seeds, one a round: {seeds}",
            f"- complaints: {complaints or 'none'}",
        ]


def _staff(one: FinishedRound) -> str:
    plan = one.plan
    return f"{plan.subject}: {plan.workers} workers of {plan.slots} slots"


def _table(rounds: Sequence[FinishedRound]) -> list[str]:
    """Return the table of one subject."""
    names = list(columns(rounds))
    lines = ["| |" + "|".join(names) + "|", "|---|" + "---:|" * len(names)]
    for name, cells in rows(rounds).items():
        indented = "&nbsp;&nbsp;" + name.strip() if name.startswith(" ") else name
        lines.append(f"|{indented}|{'|'.join(cells)}|")
    return lines


def write(path: Path, section: Section) -> None:
    """Replace the store's section of the page and the text above all sections; keep the others."""
    begin, end = f"<!-- {section.store} -->", f"<!-- end of {section.store} -->"
    written = f"{TITLE}{_sections(path)}"
    fresh = f"{begin}\n{section.text}{end}\n"
    place = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}\n", re.DOTALL)
    if place.search(written):
        written = place.sub(lambda _: fresh, written)
    else:
        written = f"{written}\n{fresh}"
    path.write_text(written, encoding="utf-8")


def _sections(path: Path) -> str:
    """Return a page's text below its head."""
    if not path.exists():
        return ""
    _, mark, rest = path.read_text(encoding="utf-8").partition("\n<!-- ")
    return f"{mark}{rest}"
