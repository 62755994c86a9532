"""The garbage collection of a process that is Holdfast's own.

Records hold no cycles and are not tracked, so a busy worker leaves little to collect: what is
checked again and again are the modules and declarations, which stay for as long as the process.
A process that only embeds an app keeps its own settings.
"""

from __future__ import annotations

import gc

YOUNG_OBJECTS = 10_000  # that gather before they are checked; Python's own 700 cost a worker 5 %


def exempt_startup_objects() -> None:
    """Exempt all that exists by now from garbage collection, and check new objects less often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, *gc.get_threshold()[1:])
