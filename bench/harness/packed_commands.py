"""Packed commands for Redis, sent in long pipelines through one connection."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from urllib.parse import urlsplit

import hiredis

PIPELINE = 1000  # commands that are sent before the answers to those before them are read
ANSWER_SECONDS = 60.0
PIECE_BYTES = 1 << 16


def send_commands(commands: Sequence[bytes], url: str) -> None:
    """Send chunk after chunk, and read the answers to one while the next is on its way."""
    host, port = urlsplit(url).hostname, urlsplit(url).port
    with socket.create_connection((host, port or 6379), timeout=ANSWER_SECONDS) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        reader, waiting = hiredis.Reader(), 0
        for chunk in _chunks(commands):
            connection.sendall(b"".join(chunk))
            _read(connection, reader, waiting)
            waiting = len(chunk)
        _read(connection, reader, waiting)


def _chunks(commands: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    for first in range(0, len(commands), PIPELINE):
        yield commands[first : first + PIPELINE]


def _read(connection: socket.socket, reader: hiredis.Reader, answers: int) -> None:
    while answers:
        answer = reader.gets()
        if answer is False:
            reader.feed(connection.recv(PIECE_BYTES))
            continue
        if isinstance(answer, hiredis.HiredisError):
            raise RuntimeError(f"the server refused a command: {answer}")
        answers -= 1
