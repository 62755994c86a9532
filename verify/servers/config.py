"""The configuration file of a server, in words that Redis 6.2, 7 and Valkey know alike."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, TypedDict

EMPTY = '""'


class Config(TypedDict, total=False):
    """The settings of a server; by default it keeps nothing and lets everybody in."""

    appendonly: bool
    appendfsync: Literal["always", "everysec", "no"]
    save: str  # "1 1": a snapshot after a second in which a key was written
    password: str
    acl: Sequence[str]  # "alice on >secret ~app:* +@all"
    maxmemory: str  # "64mb"
    rename_command: Mapping[str, str]  # {"FLUSHALL": ""} takes it away
    replicaof: int  # a port on loopback
    lines: Sequence[str]  # anything else, as it stands in the file


def config_text(config: Config, *, port: int, folder: Path) -> str:
    """Return the whole file; ``lines`` come last, because the last setting of a name counts."""
    place = [f'dir "{folder}"', "bind 127.0.0.1", f"port {port}", "daemonize no"]
    return "\n".join(
        [*place, *_storage_lines(config), *_access_lines(config), *config.get("lines", ()), ""]
    )


def _storage_lines(config: Config) -> Iterator[str]:
    yield f"save {config.get('save') or EMPTY}"
    yield f"appendonly {'yes' if config.get('appendonly') else 'no'}"
    yield f"appendfsync {config.get('appendfsync', 'everysec')}"
    if "maxmemory" in config:
        yield f"maxmemory {config['maxmemory']}"
    if "replicaof" in config:
        yield f"replicaof 127.0.0.1 {config['replicaof']}"
    yield "repl-diskless-sync yes"
    yield "repl-diskless-sync-delay 0"  # a replica is in step at once


def _access_lines(config: Config) -> Iterator[str]:
    if "password" in config:
        yield f'requirepass "{config["password"]}"'
        yield f'masterauth "{config["password"]}"'
    yield from (f"user {line}" for line in config.get("acl", ()))
    for command, name in config.get("rename_command", {}).items():
        yield f"rename-command {command} {name or EMPTY}"
