"""docs/reliability.md: a section per store, written anew by the run that measured it."""

from __future__ import annotations

import platform
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

from holdfast.testing.chaos.report import columns, rows
from holdfast.testing.chaos.rounds import Round

TITLE = """# Reliability

What chaos found: real workers killed (SIGKILL) and frozen past their lease (SIGSTOP, SIGCONT), and
with them a submitter, an operator and, where the store has one, its server and the connections to
it. Every effect is written to a ledger outside the store, and the judge compares both.
`make chaos-long` writes this page; `make chaos` is the same in short.
"""

COMMAND = "python -m holdfast.testing.chaos"


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    store: str  # "sqlite"
    version: str  # "SQLite 3.54.1"
    arguments: Sequence[str]
    rounds: Sequence[Round]

    @property
    def text(self) -> str:
        return "\n".join([f"## {self.version}", "", *self._facts(), "", *self._table(), ""])

    def _facts(self) -> list[str]:
        plan = self.rounds[0].plan
        seeds = ", ".join(str(one.plan.seed) for one in self.rounds)
        complaints = sum(len(one.complaints) for one in self.rounds)
        ran = f"Holdfast {metadata.version('holdfast')}, Python {platform.python_version()}"
        return [
            f"- {datetime.now(UTC):%Y-%m-%d}, {ran}, {self.version}",
            f"- `{COMMAND} {shlex.join(self.arguments)}`",
            f"- {plan.workers} workers of {plan.slots} slots, a lease of {plan.lease_seconds:g} s",
            f"- seeds, one a round: {seeds}",
            f"- complaints: {complaints or 'none'}",
        ]

    def _table(self) -> list[str]:
        names = list(columns(self.rounds))
        lines = ["| |" + "|".join(names) + "|", "|---|" + "---:|" * len(names)]
        for name, cells in rows(self.rounds).items():
            indented = "&nbsp;&nbsp;" + name.strip() if name.startswith(" ") else name
            lines.append(f"|{indented}|{'|'.join(cells)}|")
        return lines


def write(path: Path, section: Section) -> None:
    """Put the section in the place of the store's last one; the others stay as they are."""
    begin, end = f"<!-- {section.store} -->", f"<!-- end of {section.store} -->"
    written = path.read_text(encoding="utf-8") if path.exists() else TITLE
    fresh = f"{begin}\n{section.text}{end}\n"
    place = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}\n", re.DOTALL)
    if place.search(written):
        written = place.sub(lambda _: fresh, written)
    else:
        written = f"{written}\n{fresh}"
    path.write_text(written, encoding="utf-8")
