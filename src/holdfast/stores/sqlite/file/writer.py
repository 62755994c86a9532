"""One thread writes, and gathers operations into one commit.

It takes the operations that came during the last commit, so an idle store adds no delay and a busy
one pays for one sync per group. An operation is answered after the commit. When one operation of a
group fails, the group is rolled back and each gets a transaction of its own: no operation fails
because of another, and no savepoint is paid for as long as all goes well.

While somebody waits for a signal, the thread also polls whether another process has committed,
which SQLite reports on its own connection: every 2 ms while that happens, else every 50 ms. It does
not learn what was committed, so it wakes everybody but those who sleep until a time. A count in the
file says whether they have to wake up, so that they do not do so for every task of a busy process.
"""

from __future__ import annotations

import asyncio
import logging
import os
import queue
import random
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import apsw
import msgspec

from holdfast.domain.errors import StoreError, StoreUnavailable, StoreUnusable
from holdfast.ports import Topic
from holdfast.stores.sqlite.file import faults
from holdfast.stores.sqlite.statements import SQL
from holdfast.stores.sqlite.transaction import StoreClock, Txn

GROUP_WEIGHT = 1000  # elements in one commit
WAITING_LIMIT = 50_000  # operations that have not begun
POLL_SECONDS = 0.05  # between two polls for another process's commit
BUSY_POLL_SECONDS = 0.002  # between two polls after another process has committed
BUSY_SECONDS = 10.0  # how long after such a commit
LOCK_SECONDS = 10.0  # one group commits in milliseconds; after this time the other writer is stuck
TRY_SECONDS = (0.0005, 0.005)

Inode: TypeAlias = tuple[int, int]

LOG, INDEX = "-wal", "-shm"

T = TypeVar("T")
log = logging.getLogger("holdfast.stores.sqlite.writer")


class Identity:
    """The files of a store that is open now: its database, its log and the log's index.

    A file that was removed or moved away stays open and takes every commit, and nobody finds it
    again. So the inodes are compared at each use. The paths are never opened for this, because
    closing one more handle would take SQLite's locks from the whole process.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        beside = os.path.realpath(
            path
        )  # SQLite writes its log beside the file that a link leads to
        self._names = (str(path), f"{beside}{LOG}", f"{beside}{INDEX}")
        self.inodes = tuple(self._inode_at(name) for name in self._names)

    def check(self) -> None:
        """Raise if one of the files is not there any more: nothing may be written or read then."""
        for name, opened in zip(self._names, self.inodes, strict=True):
            if self._inode_at(name) != opened:
                raise self._missing_file(name)

    def check_committed(self) -> None:
        """Raise if a commit just made went into a file that is not there any more."""
        try:
            self.check()
        except StoreUnusable as error:
            raise faults.commit_lost(self._path, error) from error

    def _inode_at(self, name: str) -> Inode:
        try:
            status = os.stat(name)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise self._missing_file(name) from error
        except OSError as error:
            raise faults.away(self._path, error) from error
        return status.st_dev, status.st_ino

    def _missing_file(self, name: str) -> Exception:
        if name == self._names[0]:
            return faults.is_moved(self._path)
        return faults.log_removed(self._path, name)


class QueuedWrite(msgspec.Struct, eq=False):
    """An operation that waits for the writer's thread."""

    work: Callable[[Txn], Any]
    weight: int
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]
    answer: Any = None
    error: Exception | None = None


class Writer:
    """The thread that writes; `do` may be awaited on any event loop of any thread."""

    def __init__(
        self,
        db: apsw.Connection,
        path: Path,
        clock: StoreClock,
        notify: Callable[[Topic], None],
        connect: Callable[[], apsw.Connection],
        *,
        identity: Identity,
        lock_seconds: float,
    ) -> None:
        self._db, self._path, self._clock, self._notify = db, path, clock, notify
        self._identity, self._connect, self._lock_seconds = identity, connect, lock_seconds
        self._broken = False  # whether the connection cannot be used any more
        self._queue: queue.SimpleQueue[QueuedWrite | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._closing = False
        self._watchers = 0
        self._seen, self._due_seen = (
            read_number(self._db, "data_version"),
            read_number(self._db, "due_count"),
        )
        self._busy_until = 0.0
        self._thread = threading.Thread(target=self._run, name="holdfast-sqlite", daemon=True)
        self._thread.start()

    async def do(self, work: Callable[[Txn], T], *, weight: int = 1) -> T:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        with self._lock:
            if self._closing:
                raise faults.not_open(self._path)
            if self._queue.qsize() >= WAITING_LIMIT:
                raise StoreUnavailable(
                    f"{WAITING_LIMIT} writes to {self._path} are already waiting"
                )
            self._queue.put(QueuedWrite(work, weight, loop, future))
        return await future

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Turn commits of other processes into signals during the block."""
        with self._lock:
            self._watchers += 1
            if self._watchers == 1:
                self._queue.put(None)  # wakes the thread, which may wait without a timeout
        try:
            yield
        finally:
            with self._lock:
                self._watchers -= 1

    def close(self, *, timeout: float) -> bool:
        """Write what waits, then stop; return False if that did not end in time."""
        with self._lock:
            self._closing = True
            self._queue.put(None)
        self._thread.join(timeout)
        return not self._thread.is_alive()

    # -- the thread

    def _run(self) -> None:
        while not (self._closing and self._queue.empty()):
            try:
                group = self._gather()
                if group:
                    self._write(group)
                if self._watchers and not self._broken:
                    self._poll_commits()
            except Exception:  # a defect; the thread must outlive it, or all writes would hang
                log.exception("the writer of %s failed", self._path)
        self._db.close()

    def _gather(self) -> list[QueuedWrite]:
        """Wait for one operation, then take all that wait."""
        group: list[QueuedWrite] = []
        weight = 0
        try:
            first = self._queue.get(timeout=self._poll_seconds() if self._watchers else None)
            while True:
                if first is not None and not first.future.cancelled():
                    group.append(first)
                    weight += first.weight
                if weight >= GROUP_WEIGHT:
                    return group
                first = self._queue.get_nowait()
        except queue.Empty:
            return group

    def _write(self, group: Sequence[QueuedWrite]) -> None:
        try:
            topics = self._commit(group)
        except _Spoiled as spoiled:
            if len(group) > 1:
                for operation in group:
                    self._write([operation])
                return
            topics = set()
            group[0].error = spoiled.cause
        except Exception as error:
            topics = set()
            for operation in group:
                operation.error = self._translate(error)
        try:  # before the answers: a caller that then waits, waits for later signals
            for topic in topics:
                self._notify(topic)
        finally:
            _answer(group)

    def _commit(self, group: Sequence[QueuedWrite]) -> set[Topic]:
        if self._broken:
            self._reconnect()
        try:
            self._db.execute(SQL["begin_writing"])
        except (apsw.BusyError, apsw.LockedError):
            patiently(lambda: self._db.execute(SQL["begin_writing"]), seconds=self._lock_seconds)
        try:
            txn = self._perform(group)
            self._identity.check()  # as late as possible, but before anything is written
            self._db.execute(SQL["commit"])
        except apsw.Error as error:  # before the rollback, which resets the system's error number
            raise self._translate(error) from error
        finally:
            self._roll_back()
        self._identity.check_committed()
        if txn.due_count is not None:
            self._due_seen = txn.due_count
        if txn.shrink:
            self._shrink_log()
        return txn.topics

    def _roll_back(self) -> None:
        """Roll back; where that fails, replace the connection: it would keep the lock for ever."""
        if not self._db.in_transaction:
            return
        try:
            self._db.execute(SQL["roll_back"])
        except apsw.Error as error:
            log.error(
                "a write to %s cannot be rolled back, so it reconnects: %s", self._path, error
            )
        if self._db.in_transaction:
            self._broken = True
            try:
                self._reconnect()
            except (StoreError, apsw.Error) as error:
                log.error("%s cannot be opened now; the next write retries: %s", self._path, error)

    def _reconnect(self) -> None:
        self._db.close(True)
        self._identity.check()  # otherwise an empty file could be created
        self._db = self._connect()
        self._seen, self._broken = read_number(self._db, "data_version"), False

    def _perform(self, group: Sequence[QueuedWrite]) -> Txn:
        try:
            txn = Txn(self._db, self._clock)
            for operation in group:
                operation.answer = operation.work(txn)
            txn.flush()
            if txn.shrink:
                self._db.execute(SQL["give_pages_back"]).fetchall()
        except Exception as error:
            raise _Spoiled(self._translate(error)) from error
        return txn

    def _shrink_log(self) -> None:
        try:
            self._db.execute(SQL["shrink_log"]).fetchall()
        except apsw.Error as error:
            log.debug("the log of %s cannot be shrunk now: %s", self._path, error)

    # -- other processes

    def _poll_commits(self) -> None:
        """Signal the topics that a commit of another process may concern."""
        try:
            seen = read_number(self._db, "data_version")
            if seen == self._seen:
                return
            due_count = read_number(self._db, "due_count")
        except apsw.Error as error:
            log.warning("%s cannot be polled for commits: %s", self._path, error)
            return
        topics = set(Topic) if due_count != self._due_seen else set(Topic) - {Topic.DUE}
        self._seen, self._due_seen = seen, due_count
        self._busy_until = time.monotonic() + BUSY_SECONDS
        for topic in topics:
            self._notify(topic)

    def _poll_seconds(self) -> float:
        return BUSY_POLL_SECONDS if time.monotonic() < self._busy_until else POLL_SECONDS

    def _translate(self, error: Exception) -> Exception:
        system_errno = 0 if self._broken else self._db.system_errno
        return faults.translate(error, self._path, system_errno)


class _Spoiled(Exception):
    """An operation of the group failed before the commit."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


def _answer(group: Sequence[QueuedWrite]) -> None:
    """Answer all operations, once per loop: waking a loop costs more than an operation."""
    by_loop: defaultdict[asyncio.AbstractEventLoop, list[QueuedWrite]] = defaultdict(list)
    for operation in group:
        by_loop[operation.loop].append(operation)
    for loop, operations in by_loop.items():
        try:
            loop.call_soon_threadsafe(_resolve, operations)
        except RuntimeError:  # the loop was closed: nobody waits any more
            log.debug("%d answers came after their loop was closed", len(operations))


def _resolve(operations: Sequence[QueuedWrite]) -> None:
    for operation in operations:
        if operation.future.done():
            continue
        if operation.error is not None:
            operation.future.set_exception(operation.error)
        else:
            operation.future.set_result(operation.answer)


def read_number(db: apsw.Connection, name: str) -> int:
    """Return the number that a statement of one row and column answers."""
    return int(db.execute(SQL[name]).fetchone()[0])  # type: ignore[index]


def patiently(step: Callable[[], T], *, seconds: float = LOCK_SECONDS) -> T:
    """Repeat a step until the lock is free: SQLite's own waiting backs off and starves."""
    end = time.monotonic() + seconds
    while True:
        try:
            return step()
        except (apsw.BusyError, apsw.LockedError):
            if time.monotonic() >= end:
                raise
            time.sleep(random.uniform(*TRY_SECONDS))
