"""The client sends scripts and commands to the server that has the keys.

Arguments of scripts are packed. A structure comes back as a flat list of names and values. What
insert, claim and apply answer for each single task is a list by position, which is shorter:
`insertion_of`, `claimed_of`, `first_claimed_of` and `outcome_of` in `encoding/` read it. A script
that writes puts its answer into an envelope, which `Partition.write` in `partition.py` opens.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

import msgspec
import redis

from holdfast.domain.errors import StoreUnavailable
from holdfast.domain.task.state import Status
from holdfast.stores.redis.client import faults
from holdfast.stores.redis.client.address import Address
from holdfast.stores.redis.client.connection import Command
from holdfast.stores.redis.client.topology import ServerFault, Topology
from holdfast.stores.redis.keys import TYPES, KeyNames

BELLS_MAX = 100  # entries of the bell that one read returns
CLOSE_SECONDS = 2.0
NAMES_PAGE = 5_000
NAMES_PAGES_MAX = 1_000  # pages of names read from one server

T = TypeVar("T")
Reply = dict[str, Any]

pack = msgspec.msgpack.Encoder().encode


class Script:
    """The text that the server runs for one verb, and the Lua files that it is made of."""

    def __init__(self, name: str, source: str, files: Sequence[str] = ()) -> None:
        self.name, self.source, self.files = name, source, files
        self.sha = hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()


class ServerTime(NamedTuple):
    """The two times of a server, which differ only in tests."""

    now: float  # for leases and due times
    wall: float


class RedisClient:
    """A client that several event loops can use, each with connections of its own.

    Replies are bytes (RESP2).
    """

    def __init__(self, address: Address) -> None:
        self.address = address
        self._loops: dict[asyncio.AbstractEventLoop, Topology] = {}
        self._pid: int | None = None

    async def open(self) -> None:
        """Open the client; raise an error if a server cannot be reached or refuses the login."""
        if self._pid is not None:
            self._topology()
            return
        self._pid = os.getpid()
        try:
            for where, [reply] in await self.ask_each_primary([("PING",)]):
                if _is_error(reply) and not faults.is_denied(reply):  # an ACL may forbid a PING
                    raise self._translate(reply, where)
        except StoreUnavailable as error:
            await self.close()
            raise faults.at_first(self.address, error) from error.__cause__
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        if self._pid != os.getpid():
            return  # the sockets belong to another process
        loops, self._loops, self._pid = self._loops, {}, None
        for loop, topology in loops.items():
            await _close(loop, topology)

    async def detach(self) -> None:
        """Close the connections of the calling event loop."""
        topology = self._loops.pop(asyncio.get_running_loop(), None)
        if topology is not None and self._pid == os.getpid():
            await topology.close()

    async def call(
        self,
        script: Script,
        keys: KeyNames,
        args: Sequence[str | bytes | int | float],
        *,
        repeatable: bool = True,
    ) -> Any:
        """Run a script on the partition of the keys; repeat it once if the connection was cut."""
        key = keys.meta
        short = [("EVALSHA", script.sha, 1, key, *args)]
        where, replies = await self._again(
            lambda topology: topology.ask_owner(key, short), repeatable=repeatable
        )
        if isinstance(replies[0], redis.exceptions.NoScriptError):
            whole = [("EVAL", script.source, 1, key, *args)]
            where, replies = await self._again(
                lambda topology: topology.ask_owner(key, whole), repeatable=repeatable
            )
        if isinstance(replies[0], redis.RedisError):
            error = faults.without_location(replies[0], script.name, script.source)
            raise await self._diagnose(error, where, keys)
        return replies[0]

    async def many(self, keys: KeyNames, commands: Sequence[Command]) -> list[Any]:
        """Run commands in one round trip, which is not one atomic step.

        The reply for a key of a wrong type is a `StoreForeign`.
        """
        if not commands:
            return []
        where, replies = await self._again(
            lambda topology: topology.ask_owner(keys.meta, commands), repeatable=True
        )
        for at, reply in enumerate(replies):
            if not isinstance(reply, redis.RedisError):
                continue
            if not faults.is_wrong_type(reply):
                raise self._translate(reply, where)
            replies[at] = faults.foreign([str(commands[at][1])], where, reply)
        return replies

    async def listen(
        self, keys: KeyNames, last_id: str, *, block_seconds: float
    ) -> list[tuple[str, dict[bytes, bytes]]]:
        """Return the entries that came on the bell after that id."""
        key = keys.bell
        block_ms = max(1, round(block_seconds * 1000))
        command = ("XREAD", "COUNT", BELLS_MAX, "BLOCK", block_ms, "STREAMS", key, last_id)

        async def read(topology: Topology) -> Any:
            node = await topology.owner_of(key)
            return await topology.listen(node, command, block_seconds)

        reply = await self._again(read, repeatable=True)
        return [
            (entry.decode(), dict(zip(fields[::2], fields[1::2], strict=True)))
            for _, entries in reply or ()
            for entry, fields in entries
        ]

    async def ask_each_primary(self, commands: Sequence[Command]) -> list[tuple[str, list[Any]]]:
        """Ask every primary; return its name and the replies, with errors in place."""

        async def ask(topology: Topology) -> list[tuple[str, list[Any]]]:
            answers = []
            for node in await topology.primaries():
                replies = await topology.ask(node, commands)
                answers.append((node.where, replies))
            return answers

        return await self._again(ask, repeatable=True)

    async def names(self, pattern: str) -> list[str]:
        """Return the matching keys of all primaries, up to `NAMES_PAGES_MAX` pages of each."""

        async def scan_all(topology: Topology) -> list[str]:
            names: list[str] = []
            for node in await topology.primaries():
                cursor = b"0"
                for _ in range(NAMES_PAGES_MAX):
                    scan = ("SCAN", cursor, "MATCH", pattern, "COUNT", NAMES_PAGE)
                    [reply] = await topology.ask(node, [scan])
                    if _is_error(reply):
                        raise ServerFault(reply, node.where)
                    cursor, page = reply
                    names += [name.decode(errors="replace") for name in page]
                    if cursor == b"0":
                        break
            return names

        return await self._again(scan_all, repeatable=True)

    async def wrong_types(self, keys: KeyNames) -> list[str]:
        """Return the keys with fixed names that are not of our types, and what they are."""
        names = [(keys(kind), wanted) for kind, wanted in TYPES.items()]
        names += [(keys("by_status", status), "zset") for status in Status]
        replies = await self.many(keys, [("TYPE", name) for name, _ in names])
        return [
            f"{name} is a {type_.decode()}, not a {wanted}"
            for (name, wanted), type_ in zip(names, replies, strict=True)
            if type_.decode() not in ("none", wanted)
        ]

    async def _diagnose(self, error: redis.RedisError, where: str, keys: KeyNames) -> Exception:
        if not faults.is_wrong_type(error):
            return self._translate(error, where)
        return faults.foreign(await self.wrong_types(keys), where, error)

    async def _again(self, ask: Callable[[Topology], Awaitable[T]], *, repeatable: bool) -> T:
        """Ask, and repeat it once if the connection was cut, but not after a time-out."""
        topology = self._topology()
        try:
            return await ask(topology)
        except ServerFault as fault:
            if not (repeatable and faults.is_cut(fault.error)):
                raise self._translate(fault.error, fault.where) from fault.error
        try:
            return await ask(topology)
        except ServerFault as fault:
            raise self._translate(fault.error, fault.where) from fault.error

    def _translate(self, error: redis.RedisError, where: str) -> Exception:
        return faults.translate(error, where, self.address)

    def _topology(self) -> Topology:
        if self._pid is None:
            raise faults.not_open(self.address)
        if self._pid != os.getpid():
            raise faults.after_fork(self.address)
        loop = asyncio.get_running_loop()
        if loop not in self._loops:
            for old in [old for old in list(self._loops) if old.is_closed()]:
                del self._loops[old]
            self._loops[loop] = Topology(self.address)
        return self._loops[loop]


async def _close(loop: asyncio.AbstractEventLoop, topology: Topology) -> None:
    if loop is asyncio.get_running_loop():
        await topology.close()
    elif loop.is_running():
        closing = asyncio.run_coroutine_threadsafe(topology.close(), loop)
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                await asyncio.wrap_future(closing)


def _is_error(reply: object) -> bool:
    return isinstance(reply, redis.RedisError)


def by_name(reply: Sequence[Any]) -> Reply:
    """Return the values of a reply by their names."""
    return {name.decode(): value for name, value in zip(reply[::2], reply[1::2], strict=True)}


def each_by_name(replies: Sequence[Sequence[Any]]) -> list[Reply]:
    return [by_name(reply) for reply in replies]


def pairs_of(reply: Sequence[bytes]) -> Iterator[tuple[bytes, bytes]]:
    return zip(reply[::2], reply[1::2], strict=True)


def unless_foreign(reply: Any) -> Any:
    if isinstance(reply, Exception):
        raise reply
    return reply
