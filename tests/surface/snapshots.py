"""Snapshots of the surface: sorted text files, one fact in a line."""

from collections.abc import Sequence
from pathlib import Path

FOLDER = Path(__file__).parent / "snapshots"
SHOWN_LINES = 40
RENEW = "If users are meant to see this change, renew the snapshots: make snapshots"


def kept(name: str) -> list[str]:
    """Return the lines of a snapshot."""
    path = FOLDER / f"{name}.txt"
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def write(name: str, lines: Sequence[str]) -> None:
    text = "".join(f"{line}\n" for line in lines)
    (FOLDER / f"{name}.txt").write_text(text, encoding="utf-8")


def difference(name: str, now: Sequence[str]) -> str:
    """Say which lines went and which came, and what to do; empty if none did."""
    before = kept(name)
    gone = [f"- {line}" for line in before if line not in {*now}]
    come = [f"+ {line}" for line in now if line not in {*before}]
    changed = gone + come
    if not changed:
        return ""
    more = [f"… and {len(changed) - SHOWN_LINES} more"] if len(changed) > SHOWN_LINES else []
    counted = f"{name}: {len(gone)} facts of the surface are gone, {len(come)} are new"
    return "\n".join(["", counted, *changed[:SHOWN_LINES], *more, RENEW])
