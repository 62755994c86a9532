"""The real engine in a simulated world: virtual time, faulty connections and crashes, from a seed.

    python -m verify.simulation --seeds 200

runs 200 worlds and checks after each step of the store what must always hold. A failure prints
its seed and the command that replays it: the same seed gives the same run, step by step.

    python -m verify.simulation --seeds 200 --shadow redis

tells another store the same, which must answer the same at every step.
"""

from __future__ import annotations

from verify.simulation.world import Result, run

__all__ = ["Result", "run"]
