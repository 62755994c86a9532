"""Verbs on a file, run by tests as a process: `python -m …sqlite_process VERB FILE …`."""

import asyncio
import resource
import signal
import sys
from itertools import count
from pathlib import Path

import msgspec

from holdfast.clock import SystemClock
from holdfast.domain.audit import Audit
from holdfast.domain.errors import StoreFull
from holdfast.domain.task import decide
from holdfast.domain.task.state import Status
from holdfast.domain.task.task import By, Task
from holdfast.domain.task.transition import Submission
from holdfast.domain.trigger.schedule import Once
from holdfast.domain.trigger.trigger import Trigger
from holdfast.ports import Switch
from holdfast.ports.trigger_shortcuts import TriggerShortcuts
from holdfast.stores.sqlite import SqliteStore
from tests.support.sqlite.sqlite_files import opened


def submission(task_id: str, *, tenant: str | None = None, size: int = 10) -> Submission:
    now = SystemClock().now()
    task = Task(
        id=task_id,
        type="test.work",
        tenant=tenant,
        stages=("only",),
        created_at=now,
        status=Status.PENDING,
        status_since=now,
        updated_at=now,
    )
    return decide.submit(task, msgspec.json.encode("x" * size), "digest")


def done(task: Task) -> decide.Done:
    return decide.Done(result=b"null", data={}, started_at=task.updated_at, duration_seconds=0.0)


def say(text: object) -> None:
    print(text, flush=True)


async def submit(store: SqliteStore, name: str, number: str) -> None:
    for n in range(int(number)):
        await store.tasks.insert([submission(f"{name}-{n:06d}")], depth_limit=10**9)
    say("submitted")


async def schedule(store: SqliteStore, name: str, at: str) -> None:
    now = SystemClock().now()
    trigger = Trigger(
        id=name,
        schedule=Once(at=float(at)),
        target="test.work",
        created_at=now,
        updated_at=now,
        fire_time=float(at),
        trigger_at=float(at),
    )
    await TriggerShortcuts(store).save(trigger)
    say("saved")


def entry(about: str, command: str) -> Audit:
    return Audit(
        task_id=about,
        command=command,
        by=By(actor="ada"),
        at=SystemClock().now(),
        before="",
        after="",
    )


async def note(store: SqliteStore, name: str, number: str) -> None:
    for n in range(int(number)):
        await store.admin.audit(entry(f"worker:{name}", f"note-{n}"))
    say("noted")


async def throw(store: SqliteStore, switch: str, queue: str, stands: str) -> None:
    audit = entry(f"queue:{queue}", f"{switch}-{stands}")
    say(await store.admin.set_switch(Switch(switch), queue, on=stands == "on", audit=audit))


async def work(store: SqliteStore, worker: str) -> None:
    """Claim and complete until nothing is left, and say what was done."""
    for request in count():
        claimed = await store.tasks.claim(
            worker, request=str(request), queues=["default"], limit=3, lease_seconds=600
        )
        if not claimed:
            return
        now = SystemClock().now()
        await store.tasks.apply([decide.complete(c.task, done(c.task), now=now) for c in claimed])
        for c in claimed:
            say(c.task.id)


async def flood(store: SqliteStore, name: str) -> None:
    """Submit without an end, several at once, and say what was answered."""

    async def one(lane: int) -> None:
        for n in count():
            task_id = f"{name}-{lane}-{n:06d}"
            await store.tasks.insert([submission(task_id, tenant=f"t-{n % 3}")], depth_limit=10**9)
            say(task_id)

    await asyncio.gather(*(one(lane) for lane in range(8)))


async def fill(store: SqliteStore, limit_bytes: str) -> None:
    """No file may grow past the limit: submit until that is felt, then go on without it."""
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit_bytes), hard))
    accepted = 0
    try:
        for n in range(10_000):
            await store.tasks.insert([submission(f"big-{n:06d}", size=20_000)], depth_limit=10**9)
            accepted += 1
    except StoreFull as error:
        say(f"full after {accepted}: {error.code}")
    found = await store.views.load([f"big-{n:06d}" for n in range(accepted + 1)])
    say([task is not None for task in found].count(True) == accepted)
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    await store.tasks.insert([submission("after")], depth_limit=10**9)
    say((await store.views.load(["after"]))[0] is not None)


async def main(verb: str, path: str, *arguments: str) -> None:
    async with opened(Path(path)) as store:
        verbs = {
            "submit": submit,
            "schedule": schedule,
            "note": note,
            "throw": throw,
            "work": work,
            "flood": flood,
            "fill": fill,
        }
        await verbs[verb](store, *arguments)  # type: ignore[operator]


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
