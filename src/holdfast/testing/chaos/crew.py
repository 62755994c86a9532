"""The parent: forks its children, and kills, freezes and thaws none but these."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import NoReturn

from holdfast.testing.chaos import children, ledger
from holdfast.testing.chaos.plan import Plan

Role = Callable[[Plan, str], Awaitable[None]]

TICK_SECONDS = 0.01
KILL_EVERY_SECONDS = 0.1  # on average; a kill waits for a worker that has begun something
INSIDE_SHARE = 0.7  # of the victims; the others may be anywhere, in the store's code too
FREEZE_LEASES = (1.3, 2.5)
FROZEN_AT_ONCE = 2
THAWED_SECONDS = 0.5  # a zombie is left alive so long, to do its worst
END_SECONDS = 10.0


@dataclass(slots=True)
class Child:
    name: str
    pid: int
    frozen_until: float | None = None
    spared_until: float = 0.0


@dataclass(slots=True)
class Tally:
    kills: int = 0
    zombies: int = 0
    submitter_kills: int = 0
    operator_kills: int = 0
    ended_themselves: int = 0  # workers whose plain function had lost its lease
    failed: list[str] = field(default_factory=list)  # children that ended as none should
    settled: bool = False


class Crew:
    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._chance = random.Random(plan.seed)
        self._workers: list[Child] = []
        self._submitter: Child | None = None
        self._operator: Child | None = None
        self._born = 0
        self._ends = time.monotonic() + plan.seconds
        self._next_kill = 0.0
        self.tally = Tally()

    def run(self) -> Tally:
        gc.collect()
        gc.freeze()  # shared with the children: they need not copy it
        try:
            while time.monotonic() < self._ends and not self._plan.settled.is_set():
                self._reap()
                self._staff()
                self._thaw()
                self._strike()
                time.sleep(TICK_SECONDS)
            self.tally.settled = self._plan.settled.is_set()
            self._dismiss()
        finally:
            self._kill_all()
        return self.tally

    # -- births and deaths

    def _staff(self) -> None:
        while len(self._workers) < self._plan.workers:
            self._workers.append(self._fork("worker", children.work))
        if self._submitter is None and not self._plan.submitted.is_set():
            self._submitter = self._fork("submitter", children.submit)
        if self._operator is None:
            self._operator = self._fork("operator", children.operate)

    def _fork(self, role: str, run: Role) -> Child:
        self._born += 1
        name = f"{role}-{self._born:04d}"
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            _live(run, self._plan, name)
        return Child(name, pid)

    def _reap(self) -> None:
        for child in self._children():
            pid, status = os.waitpid(child.pid, os.WNOHANG)
            if pid:
                self._forget(child)
                self._note_exit(child, os.waitstatus_to_exitcode(status))

    def _note_exit(self, child: Child, code: int) -> None:
        if code == children.ZOMBIE_EXIT:
            self.tally.ended_themselves += 1
        elif code not in (0, -signal.SIGKILL):
            self.tally.failed.append(f"{child.name} ended with {code}")

    def _children(self) -> list[Child]:
        single = [child for child in (self._submitter, self._operator) if child is not None]
        return [*self._workers, *single]

    def _forget(self, child: Child) -> None:
        if child is self._submitter:
            self._submitter = None
        elif child is self._operator:
            self._operator = None
        else:
            self._workers.remove(child)

    # -- harm

    def _strike(self) -> None:
        now = time.monotonic()
        if self._share() >= 1:
            if not self._frozen():
                self._plan.calm.set()
            return
        if now < self._next_kill:
            return
        self._next_kill = now + self._chance.expovariate(1 / KILL_EVERY_SECONDS)
        victim = self._victim(now)
        if victim is None:
            return
        if self._wants_zombie():
            self._freeze(victim, now)
        elif self.tally.kills < self._plan.kills:
            self._kill(victim)
            self.tally.kills += 1
        self._plan.harm.set(self._share())
        self._strike_beside()

    def _share(self) -> float:
        """Of the harm that was planned."""
        dealt = self.tally.kills + self.tally.zombies
        return dealt / max(self._plan.kills + self._plan.zombies, 1)

    def _victim(self, now: float) -> Child | None:
        """One that has begun its work, and rather one that is inside a stage."""
        last = {
            child.name: ledger.last_of(self._plan.folder, child.name)
            for child in self._workers
            if child.frozen_until is None and child.spared_until < now
        }
        begun = [child for child in self._workers if last.get(child.name)]
        inside = [child for child in begun if last[child.name] is ledger.Kind.BEGIN]
        if inside and self._chance.random() < INSIDE_SHARE:
            return self._chance.choice(inside)
        return self._chance.choice(begun) if begun else None

    def _wants_zombie(self) -> bool:
        """Spread over the kills, so that both kinds of harm meet."""
        plan, tally = self._plan, self.tally
        if tally.zombies >= plan.zombies or len(self._frozen()) >= FROZEN_AT_ONCE:
            return False
        return tally.kills >= plan.kills or tally.zombies * plan.kills <= plan.zombies * tally.kills

    def _strike_beside(self) -> None:
        """The submitter and the operator are mortal too."""
        plan, tally, share = self._plan, self.tally, self._share()
        submitter, operator = self._submitter, self._operator
        if (
            submitter is not None
            and tally.submitter_kills < plan.submitter_kills * share
            and ledger.last_of(plan.folder, submitter.name)
        ):
            self._kill(submitter)
            tally.submitter_kills += 1
        if operator is not None and tally.operator_kills < plan.operator_kills * share:
            self._kill(operator)
            tally.operator_kills += 1

    def _kill(self, child: Child) -> None:
        os.kill(child.pid, signal.SIGKILL)
        os.waitpid(child.pid, 0)
        self._forget(child)

    def _freeze(self, child: Child, now: float) -> None:
        os.kill(child.pid, signal.SIGSTOP)
        child.frozen_until = now + self._plan.lease_seconds * self._chance.uniform(*FREEZE_LEASES)
        self.tally.zombies += 1

    def _thaw(self) -> None:
        now = time.monotonic()
        for child in self._frozen():
            if child.frozen_until is not None and child.frozen_until <= now:
                os.kill(child.pid, signal.SIGCONT)
                child.frozen_until, child.spared_until = None, now + THAWED_SECONDS

    def _frozen(self) -> list[Child]:
        return [child for child in self._workers if child.frozen_until is not None]

    # -- the end

    def _dismiss(self) -> None:
        """Ask the workers to drain; the others end by themselves when all is settled."""
        if not self.tally.settled:
            return
        for child in self._workers:
            os.kill(child.pid, signal.SIGCONT)
            os.kill(child.pid, signal.SIGTERM)
        ends = time.monotonic() + END_SECONDS
        while self._children() and time.monotonic() < ends:
            self._reap()
            time.sleep(TICK_SECONDS)
        self.tally.failed += [f"{child.name} did not end" for child in self._children()]

    def _kill_all(self) -> None:
        for child in self._children():
            self._kill(child)


def _live(run: Role, plan: Plan, name: str) -> NoReturn:
    """In the child. It never returns into the parent's stack."""
    code = 1
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent's business
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        logging.basicConfig(
            filename=plan.folder / "log", format=f"%(asctime)s {name} %(name)s %(message)s"
        )
        asyncio.run(_awaited(run(plan, name)))
        code = 0
    except BaseException:
        with (plan.folder / "log").open("a", encoding="utf-8") as log:
            traceback.print_exc(file=log)
    finally:
        os._exit(code)


async def _awaited(run: Awaitable[None]) -> None:
    await run
