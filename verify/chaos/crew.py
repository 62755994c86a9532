"""The parent process forks its children, and kills, freezes and thaws only these."""

from __future__ import annotations

import gc
import os
import random
import signal
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from verify.chaos import ledger, plan_round, task_round, trigger_round, wire
from verify.chaos.processes import Child, Role, fork
from verify.chaos.roles import ZOMBIE_EXIT, Cast
from verify.chaos.round_plan import RoundPlan, Subject
from verify.chaos.server import Server
from verify.chaos.wire import FaultyWire
from verify.proxy import REPLIES_LOST, Harm

TICK_SECONDS = 0.01
INSIDE_SHARE = 0.7  # of the victims; the others may be anywhere, in the store's code too
PATIENCE_SECONDS = 1.0  # for one that is inside: there may be no work before more harm is done
FREEZE_LEASES = (1.3, 2.5)
FROZEN_AT_ONCE = 3
THAWED_SECONDS = 0.5  # a zombie is left alive so long, to do its worst
END_SECONDS = 60.0
FAILED_MAX = 20  # then it is not chaos that ends them
ENDS = (0, -signal.SIGKILL, -signal.SIGTERM)  # the last: dismissed before it could hear of it


CASTS: dict[Subject, Cast[Any]] = {
    Subject.TASKS: task_round.CAST,
    Subject.TRIGGERS: trigger_round.CAST,
    Subject.PLANS: plan_round.CAST,
}


@dataclass(slots=True)
class KillCounts:
    kills: int = 0
    inside: int = 0  # of the kills: the victim was inside a stage, or held triggers
    zombies: int = 0
    submitter_kills: int = 0
    operator_kills: int = 0
    server_kills: int = 0
    server_away_seconds: float = 0.0
    wire: Counter[Harm] = field(default_factory=Counter)
    ended_themselves: int = 0  # workers whose plain function had lost its lease
    failed: list[str] = field(default_factory=list)  # children that ended as none should
    settled: bool = False
    calm_after_seconds: float = 0.0

    @property
    def replies_lost(self) -> int:
        return sum(self.wire[harm] for harm in REPLIES_LOST)


class ChaosCrew:
    def __init__(
        self, plan: RoundPlan, *, server: Server | None = None, line: FaultyWire | None = None
    ) -> None:
        self._plan = plan
        self._cast = CASTS[plan.subject]
        self._server = server
        self._line = line
        self._proxy: Child | None = None
        self._chance = random.Random(plan.seed)
        self._workers: list[Child] = []
        self._submitter: Child | None = None
        self._operator: Child | None = None
        self._born = 0
        self._began = time.monotonic()
        self._next_kill = self._began
        self._wants_inside = True
        self.tally = KillCounts()

    def run(self) -> KillCounts:
        gc.collect()
        gc.freeze()  # shared with the children: they need not copy it
        ends = self._began + self._plan.seconds
        try:
            self._place_proxy()
            while time.monotonic() < ends and not self._is_over():
                self._reap()
                self._staff()
                self._revive()
                self._strike()
                time.sleep(TICK_SECONDS)
            self.tally.settled = self._plan.settled.is_set()
            self._dismiss()
        finally:
            self._kill_all()
            gc.unfreeze()
        return self.tally

    def _is_over(self) -> bool:
        return self._plan.settled.is_set() or len(self.tally.failed) > FAILED_MAX

    # -- births and deaths

    def _staff(self) -> None:
        while len(self._workers) < self._plan.workers:
            self._workers.append(self._fork("worker", self._cast.work))
        if self._submitter is None and not self._plan.submitted.is_set():
            self._submitter = self._fork("submitter", self._cast.submit)
        if self._operator is None:
            self._operator = self._fork("operator", self._cast.operate)

    def _place_proxy(self) -> None:
        if self._line is not None:
            self._proxy = self._fork("proxy", self._line.serve)
            self._line.close()

    def _fork(self, role: str, run: Role) -> Child:
        self._born += 1
        return fork(self._plan, f"{role}-{self._born:04d}", run)

    def _reap(self) -> None:
        for child in self._children():
            code = child.exit_code()
            if code is not None:
                self._forget(child)
                self._note_exit(child, code)

    def _note_exit(self, child: Child, code: int) -> None:
        if code == ZOMBIE_EXIT:
            self.tally.ended_themselves += 1
        elif code not in ENDS:
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
        self._strike_others()
        if self._share() >= 1:
            self._calm_down(now)
            return
        if now < self._next_kill:
            return
        victim = self._victim(now)
        if victim is None:
            return
        self._next_kill = now + self._chance.expovariate(1 / self._plan.kill_every_seconds)
        if self._wants_zombie():
            self._freeze(victim, now)
        elif self.tally.kills < self._plan.kills:
            self.tally.kills += 1
            self.tally.inside += self._is_inside(victim)
            self._kill(victim)
        self._plan.harm.set(self._share())

    def _calm_down(self, now: float) -> None:
        """Set the calm once all planned harm was dealt and nobody suffers from it any more."""
        plan, tally, server = self._plan, self.tally, self._server
        tally.wire = plan.dealt.read()
        if plan.calm.is_set() or self._frozen() or not wire.is_done(plan, tally.wire):
            return
        if server is not None and (server.is_away or server.kills < plan.server_kills):
            return
        tally.calm_after_seconds = now - self._began
        plan.calm.set()

    def _share(self) -> float:
        """Return the share of the planned harm that was dealt."""
        planned = self._plan.kills + self._plan.zombies
        return (self.tally.kills + self.tally.zombies) / planned if planned else 1.0

    def _victim(self, now: float) -> Child | None:
        """Choose a worker that has begun, mostly one inside a stage; None: there is none now."""
        begun = [
            child
            for child in self._workers
            if child.frozen_until is None and child.spared_until < now and self._has_begun(child)
        ]
        if self._wants_inside and now < self._next_kill + PATIENCE_SECONDS:
            begun = [child for child in begun if self._is_inside(child)]
        if not begun:
            return None
        self._wants_inside = self._chance.random() < INSIDE_SHARE
        return self._chance.choice(begun)

    def _has_begun(self, child: Child) -> bool:
        return ledger.has_begun(self._plan.folder, child.name)

    def _is_inside(self, child: Child) -> bool:
        return ledger.is_inside(self._plan.folder, child.name)

    def _wants_zombie(self) -> bool:
        """Return whether the next victim is frozen: zombies are spread over the kills."""
        plan, tally = self._plan, self.tally
        if tally.zombies >= plan.zombies or len(self._frozen()) >= FROZEN_AT_ONCE:
            return False
        return tally.kills >= plan.kills or tally.zombies * plan.kills <= plan.zombies * tally.kills

    def _strike_others(self) -> None:
        """Kill the submitter, the operator and the server in the same measure as workers."""
        plan, tally, share = self._plan, self.tally, self._share()
        submitter, operator, server = self._submitter, self._operator, self._server
        if (
            submitter is not None
            and tally.submitter_kills < plan.submitter_kills * share
            and self._has_begun(submitter)
        ):
            self._kill(submitter)
            tally.submitter_kills += 1
        if operator is not None and tally.operator_kills < plan.operator_kills * share:
            self._kill(operator)
            tally.operator_kills += 1
        if server is not None and server.kills < plan.server_kills * share:
            server.strike()
            tally.server_kills = server.kills

    def _kill(self, child: Child) -> None:
        child.kill()
        self._forget(child)

    def _freeze(self, child: Child, now: float) -> None:
        os.kill(child.pid, signal.SIGSTOP)
        child.frozen_until = now + self._plan.lease_seconds * self._chance.uniform(*FREEZE_LEASES)
        self.tally.zombies += 1

    def _revive(self) -> None:
        now = time.monotonic()
        for child in self._frozen():
            if child.frozen_until is not None and child.frozen_until <= now:
                os.kill(child.pid, signal.SIGCONT)
                child.frozen_until, child.spared_until = None, now + THAWED_SECONDS
        if self._server is not None:
            self._server.come_back()
            self.tally.server_away_seconds = self._server.away_seconds

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
        if self._proxy is not None:
            self._proxy.kill()
