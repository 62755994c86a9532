"""Forked children: how they start, and how they end."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import NoReturn

from verify.chaos.round_plan import RoundPlan

ORPHANED_EXIT = 4

Role = Callable[[RoundPlan, str], Awaitable[None]]


@dataclass(slots=True)
class Child:
    name: str
    pid: int
    frozen_until: float | None = None
    spared_until: float = 0.0

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)

    def exit_code(self) -> int | None:
        """Return the exit code, or None while the child lives."""
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        return os.waitstatus_to_exitcode(status) if pid else None


def fork(plan: RoundPlan, name: str, run: Role) -> Child:
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        _live(run, plan, name)
    return Child(name, pid)


def _live(run: Role, plan: RoundPlan, name: str) -> NoReturn:
    """Run the child; it never returns into the parent's stack."""
    code = 1
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent's business
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        logging.basicConfig(
            filename=plan.folder / "log", format=f"%(asctime)s {name} %(name)s %(message)s"
        )
        asyncio.run(_await_role(run(plan, name)))
        code = 0
    except BaseException:
        with (plan.folder / "log").open("a", encoding="utf-8") as log:
            traceback.print_exc(file=log)
    finally:
        os._exit(code)


async def _await_role(run: Awaitable[None]) -> None:
    await run


# -- in a child


def parent_now() -> int:
    return os.getppid()


def end_if_orphaned(parent: int) -> None:
    if os.getppid() != parent:
        os._exit(ORPHANED_EXIT)
