"""The servers that one event loop talks to: which of them has a key, and connections to each.

Redirections and Sentinel's answer are followed here, as the driver's clients send again by
themselves what may have been done already, and keep their connections to a demoted primary.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Any

import redis
from redis.crc import key_slot

from holdfast.domain.errors import StoreError
from holdfast.stores.redis.client import faults
from holdfast.stores.redis.client.address import Address, AddressKind, Host
from holdfast.stores.redis.client.connect import (
    DriverConnection,
    ask_once,
    make_driver_connection,
    open_connection,
    tls_of,
)
from holdfast.stores.redis.client.connection import Command, PipelinedConnection

REDIRECTS = 3
EARS_MAX = 1024  # connections that only listen: one for each partition
# A primary that was replaced takes writes, which are lost, until Sentinel has told it: ten seconds.
TRUST_SECONDS = 2.0


class ServerFault(Exception):
    """An error on the way to a server."""

    def __init__(self, error: redis.RedisError, where: str) -> None:
        super().__init__(error, where)
        self.error, self.where = error, where


class Node:
    """One server."""

    def __init__(self, address: Address, host: Host) -> None:
        self.host = host
        self.where = f"{host[0]}:{host[1]}"

        tls = tls_of(address)  # read once: to load what is trusted takes a while

        def make() -> DriverConnection:
            return make_driver_connection(address, host, tls)

        self._make = make
        self._timeout_seconds = address.timeout_seconds
        self._connection: PipelinedConnection | None = None
        self._connecting: asyncio.Task[PipelinedConnection] | None = None
        self._closed = False
        self._ears: list[PipelinedConnection] = []  # idle ones
        self._hearing = 0

    async def ask(self, commands: Sequence[Command]) -> list[Any]:
        """The reply of each, or its error in its place."""
        connection = self._connection
        if connection is None or not connection.usable:
            connection = await self._connect()
        return await connection.ask(commands)

    async def _connect(self) -> PipelinedConnection:
        """All who need one wait for the same, also if there is none to be had."""
        if self._connecting is None or self._connecting.done():
            self._connecting = asyncio.create_task(self._open())
            self._connecting.add_done_callback(lambda done: done.cancelled() or done.exception())
        try:
            return await asyncio.shield(self._connecting)
        except asyncio.CancelledError:
            if self._connecting.cancelled():  # by `close`: who waits was not cancelled himself
                raise redis.ConnectionError("the connection was closed early") from None
            raise

    async def _open(self) -> PipelinedConnection:
        """Open the connection, and keep it even if all who waited have given up."""
        self._connection = connection = await open_connection(self._make(), self._timeout_seconds)
        if self._closed:
            connection.close()
        return connection

    async def hear(self, command: Command, block_seconds: float) -> Any:
        """Ask on a connection of its own: other calls on it would have to wait."""
        if self._hearing >= EARS_MAX:
            raise redis.TimeoutError(f"{EARS_MAX} connections listen already")
        self._hearing += 1
        try:
            ear = self._ears.pop() if self._ears else None
            if ear is None or not ear.usable:
                ear = await open_connection(self._make(), self._timeout_seconds)
            [reply] = await ear.ask([command], block_seconds=block_seconds)
        finally:
            self._hearing -= 1
        if self._closed:
            ear.close()
        else:
            self._ears.append(ear)
        if isinstance(reply, redis.ResponseError):
            raise reply
        return reply

    async def close(self, *, wait: bool) -> None:
        self._closed = True
        if self._connecting is not None:
            self._connecting.cancel()
        if self._connection is not None:
            self._connection.close() if wait else self._connection.retire()
        for ear in self._ears:
            ear.close()
        await asyncio.sleep(0)  # the loop closes them in its next turn


class Topology:
    """All servers, as one loop knows them."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._is_clustered = address.clustered
        self._is_sentinel = address.kind is AddressKind.SENTINEL
        self._nodes: dict[Host, Node] = {}
        self._closed = False
        self._doubted: set[Host] = set()
        self._looking: asyncio.Task[tuple[list[int], list[Host]]] | None = None
        self._looked_at = 0.0
        self._looking_over: asyncio.Task[None] | None = None
        self._starts: list[int] = []  # the first slot of each range
        self._owners: list[Host] = []  # who has it

    def at(self, host: Host) -> Node:
        if self._closed:
            raise faults.not_open(self._address)
        if host not in self._nodes:
            self._nodes[host] = Node(self._address, host)
        return self._nodes[host]

    async def owner_of(self, key: str) -> Node:
        if not self._owners:
            await self._look()
        elif self._is_sentinel:
            self._look_over_at_times()
        slot = key_slot(key.encode()) if self._is_clustered else 0
        return self.at(self._owners[bisect_right(self._starts, slot) - 1])

    async def primaries(self) -> list[Node]:
        if not self._owners:
            await self._look()
        return [self.at(host) for host in sorted(set(self._owners))]

    async def ask_owner(self, key: str, commands: Sequence[Command]) -> tuple[str, list[Any]]:
        """Ask the server that has a key: its name, and the replies with errors in their places."""
        node = await self.owner_of(key)
        replies = await self.ask(node, commands)
        if self._is_clustered:
            await self._follow(node, commands, replies)
        for reply in replies:
            if isinstance(reply, redis.RedisError) and faults.is_stale(reply):
                await self.drop(node)
                break
        return node.where, replies

    async def ask(self, node: Node, commands: Sequence[Command]) -> list[Any]:
        try:
            return await node.ask(commands)
        except redis.DataError:
            raise  # the caller's own fault
        except redis.RedisError as error:
            raise await self._fault(node, error) from error

    async def hear(self, node: Node, command: Command, block_seconds: float) -> Any:
        try:
            return await node.hear(command, block_seconds)
        except redis.DataError:
            raise
        except redis.RedisError as error:
            raise await self._fault(node, error) from error

    async def _fault(self, node: Node, error: redis.RedisError) -> ServerFault:
        if isinstance(error, redis.TimeoutError):
            self._doubted.add(node.host)
            self.forget()
        else:
            await self.drop(node)
        return ServerFault(error, node.where)

    async def _follow(self, node: Node, commands: Sequence[Command], replies: list[Any]) -> None:
        """Ask again where the node says that the slot is, or is going to."""
        for _ in range(REDIRECTS):
            places = [at for at, reply in enumerate(replies) if _is_redirection(reply)]
            if not places:
                return
            first = replies[places[0]]
            target = self.at((first.host or node.host[0], first.port))
            moved = isinstance(first, redis.exceptions.MovedError)
            if moved:
                self.forget()
            again = [commands[at] for at in places]
            if not moved:
                again = [part for command in again for part in (("ASKING",), command)]
            found = await self.ask(target, again)
            for at, reply in zip(places, found if moved else found[1::2], strict=True):
                replies[at] = reply

    def forget(self) -> None:
        """Forget which server has which slot: the next call asks anew."""
        self._owners = []

    async def drop(self, node: Node) -> None:
        self.forget()
        if self._nodes.get(node.host) is node:
            del self._nodes[node.host]
        await node.close(wait=False)

    async def close(self) -> None:
        self._closed = True
        self.forget()
        looking = [task for task in (self._looking, self._looking_over) if task is not None]
        for task in looking:
            task.cancel()
        await asyncio.gather(*looking, return_exceptions=True)
        nodes, self._nodes = self._nodes, {}
        await asyncio.gather(*(node.close(wait=True) for node in nodes.values()))

    async def _look(self) -> None:
        """All who need to know wait for the same answer, also if it is that there is none."""
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._locate_in_time())
            self._looking.add_done_callback(lambda done: done.cancelled() or done.exception())
        try:
            self._starts, self._owners = await asyncio.shield(self._looking)
        except redis.RedisError as error:
            raise ServerFault(error, self._address.shown) from error
        self._looked_at = asyncio.get_running_loop().time()

    def _look_over_at_times(self) -> None:
        """Has Sentinel another primary by now? Nobody waits for the answer."""
        now = asyncio.get_running_loop().time()
        if now - self._looked_at > TRUST_SECONDS:
            self._looked_at = now
            self._looking_over = asyncio.create_task(self._look_over())

    async def _look_over(self) -> None:
        try:
            host = await self._primary()
        except (ServerFault, redis.RedisError, StoreError):
            return  # the old one is asked until it fails
        for node in [node for node in self._nodes.values() if node.host != host]:
            await self.drop(node)

    async def _locate_in_time(self) -> tuple[list[int], list[Host]]:
        try:
            return await self._locate()
        except asyncio.CancelledError:  # by `close`: those who wait were not cancelled themselves
            raise faults.not_open(self._address) from None

    async def _locate(self) -> tuple[list[int], list[Host]]:
        match self._address.kind:
            case AddressKind.SINGLE:
                return [0], [self._address.hosts[0]]
            case AddressKind.SENTINEL:
                return [0], [await self._primary()]
            case AddressKind.CLUSTER:
                return await self._slots()

    async def _primary(self) -> Host:
        """Ask one Sentinel after the other, then the primary itself, as Sentinel's guide says."""
        command = ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._address.name)
        _, found = await self._ask_any(self._address.hosts, command, sentinel=True)
        if found is None:
            raise faults.unknown_primary(self._address)
        host = (found[0].decode(), int(found[1]))
        await self._check_role(host)
        return host

    async def _check_role(self, host: Host) -> None:
        try:
            role = await self._ask_once(host, ("ROLE",))
        except redis.ResponseError:
            return  # may be forbidden; then READONLY tells us
        except redis.RedisError as error:
            raise ServerFault(error, f"the primary {host[0]}:{host[1]}") from error
        if role[0] != b"master":
            raise redis.ConnectionError(f"Sentinel names {host[0]}:{host[1]}, still a replica")

    async def _slots(self) -> tuple[list[int], list[Host]]:
        hosts = dict.fromkeys((*self._nodes, *self._address.hosts))
        asked, ranges = await self._ask_any(hosts, ("CLUSTER", "SLOTS"))
        if not ranges:
            raise redis.ConnectionError("no node of the Cluster knows which node has which slot")
        ranges.sort()
        starts = [first for first, *_ in ranges]
        return starts, [_host_of(owner, asked) for _, _, owner, *_ in ranges]

    async def _ask_any(
        self, hosts: Iterable[Host], command: Command, *, sentinel: bool = False
    ) -> tuple[Host, Any]:
        """The first answer that says something; who failed to answer is asked last."""
        missed: redis.RedisError | None = None
        asked, reply = self._address.hosts[0], None
        for host in sorted(hosts, key=self._doubted.__contains__):
            try:
                reply = await self._ask_once(host, command, sentinel=sentinel)
            except redis.AuthenticationError:
                raise
            except (redis.ConnectionError, redis.TimeoutError) as error:
                self._doubted.add(host)
                missed = error
                continue
            self._doubted.discard(host)
            if reply:
                return host, reply
        if missed is not None:
            raise redis.ConnectionError("none of them answers") from missed
        return asked, reply

    async def _ask_once(self, host: Host, command: Command, *, sentinel: bool = False) -> Any:
        tls = tls_of(self._address)
        made = make_driver_connection(self._address, host, tls, sentinel=sentinel, once=True)
        try:
            return await ask_once(made, command)
        except redis.TimeoutError as error:
            if str(error).startswith(faults.CONNECTING):
                raise
            raise redis.TimeoutError(faults.ASKING) from None


def _host_of(owner: list[Any], asked: Host) -> Host:
    """A node that does not know its own name leaves it out."""
    name = (owner[0] or b"").decode()
    return (asked[0] if name in ("", "?") else name, int(owner[1]))


def _is_redirection(reply: object) -> bool:
    return isinstance(reply, redis.exceptions.AskError)  # of which MovedError is one
