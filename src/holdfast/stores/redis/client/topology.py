"""The servers that one event loop talks to: which of them has a key, and connections to each.

This module follows redirections and Sentinel's answers itself. The driver's clients would send
commands again that may have been run already, and keep connections to a demoted primary.
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
from holdfast.stores.redis.client.connection import Command, PipelinedConnection
from holdfast.stores.redis.client.driver_connection import (
    DriverConnection,
    ask_once,
    make_driver_connection,
    open_connection,
    tls_of,
)

REDIRECTS = 3
LISTENERS_MAX = 1024  # connections for blocking reads: one for each partition
# Until Sentinel demotes a primary that was replaced, it accepts writes, which are lost. That takes
# ten seconds, so we ask Sentinel more often.
TRUST_SECONDS = 2.0


class ServerFault(Exception):
    """An error of a connection to a server, or of the server's answer."""

    def __init__(self, error: redis.RedisError, where: str) -> None:
        super().__init__(error, where)
        self.error, self.where = error, where


class Node:
    """A server and our connections to it: one for calls, and others for blocking reads."""

    def __init__(self, address: Address, host: Host) -> None:
        self.host = host
        self.where = f"{host[0]}:{host[1]}"

        tls = tls_of(address)  # made once: loading the trusted certificates is slow

        def make() -> DriverConnection:
            return make_driver_connection(address, host, tls)

        self._make = make
        self._timeout_seconds = address.timeout_seconds
        self._connection: PipelinedConnection | None = None
        self._connecting: asyncio.Task[PipelinedConnection] | None = None
        self._closed = False
        self._listeners: list[PipelinedConnection] = []  # idle connections for blocking reads
        self._listening = 0

    async def ask(self, commands: Sequence[Command]) -> list[Any]:
        """Send commands, and return the reply of each, or its error in its place."""
        connection = self._connection
        if connection is None or not connection.usable:
            connection = await self._connect()
        return await connection.ask(commands)

    async def _connect(self) -> PipelinedConnection:
        """Connect; all callers wait for the same attempt, and get the same error if it fails."""
        if self._connecting is None or self._connecting.done():
            self._connecting = asyncio.create_task(self._open())
            self._connecting.add_done_callback(lambda done: done.cancelled() or done.exception())
        try:
            return await asyncio.shield(self._connecting)
        except asyncio.CancelledError:
            if self._connecting.cancelled():  # by `close`: the caller itself was not cancelled
                raise redis.ConnectionError("the connection was closed early") from None
            raise

    async def _open(self) -> PipelinedConnection:
        """Open the connection, and keep it even if all callers have given up."""
        self._connection = connection = await open_connection(self._make(), self._timeout_seconds)
        if self._closed:
            connection.close()
        return connection

    async def listen(self, command: Command, block_seconds: float) -> Any:
        """Send a blocking read on a connection of its own, so that no other call has to wait."""
        if self._listening >= LISTENERS_MAX:
            raise redis.TimeoutError(f"{LISTENERS_MAX} connections listen already")
        self._listening += 1
        try:
            listener = self._listeners.pop() if self._listeners else None
            if listener is None or not listener.usable:
                listener = await open_connection(self._make(), self._timeout_seconds)
            [reply] = await listener.ask([command], block_seconds=block_seconds)
        finally:
            self._listening -= 1
        if self._closed:
            listener.close()
        else:
            self._listeners.append(listener)
        if isinstance(reply, redis.ResponseError):
            raise reply
        return reply

    async def close(self, *, wait: bool) -> None:
        self._closed = True
        if self._connecting is not None:
            self._connecting.cancel()
        if self._connection is not None:
            self._connection.close() if wait else self._connection.retire()
        for listener in self._listeners:
            listener.close()
        await asyncio.sleep(0)  # the loop closes the sockets in its next turn


class Topology:
    """All servers, as one event loop knows them."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._is_clustered = address.clustered
        self._is_sentinel = address.kind is AddressKind.SENTINEL
        self._nodes: dict[Host, Node] = {}
        self._closed = False
        self._doubted: set[Host] = set()
        self._locating: asyncio.Task[tuple[list[int], list[Host]]] | None = None
        self._located_at = 0.0
        self._rechecking: asyncio.Task[None] | None = None
        self._starts: list[int] = []  # the first slot of each range
        self._owners: list[Host] = []  # the server that has each range

    def at(self, host: Host) -> Node:
        if self._closed:
            raise faults.not_open(self._address)
        if host not in self._nodes:
            self._nodes[host] = Node(self._address, host)
        return self._nodes[host]

    async def owner_of(self, key: str) -> Node:
        if not self._owners:
            await self._locate_owners()
        elif self._is_sentinel:
            self._recheck_primary_when_due()
        slot = key_slot(key.encode()) if self._is_clustered else 0
        return self.at(self._owners[bisect_right(self._starts, slot) - 1])

    async def primaries(self) -> list[Node]:
        if not self._owners:
            await self._locate_owners()
        return [self.at(host) for host in sorted(set(self._owners))]

    async def ask_owner(self, key: str, commands: Sequence[Command]) -> tuple[str, list[Any]]:
        """Ask the server that has a key; return its name and the replies, with errors in place."""
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

    async def listen(self, node: Node, command: Command, block_seconds: float) -> Any:
        try:
            return await node.listen(command, block_seconds)
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
        """Follow redirections: ask the node that has the slot, or to which it is being moved."""
        for _ in range(REDIRECTS):
            places = [at for at, reply in enumerate(replies) if _is_redirection(reply)]
            if not places:
                return
            first = replies[places[0]]
            target = self.at((first.host or node.host[0], first.port))
            moved = isinstance(first, redis.exceptions.MovedError)
            if moved:
                self.forget()
            commands_again = [commands[at] for at in places]
            if not moved:
                commands_again = [
                    part for command in commands_again for part in (("ASKING",), command)
                ]
            answers = await self.ask(target, commands_again)
            for at, reply in zip(places, answers if moved else answers[1::2], strict=True):
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
        tasks = [task for task in (self._locating, self._rechecking) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        nodes, self._nodes = self._nodes, {}
        await asyncio.gather(*(node.close(wait=True) for node in nodes.values()))

    async def _locate_owners(self) -> None:
        """Find out which server has which slot; all callers wait for the same answer or error."""
        if self._locating is None or self._locating.done():
            self._locating = asyncio.create_task(self._locate_in_time())
            self._locating.add_done_callback(lambda done: done.cancelled() or done.exception())
        try:
            self._starts, self._owners = await asyncio.shield(self._locating)
        except redis.RedisError as error:
            raise ServerFault(error, self._address.shown) from error
        self._located_at = asyncio.get_running_loop().time()

    def _recheck_primary_when_due(self) -> None:
        """Ask Sentinel in the background, now and then, whether there is another primary."""
        now = asyncio.get_running_loop().time()
        if now - self._located_at > TRUST_SECONDS:
            self._located_at = now
            self._rechecking = asyncio.create_task(self._recheck_primary())

    async def _recheck_primary(self) -> None:
        try:
            host = await self._primary()
        except (ServerFault, redis.RedisError, StoreError):
            return  # the old primary is used until it fails
        for node in [node for node in self._nodes.values() if node.host != host]:
            await self.drop(node)

    async def _locate_in_time(self) -> tuple[list[int], list[Host]]:
        try:
            return await self._locate()
        except asyncio.CancelledError:  # by `close`: the callers were not cancelled
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
        """Ask the Sentinels in turn, then the primary itself for its role, as their guide says."""
        command = ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._address.name)
        _, reply = await self._ask_any(self._address.hosts, command, sentinel=True)
        if reply is None:
            raise faults.unknown_primary(self._address)
        host = (reply[0].decode(), int(reply[1]))
        await self._check_role(host)
        return host

    async def _check_role(self, host: Host) -> None:
        try:
            role = await self._ask_once(host, ("ROLE",))
        except redis.ResponseError:
            return  # an ACL may forbid it; then READONLY reveals a replica
        except redis.RedisError as error:
            raise ServerFault(error, f"the primary {host[0]}:{host[1]}") from error
        if role[0] != b"master":
            raise redis.ConnectionError(f"Sentinel names {host[0]}:{host[1]}, still a replica")

    async def _slots(self) -> tuple[list[int], list[Host]]:
        hosts = dict.fromkeys((*self._nodes, *self._address.hosts))
        answered_by, ranges = await self._ask_any(hosts, ("CLUSTER", "SLOTS"))
        if not ranges:
            raise redis.ConnectionError("no node of the Cluster knows which node has which slot")
        ranges.sort()
        starts = [first for first, *_ in ranges]
        return starts, [_host_of(owner, answered_by) for _, _, owner, *_ in ranges]

    async def _ask_any(
        self, hosts: Iterable[Host], command: Command, *, sentinel: bool = False
    ) -> tuple[Host, Any]:
        """Return the first answer that is not empty; hosts that failed before are asked last."""
        missed: redis.RedisError | None = None
        first_host, reply = self._address.hosts[0], None
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
        return first_host, reply

    async def _ask_once(self, host: Host, command: Command, *, sentinel: bool = False) -> Any:
        tls = tls_of(self._address)
        made = make_driver_connection(self._address, host, tls, sentinel=sentinel, once=True)
        try:
            return await ask_once(made, command)
        except redis.TimeoutError as error:
            if str(error).startswith(faults.CONNECTING):
                raise
            raise redis.TimeoutError(faults.ASKING) from None


def _host_of(owner: list[Any], answered_by: Host) -> Host:
    """Return the host of a slot range; a node that does not know its own name leaves it out."""
    name = (owner[0] or b"").decode()
    return (answered_by[0] if name in ("", "?") else name, int(owner[1]))


def _is_redirection(reply: object) -> bool:
    return isinstance(reply, redis.exceptions.AskError)  # MovedError is a kind of AskError
