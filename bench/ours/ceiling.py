"""The ceiling: the least that a worker can do for a task, behind the protocol of all adapters.

On Redis a task is an entry of a stream. The worker reads 128 entries at a time through a group,
asks for the next before it runs these, and for each writes a result that expires; then it
acknowledges and deletes them all at once. On SQLite a task is a row. One transaction inserts the
results of 128 rows and deletes these. There is no state, no lease, no event and no retry. The case
is fixed: it knows nothing of Holdfast, and must not change with it, because it is what all later
figures are compared with.
"""

from __future__ import annotations

import json
import signal
import socket
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import apsw
import hiredis

if TYPE_CHECKING:
    from bench.peers.adapter_cli import Elapsed, Options, Stopwatch, main
else:
    from adapter_cli import Stopwatch, main

NAME = "ceiling"
VERSION = "1"
STORES = ("redis", "sqlite")
_KEPT = (
    "a stream or a table, and a result for each task, 128 tasks at a time; Redis with AOF "
    "everysec, SQLite with WAL and synchronous FULL. Nothing else"
)
SETTINGS = {"best": _KEPT, "plain": _KEPT}
CAN = {"submit", "drain"}

BATCH = 128
CHUNK = 1_000  # submits that are sent before their answers are read
PIECE_BYTES = 1 << 16
ANSWER_SECONDS = 60.0
WAIT_MS = 100  # of a read that finds nothing
IDLE_SECONDS = 0.05
KEEP_SECONDS = 30 * 86_400
QUEUE, GROUP, WORKER = "ceiling:queue", "workers", "one"
TABLES = """
PRAGMA journal_mode = WAL;
CREATE TABLE IF NOT EXISTS queue (id INTEGER PRIMARY KEY, payload TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS results (id INTEGER PRIMARY KEY, result TEXT NOT NULL);
"""

Word = str | bytes | int
pack: Callable[[tuple[Any, ...]], bytes] = hiredis.pack_command


class RedisCeiling:
    """A connection: commands go out in pipelines, and their answers come in order."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        place = (parts.hostname, parts.port or 6379)
        self._socket = socket.create_connection(place, timeout=ANSWER_SECONDS)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = hiredis.Reader()
        self._unread = 0  # answers to results, which are read before the next batch

    def prepare(self) -> None:
        self._send(("XGROUP", "CREATE", QUEUE, GROUP, "0", "MKSTREAM"))
        self._answer()

    def submit(self, tasks: int) -> None:
        for first in range(0, tasks, CHUNK):
            numbers = range(first, min(first + CHUNK, tasks))
            self._send(*(("XADD", QUEUE, "*", "payload", n) for n in numbers))
            for _ in numbers:
                self._answer()

    def work(self, mark: Callable[[int], None], is_stopped: Callable[[], bool]) -> None:
        self._read_next(wait=True)
        while not is_stopped():
            entries = self._batch()
            self._read_next(wait=not entries)
            if entries:
                self._end([(entry, run_noop(payload, mark)) for entry, payload in entries])
        self._batch()

    def _read_next(self, *, wait: bool) -> None:
        """Ask for entries; a read that waits would hold up the results that are sent after it."""
        block = ("BLOCK", WAIT_MS) if wait else ()
        worker = ("GROUP", GROUP, WORKER)
        self._send(("XREADGROUP", *worker, "COUNT", BATCH, *block, "STREAMS", QUEUE, ">"))

    def _batch(self) -> list[tuple[bytes, bytes]]:
        """Return the entries of the read that was sent last; what was sent before is answered."""
        unread, self._unread = self._unread, 0
        found = self._answer()
        for _ in range(unread):
            self._answer()
        streams = found or []
        return [(entry, fields[1]) for _, entries in streams for entry, fields in entries]

    def _end(self, ended: list[tuple[bytes, str]]) -> None:
        entries = [entry for entry, _ in ended]
        self._send(
            *(
                ("SET", b"ceiling:result:" + entry, result, "EX", KEEP_SECONDS)
                for entry, result in ended
            ),
            ("XACK", QUEUE, GROUP, *entries),
            ("XDEL", QUEUE, *entries),
        )
        self._unread = len(ended) + 2

    def _send(self, *commands: tuple[Word, ...]) -> None:
        self._socket.sendall(b"".join(map(pack, commands)))

    def _answer(self) -> Any:
        while (answer := self._reader.gets()) is False:
            self._reader.feed(self._socket.recv(PIECE_BYTES))
        if isinstance(answer, hiredis.HiredisError):
            raise answer
        return answer


class SqliteCeiling:
    """A connection: a batch is one transaction, which is on the disk when it ends."""

    def __init__(self, path: str) -> None:
        self._db = apsw.Connection(path)
        self._db.set_busy_timeout(int(ANSWER_SECONDS * 1000))
        self._db.execute(TABLES).fetchall()  # else only its first statement is run
        self._db.execute("PRAGMA synchronous = FULL")

    def prepare(self) -> None:
        """Nothing: the tables were made with the connection."""

    def submit(self, tasks: int) -> None:
        for first in range(0, tasks, CHUNK):
            numbers = range(first, min(first + CHUNK, tasks))
            with self._db:
                self._db.executemany(
                    "INSERT INTO queue (payload) VALUES (?)", ((str(n),) for n in numbers)
                )

    def work(self, mark: Callable[[int], None], is_stopped: Callable[[], bool]) -> None:
        while not is_stopped():
            rows = self._next_rows()
            if not rows:
                time.sleep(IDLE_SECONDS)
                continue
            ended = [(at, run_noop(payload.encode(), mark)) for at, payload in rows]
            with self._db:
                self._db.executemany("INSERT INTO results (id, result) VALUES (?, ?)", ended)
                self._db.executemany("DELETE FROM queue WHERE id = ?", ((at,) for at, _ in ended))

    def _next_rows(self) -> list[tuple[int, str]]:
        found: Iterator[Any] = self._db.execute(
            "SELECT id, payload FROM queue ORDER BY id LIMIT ?", (BATCH,)
        )
        return list(found)


def run_noop(payload: bytes, mark: Callable[[int], None]) -> str:
    """Run the task on its decoded payload, and return its result as text."""
    mark(json.loads(payload))
    return json.dumps(None)


def open_ceiling(options: Options) -> RedisCeiling | SqliteCeiling:
    return RedisCeiling(options.url) if options.store == "redis" else SqliteCeiling(options.path)


def prepare(options: Options) -> None:
    open_ceiling(options).prepare()


def submit(options: Options) -> Elapsed:
    opened = open_ceiling(options)
    watch = Stopwatch()
    opened.submit(options.tasks)
    return watch.stop()


def work(options: Options) -> None:
    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stopped.append(number))
    open_ceiling(options).work(options.board.mark, lambda: bool(stopped))


if __name__ == "__main__":
    main()
