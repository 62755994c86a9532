"""Triggers by the million. `save` takes one at a time, and many minutes for so many.

So they are written past the port: what `save` writes, made by the store's own functions and sent in
long transactions (SQLite) or pipelines (Redis). `raw` is what stands in the store of one trigger,
so that one that was saved can be compared with one that was written here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import apsw
import hiredis
import msgspec

from bench.harness.packed_commands import send_commands
from bench.harness.trial_stores import TrialStore
from holdfast.domain.trigger.schedule import Once
from holdfast.domain.trigger.trigger import Trigger
from holdfast.stores import codec
from holdfast.stores.redis.encoding import plan_trigger_hash
from holdfast.stores.redis.encoding.record import iso
from holdfast.stores.redis.keys import KeyNames
from holdfast.stores.sqlite.file.connections import open_reader, open_writer
from holdfast.stores.sqlite.statements import SQL
from holdfast.stores.sqlite.triggers.rows import columns_of

TARGET = "bench.noop"
NAMESPACE = "executor"
CHUNK = 50_000
LOCK_SECONDS = 10.0
_ZSETS = ("triggers", "triggers_due", "triggers_leased", "triggers_ended")


def once(name: str, at: float, now: float) -> Trigger:
    """Return a trigger as a first `save` leaves it."""
    return Trigger(
        id=name,
        schedule=Once(at=at),
        target=TARGET,
        payload=msgspec.Raw(b"0"),
        version=1,
        created_at=now,
        updated_at=now,
        fire_time=at,
        trigger_at=at,
    )


def series(prefix: str, number: int, *, first: float, now: float) -> Iterator[Trigger]:
    """Return triggers a second apart, each named by prefix and number."""
    return (once(f"{prefix}-{n:07d}", first + n, now) for n in range(number))


def chunks(triggers: Iterable[Trigger]) -> Iterator[list[Trigger]]:
    source = iter(triggers)
    while some := list(islice(source, CHUNK)):
        yield some


def write(trial: TrialStore, triggers: Sequence[Trigger]) -> None:
    """Write new, waiting triggers into a store that has been opened before."""
    if trial.redis is None:
        _write_rows(_file(trial), triggers)
    else:
        commands = [command for some in _redis_commands(triggers) for command in some]
        send_commands(commands, trial.url)


def raw(trial: TrialStore, trigger_id: str) -> list[Any]:
    if trial.redis is None:
        db = open_reader(_file(trial))
        try:
            return [*db.execute("SELECT * FROM triggers WHERE id = ?", (trigger_id,))]
        finally:
            db.close()
    keys = KeyNames(NAMESPACE)
    with trial.redis.client() as client:
        scores = [client.zscore(keys(name), trigger_id) for name in _ZSETS]
        record: Any = client.hgetall(keys("trigger", trigger_id))
        return [record, scores, client.exists(keys("trigger_lease", trigger_id))]


def held_bytes(trial: TrialStore) -> int:
    """Return the bytes that the store takes, in memory or in its file."""
    if trial.redis is None:
        db = open_reader(_file(trial))
        try:
            return int(db.pragma("page_count")) * int(db.pragma("page_size"))
        finally:
            db.close()
    with trial.redis.client() as client:
        return int(client.info("memory")["used_memory_dataset"])


def _file(trial: TrialStore) -> Path:
    return Path(trial.url.removeprefix("sqlite:///"))


def _write_rows(path: Path, triggers: Sequence[Trigger]) -> None:
    rows = [(*columns_of(one, 0), codec.encode(one).decode()) for one in triggers]
    db: apsw.Connection = open_writer(path, namespace=NAMESPACE, lock_seconds=LOCK_SECONDS)
    try:
        db.execute("BEGIN IMMEDIATE")
        db.executemany(SQL["trigger_put"], rows)
        db.execute("COMMIT")
    finally:
        db.close()


def _redis_commands(triggers: Sequence[Trigger]) -> Iterator[tuple[bytes, ...]]:
    """Return the commands for the triggers, which differ in their names and times only."""
    keys = KeyNames(NAMESPACE)
    pack: Callable[[tuple[Any, ...]], bytes] = hiredis.pack_command
    every, due = keys("triggers"), keys("triggers_due")
    _, written = plan_trigger_hash.write_trigger(triggers[0])
    positions = {name: n + 1 for n, name in enumerate(written.fields) if n % 2 == 0}
    fields = list(written.fields)
    for one in triggers:
        at = one.trigger_at
        assert at is not None
        fields[positions["id"]] = one.id
        fields[positions["at"]] = fields[positions["fireTime"]] = repr(at)
        fields[positions["triggerAt"]] = iso(at)
        yield (
            pack(("HSET", keys("trigger", one.id), *fields)),
            pack(("ZADD", every, "0", one.id)),
            pack(("ZADD", due, f"{at * 1000:.3f}", one.id)),
        )
