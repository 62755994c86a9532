"""Long commands show how far they have come: to a person at a terminal, and to nobody else."""

import os
import pty
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator

import pytest

from holdfast.cli.output.bulk_view import live_line
from holdfast.cli.output.progress import Estimate
from holdfast.cli.output.watch import redraw
from holdfast.domain.bulk import BulkCommand, BulkCounts
from holdfast.domain.task.state import Status
from holdfast.domain.task.task import By
from holdfast.engine.bulk.order import BulkInfo
from holdfast.ports import Filter
from tests.support.cli.world import World

COMMANDS = {
    "doctor": ("doctor",),
    "audit verify": ("audit", "verify"),
    "prune": ("prune", "--kind", "audit", "--older-than", "0s"),
}
SHOWN = {"doctor": "tasks compared", "audit verify": "links compared", "prune": "audit deleted"}


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    ours, theirs = pty.openpty()
    yield ours, theirs
    os.close(ours)


def run_at(theirs: int, world: World, *args: str) -> subprocess.CompletedProcess[bytes]:
    small_batches = (
        "import holdfast.engine.operations.retention as p; p.BATCH = 1; "
        "from holdfast_command import main"
    )
    try:
        return subprocess.run(
            [sys.executable, "-c", f"{small_batches}; main()", "--store", world.url, *args],
            stdout=subprocess.PIPE,
            stderr=theirs,
            env=os.environ | {"TERM": "xterm", "COLUMNS": "80"},
            check=False,
            timeout=120,
        )
    finally:
        os.close(theirs)


def read_all(ours: int) -> str:
    seen = b""
    while True:
        try:
            part = os.read(ours, 4096)
        except OSError:  # the other side is closed
            return seen.decode()
        if not part:
            return seen.decode()
        seen += part


@pytest.mark.parametrize("name", COMMANDS)
def test_a_person_at_a_terminal_sees_it(world: World, terminal: tuple[int, int], name: str) -> None:
    for _ in range(3):
        world.cli("tasks", "pause", world.upgrade(tenant="t-1"))
    ours, theirs = terminal
    run_at(theirs, world, *COMMANDS[name])
    shown = read_all(ours)
    assert SHOWN[name] in shown
    assert re.search(r"\d/3\b.*[-\d]:[-\d]{2}", shown), "how many of how many, and the time left"


@pytest.mark.parametrize("name", COMMANDS)
def test_json_has_nothing_beside_it(world: World, terminal: tuple[int, int], name: str) -> None:
    for _ in range(3):
        world.cli("tasks", "pause", world.upgrade(tenant="t-1"))
    ours, theirs = terminal
    run_at(theirs, world, *COMMANDS[name], "--json")
    assert read_all(ours) == ""


@pytest.mark.parametrize("name", COMMANDS)
def test_a_pipe_has_nothing_of_it(world: World, name: str) -> None:
    world.cli("tasks", "pause", world.upgrade(tenant="t-1"))
    assert SHOWN[name] not in world.cli(*COMMANDS[name]).output


def test_the_time_left_is_estimated_by_the_rate_so_far() -> None:
    estimate = Estimate()
    assert estimate.time_left(100.0, done=10, left=90) == ""
    assert estimate.time_left(110.0, done=20, left=80) == "about 1m20s left"
    assert estimate.time_left(120.0, done=100, left=0) == ""


def bulk_with(left: int) -> BulkInfo:
    """A bulk action on a hundred tasks of which so many are left."""
    return BulkInfo(
        id="b-1",
        command=BulkCommand.DISCARD,
        where=Filter(),
        phase="rest",
        status=Status.RUNNING,
        matching=100,
        more=False,
        left=left,
        counts=BulkCounts(),
        unknown=0,
        rate=1.0,
        canary=None,
        limit=None,
        by=By(actor="ann"),
        reason=None,
        failure=None,
        created_at=0.0,
        updated_at=0.0,
    )


async def test_who_watches_a_bulk_action_sees_how_far_it_is_and_the_time_left(
    capsys: pytest.CaptureFixture[str],
) -> None:
    estimate, times = Estimate(), iter((100.0, 110.0))

    async def two_looks() -> AsyncIterator[BulkInfo]:
        yield bulk_with(left=90)
        yield bulk_with(left=80)

    await redraw(two_looks(), lambda info: live_line(info, estimate, next(times)))
    assert "20 %, about 1m20s left" in " ".join(capsys.readouterr().out.split())
