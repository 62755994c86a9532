"""Switches that apply to all machines.

The switches of a queue or a tenant are kept in every partition, so that a claim or a submit reads
them in its own step. Those of a worker are kept only in the first, which also has the audit entry.
A call that fails half-way can be repeated: a partition that has the setting already is unchanged.
"""

from __future__ import annotations

from operator import itemgetter

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
    only = b"" if until is None or not on else repr(until)  # the end of the setting that is removed
    entry = codec.encode(audit)
    # The client must not repeat it: the audit entry would be written twice.
    first = await parts.first.call(scripts.SET_SWITCH, field, body, entry, only, again=False)
    other_parts = [part for part in parts if part is not parts.first and switch is not Switch.DRAIN]
    changed = await gather_all(
        part.call(scripts.SET_SWITCH, field, body, b"", only) for part in other_parts
    )
    return bool(first or any(changed))


async def switches(parts: Partitions) -> list[SwitchSetting]:
    """Return the switches that are set in any partition that answers."""
    lists, _ = await try_all(_read_switches(part) for part in parts)
    first: dict[tuple[Switch, str], SwitchSetting] = {}
    for settings in lists:
        for setting in () if isinstance(settings, StoreError) else settings:
            first.setdefault((setting.switch, setting.name), setting)
    return [setting for _, setting in sorted(first.items(), key=itemgetter(0))]


async def _read_switches(part: Partition) -> list[SwitchSetting]:
    (reply,) = await part.client.many(part.keys, [("HGETALL", part.keys("switches"))])
    read = (codec.or_none(codec.decode_thrown, body) for _, body in pairs_of(unless_foreign(reply)))
    return [setting for setting in read if setting is not None]
