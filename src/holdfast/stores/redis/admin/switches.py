"""Switches that stand for all machines.

Those of a queue or a tenant are kept in every partition, so that a claim or a submit finds them in
its own step; those of a worker only in the first, where it is written down, too. What fails
half-way is safe to repeat: each partition is left as it stands, or follows.
"""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.domain.audit import Audit
from holdfast.domain.errors import StoreError
from holdfast.ports import Switch, SwitchSetting
from holdfast.stores import codec
from holdfast.stores.redis import scripts
from holdfast.stores.redis.client.client import pairs_of, unless_foreign
from holdfast.stores.redis.partition import Partition, Partitions, gather_all, try_all


async def set_switch(
    parts: Partitions, switch: Switch, name: str, *, on: bool, audit: Audit, until: float | None
) -> bool:
    field = f"{switch} {name}"
    setting = SwitchSetting(switch=switch, name=name, by=audit.by, at=audit.at, until=until)
    body = b"" if on else codec.encode(setting)
    only = b"" if until is None or not on else repr(until)  # the end of the one to be set back
    entry = codec.encode(audit)
    # Not sent again by itself: it would be written down twice.
    first = await parts.first.call(scripts.SET_SWITCH, field, body, entry, only, again=False)
    others = [part for part in parts if part is not parts.first and switch is not Switch.DRAIN]
    found = await gather_all(
        part.call(scripts.SET_SWITCH, field, body, b"", only) for part in others
    )
    return bool(first or any(found))


async def switches(parts: Partitions) -> list[SwitchSetting]:
    """Return the switches that are set in any partition that answers."""
    found, _ = await try_all(_in(part) for part in parts)
    lists = [some for some in found if not isinstance(some, StoreError)]
    return _merge_switches(setting for some in lists for setting in some)


async def _in(part: Partition) -> list[SwitchSetting]:
    (reply,) = await part.client.many(part.keys, [("HGETALL", part.keys("switches"))])
    read = (codec.or_none(codec.decode_thrown, body) for _, body in pairs_of(unless_foreign(reply)))
    return [setting for setting in read if setting is not None]


def _merge_switches(setting: Iterable[SwitchSetting]) -> list[SwitchSetting]:
    first: dict[tuple[Switch, str], SwitchSetting] = {}
    for one in setting:
        first.setdefault((one.switch, one.name), one)
    return sorted(first.values(), key=lambda one: (one.switch, one.name))
