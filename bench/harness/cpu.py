"""The CPU that processes have used, and how busy other processes keep the machine.

A system without /proc has neither: all readings are 0 there, and no figure is made of them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

PROC = Path("/proc")
TICKS = os.sysconf("SC_CLK_TCK")
# In the first line of /proc/stat: user, nice, system, irq, softirq, steal. The rest is idle time,
# or counted in one of these already.
BUSY_WORDS = (1, 2, 3, 6, 7, 8)


class ProcessStat(NamedTuple):
    pid: int
    parent: int
    group: int
    reaped_seconds: float  # CPU of children that have ended and were waited for


def process_cpu_seconds(pid: int) -> float:
    """Return the CPU time of all threads of a process by its own clock; 0 if it has ended."""
    try:
        return time.clock_gettime((~pid << 3) | 2)  # the clock of a process, as Linux numbers it
    except (OSError, OverflowError):
        return 0.0


def group_cpu_seconds(groups: Iterable[int], *, proc: Path = PROC) -> float:
    """Return the CPU time of all processes of some groups, with their children that have ended."""
    wanted = frozenset(groups)
    return _cpu_of([one for one in list_processes(proc) if one.group in wanted])


def tree_cpu_seconds(roots: Iterable[int], *, proc: Path = PROC) -> float:
    """Return the CPU time of some processes and all their descendants."""
    return _cpu_of(descendants(list_processes(proc), roots))


def _cpu_of(processes: Sequence[ProcessStat]) -> float:
    return sum(process_cpu_seconds(one.pid) + one.reaped_seconds for one in processes)


def descendants(processes: Sequence[ProcessStat], roots: Iterable[int]) -> list[ProcessStat]:
    """Return the processes with these ids, and whatever they started in turn."""
    children: dict[int, list[ProcessStat]] = {}
    for one in processes:
        children.setdefault(one.parent, []).append(one)
    wanted = frozenset(roots)
    found = [one for one in processes if one.pid in wanted]
    for one in found:  # the list grows while its end is not reached
        found += [child for child in children.get(one.pid, ()) if child.pid not in wanted]
    return found


def list_processes(proc: Path = PROC) -> list[ProcessStat]:
    found = []
    for stat in proc.glob("[0-9]*/stat"):
        try:
            words = stat.read_text().rpartition(")")[2].split()
            reaped = (int(words[13]) + int(words[14])) / TICKS
            one = ProcessStat(int(stat.parent.name), int(words[1]), int(words[2]), reaped)
        except (OSError, IndexError, ValueError):
            continue  # it has just ended
        found.append(one)
    return found


def busy_cpu_seconds(proc: Path = PROC) -> float:
    """Return the CPU time that the machine has spent on any process."""
    try:
        words = (proc / "stat").read_text().split("\n", 1)[0].split()
    except OSError:
        return 0.0
    return sum(int(words[at]) for at in BUSY_WORDS if at < len(words)) / TICKS


class LoadMeter:
    """A meter of the cores that processes other than ours keep busy, from its making on."""

    def __init__(self) -> None:
        self._begun, self._others = time.monotonic(), _others_seconds()

    def busy_cores(self) -> float:
        seconds = time.monotonic() - self._begun
        return max(0.0, _others_seconds() - self._others) / seconds if seconds else 0.0


def _others_seconds() -> float:
    return busy_cpu_seconds() - tree_cpu_seconds([os.getpid()])


class CpuReading(NamedTuple):
    """The CPU that clients and servers had used when so many tasks were done."""

    client: float
    server: float
    tasks: int


def per_task(
    first: CpuReading, last: CpuReading, *, unit: str = "µs/task", of: str = ""
) -> dict[str, tuple[float, str]]:
    """Return the microseconds for a task between two readings; a side without any is left out.

    ``of`` is the measure whose CPU it is, where a case has more than one.
    """
    tasks = last.tasks - first.tasks
    if tasks <= 0:
        return {}
    sides = {
        "client_cpu": last.client - first.client,
        "server_cpu": last.server - first.server,
    }
    prefix = f"{of}_" if of else ""
    return {f"{prefix}{name}": (1e6 * used / tasks, unit) for name, used in sides.items() if used}
