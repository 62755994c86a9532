"""Roll the upgrade out over 200 tenants in waves; workers and the driver are killed on the way.

    HOLDFAST_STORE=sqlite:///rollout.db python rollout.py

It ends by itself: three tenants of the third wave fail, the plan halts and is rolled back, the
newest first. Then every tenant is at its old version again. With --stop-when-halted it ends at the
halt, and leaves the rest to you.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

os.environ.setdefault("HOLDFAST_LEASE", "3s")  # a killed worker's work goes on after this time

from app import DATA, PLAN, app, database, read, roll_out, write

from holdfast import PlanHandle, PlanInfo
from holdfast.errors import PlanNotFound

HERE = Path(__file__).parent
TENANTS = [f"t-{number:03}" for number in range(200)]
OLD_PLUGIN = {"t-020", "t-021", "t-022"}
DRIVEN_SECONDS = 60.0  # a worker starts, or takes a dead one's plan over, long before

BY_HAND = f"""
Now it is yours. Look at it, ask for the rollback, start a worker that does it, and in another
terminal watch it:
  holdfast --store {{store}} plans show {PLAN}
  holdfast --store {{store}} suspended list
  holdfast --store {{store}} plans rollback {PLAN} --reason "the old plug-in"
  holdfast --store {{store}} worker app:app
  holdfast --store {{store}} plans watch {PLAN}"""


class Crew:
    """Worker processes, as `holdfast worker app:app` starts them."""

    def __init__(self) -> None:
        self.workers: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        command = [sys.executable, "-m", "holdfast", "worker", "app:app"]
        quiet, here = subprocess.DEVNULL, {**os.environ, "PYTHONPATH": str(HERE)}
        self.workers.append(subprocess.Popen(command, env=here, stdout=quiet, stderr=quiet))

    def kill(self, pid: int) -> None:
        """kill -9, and another one in its place."""
        [worker] = [one for one in self.workers if one.pid == pid]
        os.kill(pid, signal.SIGKILL)
        worker.wait()
        self.workers.remove(worker)
        self.start()

    def stop(self) -> None:
        for worker in self.workers:
            worker.terminate()
        for worker in self.workers:
            worker.wait(timeout=60)


def prepare() -> None:
    shutil.rmtree(DATA, ignore_errors=True)
    DATA.mkdir(parents=True)
    for tenant in TENANTS:
        plugin = "old" if tenant in OLD_PLUGIN else "new"
        write(database(tenant), {"version": 6, "plugin": plugin})


def versions() -> str:
    found = Counter(str(read(database(tenant))["version"]) for tenant in TENANTS)
    return ", ".join(f"{count} tenants at version {version}" for version, count in found.items())


async def pid_of(worker: str | None) -> int | None:
    beats = [one.beat for one in await app.store.views.workers(live_within_seconds=60)]
    return next((beat.pid for beat in beats if beat.worker == worker), None)


async def kill_driver(plan: PlanHandle, crew: Crew, when: str) -> None:
    """As soon as one is there: the process that drives the plan, with the tasks it runs."""
    try:
        async with asyncio.timeout(DRIVEN_SECONDS):
            pid = await driver_of(plan)
    except TimeoutError:
        raise SystemExit(f"nobody drives the plan {when}: {(await plan.info()).status}") from None
    crew.kill(pid)
    print(f"killed the plan's driver {when} (process {pid})")


async def driver_of(plan: PlanHandle) -> int:
    while True:
        info = await plan.info()
        pid = await pid_of(info.driver)
        if pid is not None and info.progress > 0:
            return pid
        await asyncio.sleep(0.05)


async def kill_other(plan: PlanHandle, crew: Crew) -> None:
    driver = await pid_of((await plan.info()).driver)
    pid = next(worker.pid for worker in crew.workers if worker.pid != driver)
    crew.kill(pid)
    print(f"killed another worker (process {pid})")


def show(info: PlanInfo) -> None:
    print(f"{info.status}: {info.reason or ''}")
    for wave in info.waves:
        counts = ", ".join(f"{count} {state}" for state, count in wave.counts.items())
        print(f"  wave {wave.number} ({wave.size}): {counts}")


async def check_unused() -> None:
    """A plan is made once: called again, it would only answer with the one that is there."""
    async with app:
        try:
            there = await app.plan.get(PLAN).info()
        except PlanNotFound:
            return
    raise SystemExit(
        f"plan {PLAN} is in this store already, and {there.status}: "
        "remove rollout.db, or name another store"
    )


async def play(crew: Crew, *, stop_when_halted: bool) -> bool:
    async with app:
        plan = await roll_out(TENANTS)
        await kill_driver(plan, crew, "while it rolls out")
        await kill_other(plan, crew)
        halted = await plan.wait("10m")
        show(halted)
        print(versions())
        if stop_when_halted:
            return halted.status == "HALTED"
        await plan.rollback("the old plug-in does not start")
        await kill_driver(plan, crew, "while it rolls back")
        last = await plan.wait("10m")
        show(last)
        print(versions())
        return last.status == "ROLLED_BACK" and is_as_it_was()


def is_as_it_was() -> bool:
    old = all(read(database(tenant))["version"] == 6 for tenant in TENANTS)
    return old and not list(DATA.glob("*.backup"))


def main() -> int:
    words = argparse.ArgumentParser()
    words.add_argument("--stop-when-halted", action="store_true", help="leave the rest to you")
    stop_when_halted = words.parse_args().stop_when_halted
    asyncio.run(check_unused())
    prepare()
    crew = Crew()
    try:
        for _ in range(3):
            crew.start()
        good = asyncio.run(play(crew, stop_when_halted=stop_when_halted))
    finally:
        crew.stop()
    if good and stop_when_halted:
        print(BY_HAND.format(store=app.settings.store))
    else:
        print("every tenant is as it was" if good else "SOMETHING IS WRONG")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
