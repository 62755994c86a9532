"""Cancelling tasks of the event loop, and waiting until they have ended."""

from __future__ import annotations

import asyncio
from typing import Any


async def cancel_and_wait(*futures: asyncio.Future[Any] | None) -> None:
    """Cancel what still runs, and wait for its end, whatever it raises; None is left out."""
    running = [future for future in futures if future is not None]
    for future in running:
        future.cancel()
    await asyncio.gather(*running, return_exceptions=True)
