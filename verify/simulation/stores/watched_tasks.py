"""The tasks of a simulated world, examined after each of their steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from holdfast.domain.task.crashes import SUSPECT_FROM
from holdfast.domain.task.transition import Insertion, Outcome, Submission, Transition
from holdfast.ports import Beat, Claimed, Due, Renewal
from holdfast.stores.memory.tasks import MemoryTasks
from verify.simulation.actors import tenant_holds
from verify.simulation.checks import plan_steps, verbs

if TYPE_CHECKING:
    from verify.simulation.stores.watched_store import WatchedStore

STAGE_TIMEOUT_SECONDS = 6.0
GRACE_SECONDS = 2.0
HANGS_SECONDS = STAGE_TIMEOUT_SECONDS + GRACE_SECONDS + 1.0


class WatchedTasks(MemoryTasks):
    def __init__(self, store: WatchedStore) -> None:
        super().__init__(store.state)
        self._watched = store

    async def insert(self, batch: Sequence[Submission], *, depth_limit: int) -> Sequence[Insertion]:
        answers = await super().insert(batch, depth_limit=depth_limit)
        moves = self._watched.step("insert", {s.task.tenant or s.task.id for s in batch})
        self._watched.judge(verbs.check_insert(self._watched.book, batch, answers, moves), moves)
        return answers

    async def claim(
        self, worker: str, *, request: str, queues: Sequence[str], limit: int, lease_seconds: float
    ) -> Sequence[Claimed]:
        answers = await super().claim(
            worker, request=request, queues=queues, limit=limit, lease_seconds=lease_seconds
        )
        moves = self._watched.step("claim", {c.task.tenant or c.task.id for c in answers})
        breaches = verbs.check_claim(
            self._watched.book,
            self._watched,
            worker=worker,
            request=request,
            answers=answers,
            moves=moves,
        )
        self._watched.judge(breaches, moves)
        self._watched.book.judge(
            tenant_holds.check_claims(self._watched, moves.values()), self._watched.now
        )
        return answers

    async def apply(self, batch: Sequence[Transition]) -> Sequence[Outcome]:
        answers = await super().apply(batch)
        tasks = [task for t in batch for task in (t.after, *(one.task for one in t.follows))]
        moves = self._watched.step("apply", {task.tenant or task.id for task in tasks})
        moves = self._watched.with_the_gone(moves, batch)
        self._watched.judge(
            verbs.check_apply(self._watched.book, self._watched, batch, answers, moves), moves
        )
        driver = "" if self._watched.excused else self._watched.caller
        self._watched.book.judge(
            plan_steps.let_go(self._watched.plans.book, batch, answers, driver=driver),
            self._watched.now,
        )
        return answers

    async def renew(
        self, beat: Beat, batch: Sequence[Renewal], *, lease_seconds: float
    ) -> Sequence[bool]:
        answers = await super().renew(beat, batch, lease_seconds=lease_seconds)
        moves = self._watched.step("renew", None)
        after = float("-inf") if self._watched.excused else self._watched.now - HANGS_SECONDS
        breaches = verbs.check_renew(self._watched.book, batch, answers, moves, started_after=after)
        self._watched.judge(breaches, moves)
        return answers

    async def leave(self, worker: str) -> None:
        await super().leave(worker)
        self._watched.book.claims.pop(
            worker, None
        )  # a claim that comes later than this is a new one

    async def expire(
        self, *, limit: int, count_crashes: bool, alone_from: int = SUSPECT_FROM
    ) -> int:
        count = await super().expire(
            limit=limit, count_crashes=count_crashes, alone_from=alone_from
        )
        moves = self._watched.step("expire", None)
        breaches = verbs.check_expire(
            self._watched.book,
            moves,
            self._watched.now,
            excused=self._watched.excused,
            overdue_seconds=STAGE_TIMEOUT_SECONDS,
        )
        self._watched.judge(breaches, moves)
        for move in moves.values():
            if move.before is not None:
                self._watched.book.judge(
                    self._watched.wrongly_lost(move.before), self._watched.now, move.before.id
                )
        return count

    async def promote(self, *, limit: int) -> Due:
        due = await super().promote(limit=limit)
        moves = self._watched.step("promote", None)
        self._watched.judge(verbs.check_promote(moves, self._watched.now), moves)
        return due
