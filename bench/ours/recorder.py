"""The same adapter, with every statement that SQLite is given written down: for the floor.

`recorder.py ROLE …` is `adapter.py ROLE …`; what its connections execute is written to the file
that FLOOR_RECORD names, as MessagePack: statement and values, in order, without reads.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import apsw
import msgspec

if TYPE_CHECKING:
    from bench.ours import adapter
    from bench.peers.adapter_cli import main
else:
    import adapter
    from adapter_cli import main

FILE = "FLOOR_RECORD"
READS = ("SELECT", "PRAGMA", "WITH", "EXPLAIN")


def watch(connection: apsw.Connection) -> None:
    if not connection.filename:  # in memory: the tables to compare a file's with
        return
    mine: list[tuple[str, Any]] = []
    RECORDS.append(mine)

    def note(_: apsw.Cursor, statement: str, values: Any) -> bool:
        if not _is_read(statement):
            mine.append((statement, values))
        return True

    connection.exec_trace = note


def _is_read(statement: str) -> bool:
    lines = (line.strip() for line in statement.splitlines())
    code = " ".join(line for line in lines if line and not line.startswith("--"))
    return not code or code.upper().startswith(READS)


class Recorded:
    """The adapter's module, for each role of which the record is written in the end."""

    def __getattr__(self, name: str) -> Any:
        found = getattr(adapter, name)
        if not callable(found):
            return found

        def play(options: Any) -> Any:
            answer = found(options)
            with open(os.environ[FILE], "wb") as file:
                file.write(msgspec.msgpack.encode(max(RECORDS, key=len)))  # the writer's
            return answer

        return play


RECORDS: list[list[tuple[str, Any]]] = []  # of each connection

if __name__ == "__main__":
    apsw.connection_hooks.append(watch)
    main(Recorded(), sys.argv[1:])
