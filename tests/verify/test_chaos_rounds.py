"""Chaos itself in short, with real processes; and stores that are broken, to be found out."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.programs import counted_in_rounds

SQLITE = "--only tasks --kills 12 --zombies 3 --tenants 5,400 --seconds 600 --seed 7"
REDIS = "--kills 8 --zombies 2 --server-kills 2 --lost-replies 30 --tenants 5,400 --seconds 600"


def chaos(arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "verify.chaos", *arguments.split()],
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )


def test_killed_and_frozen_workers_lose_nothing() -> None:
    done = chaos(SQLITE)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_server_killed_twice_and_thirty_lost_replies_lose_nothing() -> None:
    done = chaos(f"--only tasks --store redis {REDIS} --seed 7")
    assert done.returncode == 0, done.stdout + done.stderr


# -- stores that are broken on purpose

BEGIN = """
import sys
from pathlib import Path

import msgspec

from verify.chaos.round_plan import RoundPlan
from verify.chaos.rounds import run_round

replace = msgspec.structs.replace


def blindly(given, task):
    version = task.version + 1
    return replace(
        given,
        before=replace(given.before, version=task.version),
        after=replace(given.after, version=version),
        request=given.request + " forced",
        lease=task.lease.id if task.lease else None,
        checkpoint=None,
        events=tuple(replace(event, version=version) for event in given.events),
    )


def judged(store, *, seconds, **harm):
    folder, seconds = Path(sys.argv[1]), seconds * float(sys.argv[2])
    given = dict(name="broken", folder=folder, tenants=50, kills=0, zombies=0, tasks=300, seed=1)
    given |= dict(store=store.format(folder=folder), seconds=seconds)
    one = run_round(RoundPlan(**{**given, **harm}))
    found = one.verdict
    print(len(found.lost), len(found.double), len(found.two_owners))
"""

SQLITE_BLIND = (
    BEGIN
    + """
from holdfast.stores.sqlite.tasks import store as task_store

compared = task_store._apply


def last_writer_wins(txn, write, row, *rest):
    given = write.transition
    task = None if row is None else applying._record(txn, row)
    if given.lease is None or task is None or task.version == given.before.version:
        return compared(txn, write, row, *rest)
    return compared(txn, applying.encode(blindly(given, task)), row, *rest)


def blind():
    task_store._apply = last_writer_wins


judged("sqlite:///{folder}/blind.db", zombies=20, seconds=30, sabotage=blind)
"""
)

REDIS_BLIND = (
    BEGIN
    + """
from holdfast.stores.redis.store import RedisStore

compared = RedisStore.apply


async def last_writer_wins(self, batch):
    found = await self.load([given.task_id for given in batch])
    return await compared(
        self,
        [
            given
            if given.lease is None or task is None or task.version == given.before.version
            else blindly(given, task)
            for given, task in zip(batch, found)
        ],
    )


def blind():
    RedisStore.apply = last_writer_wins


judged("redis", zombies=20, seconds=40, sabotage=blind)
"""
)

REDIS_WITHOUT_LINES = (
    BEGIN
    + """
from holdfast.stores.redis import scripts
from holdfast.stores.redis.client.client import Script

CHECKS = ("local function line_is_open(active)", "local function busy_with(r)")


def open_all_lines():
    for name, script in list(vars(scripts).items()):
        if isinstance(script, Script):
            source, answers = script.source, ("return true", "return false")
            for check, answer in zip(CHECKS, answers):
                source = source.replace(check, check + "\\n do " + answer + " end")
            setattr(scripts, name, Script(script.name, source))


judged("redis", tenants=5, tasks=60, kills=5, seconds=15, sabotage=open_all_lines)
"""
)

REDIS_FORGETFUL = (
    BEGIN
    + """
judged("redis", tenants=5, kills=10, server_kills=2, tasks=60, seconds=15, durable=False)
"""
)


LOST, DOUBLE, TWO_OWNERS = range(3)


def assert_found_in(program: str, folder: Path, *complaints: int) -> None:
    found = list[int]()
    for found in counted_in_rounds(program, folder):
        if all(found[complaint] for complaint in complaints):
            return
    raise AssertionError(f"lost, committed twice, owned by two: {found}")


@pytest.mark.slow
@pytest.mark.parametrize("program", [SQLITE_BLIND, REDIS_BLIND], ids=["sqlite", "redis"])
def test_a_store_that_compares_nothing_is_found_out(program: str, tmp_path: Path) -> None:
    assert_found_in(program, tmp_path, DOUBLE, TWO_OWNERS)


@pytest.mark.slow
def test_a_store_that_lets_a_tenant_s_tasks_run_side_by_side_is_found_out(tmp_path: Path) -> None:
    assert_found_in(REDIS_WITHOUT_LINES, tmp_path, TWO_OWNERS)


def test_a_server_that_forgets_when_it_is_killed_is_found_out(tmp_path: Path) -> None:
    assert_found_in(REDIS_FORGETFUL, tmp_path, LOST)
