"""Every key of a Redis server as text, and back by plain commands.

A DUMP of 6.2 and an RDB file bind a store to the server's version; commands do not. A stream is
written with its groups, consumers and pending entries, as a rewritten append-only file has them.
"""

from __future__ import annotations

from typing import Any

Client = Any  # of redis, answering in bytes; its types say "or a coroutine" everywhere
Text = dict[str, Any]


def dump(client: Client) -> list[Text]:
    """Return all keys in order, each with its type, its value and the rest of its life."""
    keys: list[bytes] = sorted(client.scan_iter(count=1000))
    return [_key(client, key) for key in keys]


def restore(client: Client, keys: list[Text]) -> None:
    """Write all keys into an empty server."""
    for key in keys:
        name, value = _bytes(key["key"]), key["value"]
        match key["type"]:
            case "string":
                client.set(name, _bytes(value))
            case "hash":
                client.hset(name, mapping={_bytes(f): _bytes(v) for f, v in value.items()})
            case "list":
                client.rpush(name, *map(_bytes, value))
            case "set":
                client.sadd(name, *map(_bytes, value))
            case "zset":
                client.execute_command(
                    "ZADD", name, *(part for m, s in value for part in (s, _bytes(m)))
                )
            case "stream":
                _restore_stream(client, name, value)
            case other:
                raise ValueError(f"no such type: {other}")
        if key["ttl_ms"] is not None:
            client.pexpire(name, key["ttl_ms"])


def _key(client: Client, key: bytes) -> Text:
    kind = _text(client.type(key))
    left = int(client.pttl(key))
    return {
        "key": _text(key),
        "type": kind,
        "ttl_ms": None if left < 0 else left,
        "value": _value(client, key, kind),
    }


def _value(client: Client, key: bytes, kind: str) -> Any:
    match kind:
        case "string":
            return _text(client.get(key))
        case "hash":
            return {_text(f): _text(v) for f, v in sorted(client.hgetall(key).items())}
        case "list":
            return [_text(one) for one in client.lrange(key, 0, -1)]
        case "set":
            return sorted(_text(one) for one in client.smembers(key))
        case "zset":
            # As the server writes them: a score that a client has read as a float may be rounded.
            flat = client.execute_command("ZRANGE", key, 0, -1)
            return [(_text(one), _score(client, key, one)) for one in flat]
        case "stream":
            return _stream(client, key)
    raise ValueError(f"{key!r} is a {kind}")


def _score(client: Client, key: bytes, member: bytes) -> str:
    return repr(float(client.zscore(key, member)))


def _stream(client: Client, key: bytes) -> Text:
    entries = client.xrange(key)
    there = {entry for entry, _ in entries}
    groups = []
    for group in client.xinfo_groups(key):
        name = group["name"]
        pending = client.xpending_range(key, name, "-", "+", max(1, group["pending"]))
        groups.append(
            {
                "name": _text(name),
                "last": _text(group["last-delivered-id"]),
                "consumers": sorted(_text(c["name"]) for c in client.xinfo_consumers(key, name)),
                "pending": [
                    {
                        "id": _text(one["message_id"]),
                        "consumer": _text(one["consumer"]),
                        "times": one["times_delivered"],
                    }
                    for one in pending
                    if one["message_id"] in there
                ],
            }
        )
    return {
        "last": _text(client.xinfo_stream(key)["last-generated-id"]),
        "entries": [
            (_text(entry), [_text(part) for pair in fields.items() for part in pair])
            for entry, fields in entries
        ],
        "groups": groups,
    }


def _restore_stream(client: Client, key: bytes, stream: Text) -> None:
    for entry, fields in stream["entries"]:
        client.execute_command("XADD", key, entry, *map(_bytes, fields))
    if not stream["entries"]:  # one that was emptied still knows its last id
        client.execute_command("XADD", key, stream["last"], "gone", "")
        client.xdel(key, stream["last"])
    client.execute_command("XSETID", key, stream["last"])
    for group in stream["groups"]:
        name = _bytes(group["name"])
        client.xgroup_create(key, name, group["last"])
        for consumer in group["consumers"]:
            client.xgroup_createconsumer(key, name, _bytes(consumer))
        for one in group["pending"]:
            client.xclaim(
                key,
                name,
                _bytes(one["consumer"]),
                min_idle_time=0,
                message_ids=[one["id"]],
                retrycount=one["times"],
                force=True,
                justid=True,
            )


def _text(raw: bytes | str) -> str:
    """Return each byte as the character of its number, so that bytes that are no UTF-8 survive."""
    return raw if isinstance(raw, str) else raw.decode("latin-1")


def _bytes(text: str) -> bytes:
    return text.encode("latin-1")
