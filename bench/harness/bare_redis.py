"""The floor on Redis: what the server wrote down of a run, sent again as bare commands.

While our engine runs, the server notes in its append-only file every command that changed
anything, those inside scripts too. The same commands, without the scripts around them and without
any read, go through one connection in long pipelines, packed beforehand and read by hiredis. So the
floor is what the server needs for our writes when nobody thinks.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any
from urllib.parse import urlsplit

import hiredis
import msgspec

from verify.servers import RedisServer

PIPELINE = 1000  # commands that are sent before the answers to those before them are read
ANSWER_SECONDS = 60.0
PIECE_BYTES = 1 << 16
_AROUND = {b"MULTI", b"EXEC", b"SELECT"}


class RecordedCommands(msgspec.Struct, frozen=True, kw_only=True):
    """Packed commands, in the order in which the server ran them."""

    before: list[bytes]  # not timed
    timed: list[bytes]

    @property
    def timed_bytes(self) -> int:
        return sum(map(len, self.timed))


def count_noted_bytes(server: RedisServer) -> int:
    """Return how many bytes the server has written to its append-only file so far."""
    return len(_note(server))


def commands_of(server: RedisServer, marks: Sequence[int]) -> RecordedCommands:
    """Return the commands up to the first mark, and from there to the second."""
    note = _note(server)
    parts = [list(_commands(note[start:end])) for start, end in pairwise((0, *marks))]
    return RecordedCommands(before=parts[0], timed=parts[1])


def replayed_seconds(commands: RecordedCommands, url: str) -> float:
    """Return the seconds that an empty server takes for the second part of the commands."""
    host, port = urlsplit(url).hostname, urlsplit(url).port
    with socket.create_connection((host, port or 6379), timeout=ANSWER_SECONDS) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        _send(connection, commands.before)
        chunks = _chunks(commands.timed)
        begun = time.perf_counter()
        _send_chunks(connection, chunks)
        return time.perf_counter() - begun


def _send(connection: socket.socket, commands: list[bytes]) -> None:
    _send_chunks(connection, _chunks(commands))


def _chunks(commands: list[bytes]) -> list[tuple[int, bytes]]:
    cut = [commands[n : n + PIPELINE] for n in range(0, len(commands), PIPELINE)]
    return [(len(chunk), b"".join(chunk)) for chunk in cut]


def _send_chunks(connection: socket.socket, chunks: list[tuple[int, bytes]]) -> None:
    """Send chunk after chunk, and read the answers to one while the next is on its way."""
    reader, waiting = hiredis.Reader(), 0
    for count, data in chunks:
        connection.sendall(data)
        _read(connection, reader, waiting)
        waiting = count
    _read(connection, reader, waiting)


def _read(connection: socket.socket, reader: hiredis.Reader, answers: int) -> None:
    while answers:
        answer = reader.gets()
        if answer is False:
            reader.feed(connection.recv(PIECE_BYTES))
            continue
        if isinstance(answer, hiredis.HiredisError):
            raise RuntimeError(f"the server refused what it had noted: {answer}")
        answers -= 1


def _note(server: RedisServer) -> bytes:
    """Redis 7 has a folder of parts, older ones a single file."""
    parts = sorted(server.folder.glob("appendonlydir/*.incr.aof"))
    return b"".join(path.read_bytes() for path in parts or [server.folder / "appendonly.aof"])


def _commands(note: bytes) -> Iterator[bytes]:
    """Read the commands in pieces, because unread bytes are moved in memory at each feed."""
    reader = hiredis.Reader()
    for start in range(0, len(note), PIECE_BYTES):
        reader.feed(note[start : start + PIECE_BYTES])
        while (command := reader.gets()) is not False:
            words: tuple[Any, ...] = tuple(command)
            if words[0].upper() not in _AROUND:
                yield hiredis.pack_command(words)
