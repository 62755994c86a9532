"""The store's clock is a wall clock that nobody can set.

Leases and due times are counted on the machine's steady clock, which starts again with the machine.
The first process that opens the file after a start writes the offset that makes it a wall clock;
all processes read that number, so a jump of the wall clock changes nothing. A lease carries the
number of the start in which it was given: no worker survives a new start, so the lease of an
earlier one has lapsed.
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
        answer = subprocess.run(
            MACOS_BOOT_ID, capture_output=True, text=True, timeout=5, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return NO_BOOT_ID
    return answer.stdout.strip() or NO_BOOT_ID


def set_clock(db: apsw.Connection, clock: Clock, boot_id: str) -> StoreClock:
    """Read the offset of the machine's present start, or write it, in a write transaction."""
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
    # Where a start has no id, a steady clock that went back still shows a new one.
    return last_id == boot_id and (boot_id != NO_BOOT_ID or steady >= last_steady)
