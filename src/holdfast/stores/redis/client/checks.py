"""Checks of the server settings that decide which data is kept, run when the store opens.

A setting that would lose tasks in silence is refused. A setting that is a matter of choice is
reported, and so is one that the ACL does not let us read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import redis

from holdfast.domain.errors import StoreUnusable
from holdfast.ports import Check, Clock
from holdfast.stores.redis.client import faults
from holdfast.stores.redis.client.address import Address, AddressKind
from holdfast.stores.redis.client.client import RedisClient, unless_foreign
from holdfast.stores.redis.keys import KeyNames

REDIS_LEAST = (6, 2)
VALKEY_LEAST = (7, 2)
SKEW_SECONDS_MAX = 5.0
NEEDED = "evalsha eval xadd xread xreadgroup xack xdel xgroup xpending xclaim".split()
SETTINGS = "maxmemory maxmemory-policy appendonly appendfsync save min-replicas-to-write".split()


class ServerFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The facts that a server reports about itself; a string is the reason why one is missing."""

    where: str
    info: Mapping[str, str] | str
    config: Mapping[str, str] | str
    commands: Sequence[object] | str
    time: float | str


class Lost(msgspec.Struct, frozen=True, kw_only=True):
    """The writes that a partition found to be lost."""

    key: str
    writes: int
    at: str
    emptied: str = ""  # the time at which the store was emptied


async def run_checks(
    client: RedisClient, keys_list: Sequence[KeyNames], clock: Clock
) -> list[Check]:
    """Run all checks; raise `StoreUnusable` if a server must not be used as it is."""
    asked_at = clock.now()
    servers = [
        _ask_facts(where, replies)
        for where, replies in await client.ask_each_primary(list(_questions()))
    ]
    between = asked_at, clock.now()
    for facts in servers:
        refuse_mode(facts, client.address)
    checks = [
        _join_checks(servers, [judge(facts, client.address) for facts in servers])
        for judge in JUDGES
    ]
    checks.append(_join_checks(servers, [clock_check(facts, between) for facts in servers]))
    for keys in keys_list:
        if wrong := await client.wrong_types(keys):
            raise faults.foreign(wrong, client.address.shown)
    checks.append(lost_check([await _read_lost(client, keys) for keys in keys_list]))
    return [check for check in checks if check.message]


def is_durable(checks: Sequence[Check]) -> bool:
    return all(check.good for check in checks if check.name == "persistence")


def refuse_mode(facts: ServerFacts, address: Address) -> None:
    """Raise an error if the server is of another kind than the URL says."""
    mode = _get(facts.info, "redis_mode")
    if mode == "sentinel":
        raise StoreUnusable(
            f"{facts.where} is a Sentinel: write redis+sentinel://…/NAME in HOLDFAST_STORE"
        )
    if mode == "cluster" and not address.clustered:
        raise StoreUnusable(
            f"{facts.where} is a node of a Cluster: write redis+cluster://… in HOLDFAST_STORE"
        )


def version_check(facts: ServerFacts, _: Address) -> Check:
    if isinstance(facts.info, str):
        return _unseen("version", facts.info)
    valkey = facts.info.get("valkey_version")
    name, text, least = (
        ("Valkey", valkey, VALKEY_LEAST)
        if valkey
        else ("Redis", facts.info.get("redis_version", "0"), REDIS_LEAST)
    )
    if tuple(int(part) for part in text.split(".")[:2] if part.isdigit()) < least:
        raise StoreUnusable(
            f"{facts.where} runs {name} {text}: Holdfast needs {'.'.join(map(str, least))} or newer"
        )
    return _good("version", f"{name} {text}")


def commands_check(facts: ServerFacts, _: Address) -> Check:
    if isinstance(facts.commands, str):
        return _unseen("commands", facts.commands)
    missing = [
        name.upper() for name, known in zip(NEEDED, facts.commands, strict=True) if not known
    ]
    if missing:
        raise StoreUnusable(
            f"{facts.where} lacks {', '.join(missing)}: Holdfast needs streams and scripts; "
            "look for rename-command in its configuration"
        )
    return _good("commands", "streams and scripts are there")


def role_check(facts: ServerFacts, address: Address) -> Check:
    role = _get(facts.info, "role")
    if role is None:
        return _unseen("role", _why(facts.info))
    if role != "master":
        raise StoreUnusable(
            f"{facts.where} is a replica of {_get(facts.info, 'master_host')}:"
            f"{_get(facts.info, 'master_port')}, which takes no writes: name the primary"
            + (" or write redis+sentinel://…" if address.kind is AddressKind.SINGLE else "")
        )
    return _good("role", "primary")


def eviction_check(facts: ServerFacts, _: Address) -> Check:
    policy = _get(facts.config, "maxmemory-policy") or _get(facts.info, "maxmemory_policy")
    limit = _get(facts.config, "maxmemory") or _get(facts.info, "maxmemory")
    if policy is None or limit is None:
        return _unseen("eviction", _why(facts.config))
    if policy == "noeviction":
        return _good("eviction", "noeviction")
    cure = "CONFIG SET maxmemory-policy noeviction, and the same in its configuration file"
    if int(limit) > 0:
        raise StoreUnusable(
            f"{facts.where} has maxmemory-policy {policy}: when its memory is full it deletes "
            f"tasks without a word; {cure}"
        )
    return _bad(
        "eviction",
        f"maxmemory-policy {policy} would delete tasks as soon as maxmemory is set: {cure}",
    )


def persistence_check(facts: ServerFacts, _: Address) -> Check:
    name = "persistence"
    appends = {"yes": "1", "no": "0", None: _get(facts.info, "aof_enabled")}[
        _get(facts.config, "appendonly")
    ]
    if appends is None:
        return _unseen(name, _why(facts.config))
    if appends == "1":
        return _appending(_get(facts.config, "appendfsync"))
    if isinstance(facts.config, str):
        return _bad(
            name,
            "appendonly is off: a crash loses all since the last snapshot, if there is any "
            f"(save {_unseen(name, facts.config).message})",
        )
    if facts.config.get("save"):
        return _bad(
            name,
            f"only snapshots (save {facts.config['save']}): a crash loses all that came "
            "after the last one; CONFIG SET appendonly yes",
        )
    return _bad(
        name, "nothing is written to disk: a restart loses every task; CONFIG SET appendonly yes"
    )


def failover_check(facts: ServerFacts, address: Address) -> Check:
    if address.kind is AddressKind.SINGLE:
        return _good("failover")
    least = _get(facts.config, "min-replicas-to-write")
    if least is None:
        return _unseen("failover", _why(facts.config))
    if least == "0":
        return _bad(
            "failover",
            "min-replicas-to-write 0: a primary that is cut off goes on taking what the "
            "failover then loses; CONFIG SET min-replicas-to-write 1",
        )
    return _good("failover", f"min-replicas-to-write {least}")


def clock_check(facts: ServerFacts, between: tuple[float, float]) -> Check:
    """Compare the server's clock with ours, which was read before and after the question."""
    if isinstance(facts.time, str):
        return _unseen("clock", facts.time)
    asked_at, answered_at = between
    skew = facts.time - min(max(facts.time, asked_at), answered_at)
    if abs(skew) <= SKEW_SECONDS_MAX:
        return _good("clock", "agrees with ours")
    side = "ahead of" if skew > 0 else "behind"
    return _bad(
        "clock", f"{abs(skew):.0f} s {side} ours: times that are shown do not fit; set both by NTP"
    )


def lost_check(lost: Sequence[Lost]) -> Check:
    """Report writes that had been answered and are lost."""
    emptied = [loss for loss in lost if loss.emptied]
    if emptied:
        forget = "; ".join(f"HDEL {loss.key} emptiedAt lostWrites lostAt" for loss in emptied)
        return _bad(
            "lost writes",
            "the store was emptied, or its key meta was removed, under running processes, the "
            f"last time at {max(loss.emptied for loss in emptied)}; to forget it: {forget}",
        )
    losses = [loss for loss in lost if loss.writes]
    if not losses:
        return _good("lost writes")
    forget = "; ".join(f"HDEL {loss.key} lostWrites lostAt" for loss in losses)
    return _bad(
        "lost writes",
        f"{sum(loss.writes for loss in losses)} writes that had been answered were lost by a "
        f"failover or a restart, the last time at {max(loss.at for loss in losses)}; to forget it: "
        f"{forget}",
    )


async def _read_lost(client: RedisClient, keys: KeyNames) -> Lost:
    key = keys("meta")
    [reply] = await client.many(keys, [("HMGET", key, "lostWrites", "lostAt", "emptiedAt")])
    writes, at, emptied = unless_foreign(reply)
    return Lost(
        key=key, writes=int(writes or 0), at=(at or b"").decode(), emptied=(emptied or b"").decode()
    )


def _appending(fsync: str | None) -> Check:
    loses = {
        "always": "a crash loses nothing",
        "everysec": "a crash may lose about the last two seconds",
        "no": "a crash of its machine loses what the system had not written, about 30 seconds",
        None: "appendfsync is unknown, as CONFIG may not be asked",
    }
    message = f"appendonly yes, appendfsync {fsync or 'unknown'}: {loses[fsync]}"
    return Check(name="persistence", good=fsync != "no", message=message)


JUDGES: tuple[Callable[[ServerFacts, Address], Check], ...] = (
    version_check,
    commands_check,
    role_check,
    eviction_check,
    persistence_check,
    failover_check,
)


def _questions() -> Sequence[tuple[str, ...]]:
    return [
        ("INFO",),
        ("COMMAND", "INFO", *NEEDED),
        ("TIME",),
        *(
            ("CONFIG", "GET", name) for name in SETTINGS
        ),  # one command can read several only from Redis 7.0 on
    ]


def _ask_facts(where: str, replies: Sequence[Any]) -> ServerFacts:
    info, commands, time, *settings = replies
    denied = [reply for reply in settings if isinstance(reply, redis.RedisError)]
    pairs = (pair for pair in settings if pair and not denied)
    return ServerFacts(
        where=where,
        info=_reason(info) or _parse_info(info),
        commands=_reason(commands) or commands,
        time=_reason(time) or int(time[0]) + int(time[1]) / 1e6,
        config=_reason(denied[0]) if denied else {n.decode(): v.decode() for n, v in pairs},
    )


def _reason(reply: Any) -> str:
    return faults.server_text(reply) if isinstance(reply, redis.RedisError) else ""


def _parse_info(info: bytes) -> dict[str, str]:
    pairs = (line.partition(":") for line in info.decode().splitlines() if ":" in line)
    return {name: value for name, _, value in pairs}


def _get(facts: Mapping[str, str] | str, name: str) -> str | None:
    return None if isinstance(facts, str) else facts.get(name)


def _why(facts: Mapping[str, str] | str) -> str:
    return facts if isinstance(facts, str) else "the server does not say"


def _good(name: str, message: str = "") -> Check:
    return Check(name=name, good=True, message=message)


def _bad(name: str, message: str) -> Check:
    return Check(name=name, good=False, message=message)


def _unseen(name: str, why: str) -> Check:
    return _bad(name, f"could not be looked at: {why}")


def _join_checks(servers: Sequence[ServerFacts], checks: Sequence[Check]) -> Check:
    """Return one check for all servers, with the messages of those that are not good, if any."""
    bad = [
        (facts.where, check) for facts, check in zip(servers, checks, strict=True) if not check.good
    ]
    if not bad:
        messages = dict.fromkeys(check.message for check in checks)
    elif len(bad) == len(checks):
        messages = dict.fromkeys(check.message for _, check in bad)
    else:
        messages = dict.fromkeys(f"{where}: {check.message}" for where, check in bad)
    return Check(name=checks[0].name, good=not bad, message="; ".join(messages))
