"""Ids that sort by time of birth (UUID version 7), from an injected clock and chance."""

from __future__ import annotations

import random

from holdfast.ports import Clock


def new_id(clock: Clock, chance: random.Random) -> str:
    milliseconds = int(clock.now() * 1000) & (1 << 48) - 1
    bits = milliseconds << 80 | chance.getrandbits(80)
    bits = bits & ~(0xF << 76) | 0x7 << 76
    bits = bits & ~(0x3 << 62) | 0x2 << 62
    text = f"{bits:032x}"
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
