"""The store's clock: a wall clock that nobody can set.

Leases and due times are counted on the machine's steady clock. It starts anew with the machine, so
what has to be added to make it a wall clock is written into the file once per start, by the first
process that opens it then; all processes read that number, and a jump of the wall clock moves
nothing. A lease carries the number of the start it was given in: no worker outlives its machine,
so the lease of an earlier start has lapsed.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import apsw

from holdfast.ports import Clock
from holdfast.stores.sqlite.statements import SQL
from holdfast.stores.sqlite.transaction import StoreClock

LINUX_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
MACOS_BOOT_ID = ("/usr/sbin/sysctl", "-n", "kern.bootsessionuuid")
NO_BOOT_ID = "unknown"


def read_boot_id() -> str:
    try:
        return LINUX_BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        pass
    try:
        asked = subprocess.run(MACOS_BOOT_ID, capture_output=True, text=True, timeout=5, check=True)
    except (OSError, subprocess.SubprocessError):
        return NO_BOOT_ID
    return asked.stdout.strip() or NO_BOOT_ID


def set_clock(db: apsw.Connection, clock: Clock, boot_id: str) -> StoreClock:
    """Read the present start's offset, or write it. Inside a write transaction."""
    steady = clock.steady()
    last = db.execute(SQL["boot_last"]).fetchone()
    if last is not None and _is_same_start(last, boot_id, steady):
        number, _, offset, _ = last
        db.execute(SQL["boot_seen"], (steady, number))
        return StoreClock(clock, number, offset)
    number, offset = (last[0] + 1 if last else 1), clock.now() - steady
    db.execute(SQL["boot_add"], (number, boot_id, offset, steady))
    db.execute(SQL["boot_forget"], (number,))
    return StoreClock(clock, number, offset)


def _is_same_start(last: tuple[int, str, float, float], boot_id: str, steady: float) -> bool:
    _, last_id, _, last_steady = last
    # Where a start has no name, a steady clock that went back still tells of a new one.
    return last_id == boot_id and (boot_id != NO_BOOT_ID or steady >= last_steady)
