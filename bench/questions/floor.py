"""The distance of our engine from its bare writes: `python -m bench.questions.floor`.

The writes of our engine while it drains, takes bulk submits and runs stages are noted once on each
store and then sent again bare (`bench/harness/bare_redis.py`, `bare_sqlite.py`), in turn with the
engine itself. The floor has the writes only: no reads, no scripts, no decisions, no user code, and
one process. After each replay the store must say the same of its tasks as after the real run.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from bench.harness import bare_redis, bare_sqlite, processes
from bench.harness.bench import Bench, Case, CaseResult, new_board
from bench.harness.command import ask_alone
from bench.harness.paths import OURS as OUR_FOLDER
from bench.harness.plan import Part
from bench.harness.processes import CaseFailed, ChildProcess
from bench.harness.trial_stores import TrialStore
from bench.questions.board_wait import wait_done
from bench.questions.drain import measure_drain
from bench.report.figures import FLOOR, OURS, Who

NAME = "floor"
STAGES, AT_ONCE = 5, 50
WHATS = ("drain", "submit", "stages")
STORES = ("redis", "sqlite")
LIMIT_SECONDS = 60.0
REPLAYS = 2  # a replay is over in an instant: the quickest is what it takes
_WRITTEN = re.compile(r"([\d.,]+) (commands|bytes|rows)\b")
UNIT = {"drain": "tasks/s", "submit": "tasks/s", "stages": "stages/s"}


class Thing(msgspec.Struct, frozen=True, kw_only=True):
    """An amount of work of one kind on a store."""

    what: str  # of WHATS
    store: str
    tasks: int = 10_000
    workflows: int = 1_000

    @property
    def amount(self) -> int:
        """Return the number of tasks or stages that are counted."""
        return self.workflows * STAGES if self.what == "stages" else self.tasks

    @property
    def asked(self) -> dict[str, Any]:
        if self.what == "stages":
            return {"workflows": self.workflows, "stages": STAGES, "at_once": AT_ONCE}
        return {"tasks": self.tasks, "how": "bulk"}

    def result(self, seconds: float, *notes: str) -> CaseResult:
        rate = (self.amount / seconds, UNIT[self.what])
        return CaseResult(values={self.what: rate}, notes=list(notes))


class Bare(msgspec.Struct, frozen=True, kw_only=True):
    """The writes to send again, and the statuses that the store must report in the end."""

    what: Any  # Commands, Statements
    statuses: dict[str, int]


def parts(bench: Bench) -> list[Part]:
    things = [Thing(what=what, store=store) for what in WHATS for store in STORES]
    folder = bench.trial_stores.folder("holdfast-floor-")
    found = [case for thing in things for case in cases(bench, thing, folder)]
    return [Part(question=NAME, what="ours and bare", cases=found)]


def cases(bench: Bench, thing: Thing, folder: Path) -> list[Case]:
    """Return the case of our engine and the case of the floor."""
    bares: list[Bare] = []  # made when it is first needed
    runs = {
        OURS: partial(_real, bench, thing),
        FLOOR: partial(_measure_replay, bench, thing, bares, folder),
    }
    return [
        Case(
            question=NAME,
            who=Who(engine=engine, store=thing.store),
            case={},
            run=run,
            main=(thing.what, UNIT[thing.what]),
            about=4.0,
        )
        for engine, run in runs.items()
    ]


def _real(bench: Bench, thing: Thing) -> CaseResult:
    who = bench.ours.on(thing.store)
    if thing.what == "drain":
        rate, _ = measure_drain(bench, who, tasks=thing.tasks).values["rate"]
        return thing.result(thing.tasks / rate)
    with bench.trial_stores.open(thing.store) as trial:
        bench.call(who, "prepare", trial)
        found = bench.call(who, thing.what, trial, seconds=LIMIT_SECONDS, **thing.asked)
    return thing.result(found["seconds"])


# -- the floor


def _measure_replay(bench: Bench, thing: Thing, bares: list[Bare], folder: Path) -> CaseResult:
    if not bares:
        name = f"{thing.what}-{thing.store}-{len(list(folder.iterdir()))}.db"
        bares.append(_record(bench, thing, folder / name))
    seconds, rows = min(_replay(bench, thing, bares[0]) for _ in range(REPLAYS))
    return thing.result(seconds, _note(bares[0], thing, rows))


def _replay(bench: Bench, thing: Thing, bare: Bare) -> tuple[float, int]:
    """Return the seconds, and on SQLite the number of changed rows."""
    rows = 0
    with bench.trial_stores.open(thing.store) as trial:
        if thing.store == "redis":
            seconds = bare_redis.replayed_seconds(bare.what, trial.url)
        else:
            seconds, rows = bare_sqlite.replay(bare.what, _file(trial))
        said = bench.call(bench.ours.on(thing.store), "verify", trial)["by_status"]
    if said != bare.statuses:
        raise CaseFailed(f"after the replay the store says {said}, not {bare.statuses}")
    return seconds, rows


def _record(bench: Bench, thing: Thing, kept: Path) -> Bare:
    who = bench.ours.on(thing.store)
    with bench.trial_stores.open(thing.store) as trial:
        bench.call(who, "prepare", trial)
        if thing.what == "drain":
            bench.call(who, "submit", trial, **thing.asked)
        if thing.store == "redis":
            found: Any = _commands(bench, thing, trial)
        else:
            found = _statements(bench, thing, trial, kept)
        said = bench.call(who, "verify", trial)["by_status"]
    return Bare(what=found, statuses=said)


def _commands(bench: Bench, thing: Thing, trial: TrialStore) -> bare_redis.RecordedCommands:
    assert trial.redis is not None
    start = bare_redis.count_noted_bytes(trial.redis)
    _run(bench, thing, trial, "adapter.py", {})
    end = bare_redis.count_noted_bytes(trial.redis)
    return bare_redis.commands_of(trial.redis, (start, end))


def _statements(
    bench: Bench, thing: Thing, trial: TrialStore, kept: Path
) -> bare_sqlite.Statements:
    shutil.copy(_file(trial), kept)
    record = kept.with_suffix(".record")
    _run(bench, thing, trial, "recorder.py", {"FLOOR_RECORD": str(record)})
    return bare_sqlite.statements_of(kept, record)


def _run(bench: Bench, thing: Thing, trial: TrialStore, script: str, extra: dict[str, str]) -> None:
    """Run once, by the engine itself, what is recorded."""
    engine = msgspec.structs.replace(bench.ours, script=OUR_FOLDER / script)
    if thing.what != "drain":
        command = engine.command(thing.what, url=trial.url, **thing.asked)
        processes.call(command, seconds=LIMIT_SECONDS, extra=extra)
        return
    with new_board(thing.tasks) as (path, board):
        command = engine.command("work", url=trial.url, board=path, size=thing.tasks)
        with ChildProcess(command, extra=extra) as worker:
            wait_done(board, [worker], seconds=LIMIT_SECONDS)
            worker.stop()


def _file(trial: TrialStore) -> Path:
    return Path(trial.url.removeprefix("sqlite:///"))


def _note(bare: Bare, thing: Thing, rows: int) -> str:
    what, of = thing.what, "stage" if thing.what == "stages" else "task"
    if isinstance(bare.what, bare_redis.RecordedCommands):
        commands, size = len(bare.what.timed) / thing.amount, bare.what.timed_bytes / thing.amount
        return f"{what}: {commands:.2f} commands and {size:,.0f} bytes a {of}"
    transactions = len(bare.what.transactions)
    return f"{what}: {rows / thing.amount:.2f} rows a {of} in {transactions:,} transactions"


def written_in(notes: Sequence[str]) -> dict[str, float]:
    """Return from such notes how much was written for each task or stage, by unit."""
    found = [pair for note in notes for pair in _WRITTEN.findall(note)]
    return {unit: float(number.replace(",", "")) for number, unit in found}


if __name__ == "__main__":
    ask_alone(NAME)
