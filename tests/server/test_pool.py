"""The worker processes of a service: more, fewer, again after a death, and none after its own."""

import asyncio
import logging
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO

import pytest

from holdfast.domain.errors import InvalidInput, Refused
from holdfast.domain.task.envelope import iso
from holdfast.insight.views.workers import ProcessState
from holdfast.server.pool import NoPool, Pool
from verify.servers import poll

# Says that it is there, and ends well when it is told to.
OBEDIENT = (
    "import signal, sys, pathlib, os, threading\n"
    "signal.signal(signal.SIGTERM, lambda *_: os._exit(0))\n"
    "pathlib.Path(sys.argv[1], str(os.getpid())).touch()\n"
    "threading.Event().wait(60)\n"
)
DEAF = OBEDIENT.replace("lambda *_: os._exit(0)", "signal.SIG_IGN")
SLOW_TO_GO = (
    "import signal, sys, pathlib, os, threading\n"
    "def drain(*_):\n"
    "    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))\n"
    "    pathlib.Path(sys.argv[1], 'drains').touch()\n"
    "signal.signal(signal.SIGTERM, drain)\n"
    "pathlib.Path(sys.argv[1], str(os.getpid())).touch()\n"
    "while True:\n"
    "    threading.Event().wait(60)\n"
)
SHORT_LIVED = OBEDIENT.replace("threading.Event().wait(60)", "sys.exit(3)")


def command(source: str, folder: Path) -> list[str]:
    return [sys.executable, "-c", source, str(folder)]


async def until(is_so: Callable[[], bool]) -> None:
    await asyncio.to_thread(poll.until, is_so, "the pool is as it should be")


@asynccontextmanager
async def closing(pool: Pool) -> AsyncIterator[Pool]:
    try:
        yield pool
    finally:
        await pool.close()


def pids(pool: Pool) -> list[int]:
    return [pid for one in pool.state()["processes"] if (pid := one["pid"]) is not None]


def is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def scaled(pool: Pool, count: int, folder: Path) -> list[int]:
    """They have come so far that they obey."""
    await pool.scale(count)
    found = pids(pool)
    await until(lambda: {str(pid) for pid in found} <= {path.name for path in folder.iterdir()})
    return found


async def test_it_grows_and_the_newest_are_stopped_first(tmp_path: Path) -> None:
    async with closing(Pool(command(OBEDIENT, tmp_path))) as pool:
        first, second, third = await scaled(pool, 3, tmp_path)
        state = await pool.scale(1)
        assert state["wanted"] == 1
        assert [one["state"] for one in state["processes"]].count(ProcessState.STOPPING) == 2
        await until(lambda: pids(pool) == [first])
        assert not is_there(second)
        assert not is_there(third)
        assert is_there(first)


async def test_each_is_told_with_its_pid_and_its_time(tmp_path: Path) -> None:
    async with closing(Pool(command(OBEDIENT, tmp_path), now=lambda: 77.0, limit=5)) as pool:
        state = await pool.scale(1)
        [pid] = pids(pool)
        alone = {"pid": pid, "startedAt": iso(77.0), "state": ProcessState.ALIVE, "restarts": 0}
        assert state["processes"] == [alone]
        assert state["limit"] == 5


@pytest.mark.parametrize("count", [-1, 5])
async def test_it_is_bounded(tmp_path: Path, count: int) -> None:
    async with closing(Pool(command(OBEDIENT, tmp_path), limit=4)) as pool:
        with pytest.raises(InvalidInput, match="between 0 and 4"):
            await pool.scale(count)
        assert pool.state()["processes"] == []


async def test_without_a_command_there_is_nothing_to_scale() -> None:
    with pytest.raises(NoPool) as refused:
        await Pool().scale(1)
    assert isinstance(refused.value, Refused)
    assert Pool().state()["limit"] == 0


async def test_one_that_is_killed_is_replaced(tmp_path: Path) -> None:
    async with closing(Pool(command(OBEDIENT, tmp_path), again_seconds=(0.01, 0.1))) as pool:
        [pid] = await scaled(pool, 1, tmp_path)
        os.kill(pid, signal.SIGKILL)
        await until(lambda: pids(pool) not in ([], [pid]))
        [after] = pool.state()["processes"]
        assert after["restarts"] == 1


async def test_one_that_ends_well_by_itself_was_drained_and_is_not_replaced(
    tmp_path: Path,
) -> None:
    async with closing(Pool(command(OBEDIENT, tmp_path), again_seconds=(0.01, 0.1))) as pool:
        first, second = await scaled(pool, 2, tmp_path)
        os.kill(first, signal.SIGTERM)
        await until(lambda: pool.state()["wanted"] == 1)
        assert pids(pool) == [second]


async def test_who_dies_again_and_again_is_started_ever_more_seldom(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with closing(Pool(command(SHORT_LIVED, tmp_path), again_seconds=(0.01, 0.04))) as pool:
        await pool.scale(1)
        await until(lambda: len(said(caplog)) >= 4)
    pauses = [record.args[1] for record in dying(caplog) if isinstance(record.args, tuple)]
    assert pauses[:4] == [0.01, 0.02, 0.04, 0.04]


def dying(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """Also one that another thread has just begun to write."""
    return [record for record in caplog.records if "died" in record.getMessage()]


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage().split()[-2] for record in dying(caplog)]


async def test_closing_waits_for_those_who_obey_and_kills_those_who_do_not(tmp_path: Path) -> None:
    obedient, deaf = (
        Pool(command(OBEDIENT, tmp_path)),
        Pool(command(DEAF, tmp_path), stop_seconds=0.2),
    )
    found = [*await scaled(obedient, 2, tmp_path), *await scaled(deaf, 1, tmp_path)]
    await asyncio.gather(obedient.close(), deaf.close())
    assert not any(map(is_there, found))
    with pytest.raises(Refused, match="stops"):
        await obedient.scale(1)


async def test_those_who_drain_can_be_hurried(tmp_path: Path) -> None:
    pool = Pool(command(SLOW_TO_GO, tmp_path))
    [pid] = await scaled(pool, 1, tmp_path)
    closing = asyncio.create_task(pool.close())
    await until((tmp_path / "drains").exists)
    pool.hurry()
    await asyncio.wait_for(closing, 60)
    assert not is_there(pid)


async def test_what_cannot_be_started_is_tried_again_and_told(tmp_path: Path) -> None:
    async with closing(Pool([str(tmp_path / "nowhere")], again_seconds=(60, 60))) as pool:
        state = await pool.scale(1)
        assert state["wanted"] == 1
        await until(lambda: pool.state()["processes"][0]["state"] is ProcessState.WAITING)


PARENT = """
import asyncio, sys
from holdfast.server.pool import Pool

async def main():
    pool = Pool([sys.executable, "-m", "holdfast", "worker", "app:app", "--tethered"])
    await pool.scale(1)
    print(pool.state()["processes"][0]["pid"], flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


def test_a_worker_does_not_outlive_a_service_that_is_killed(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text("from holdfast import Holdfast\napp = Holdfast()\n")
    environment = {**os.environ, "HOLDFAST_STORE": f"sqlite:///{tmp_path}/a.db"}
    service = subprocess.Popen(
        [sys.executable, "-c", PARENT],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert service.stdout is not None
    assert service.stderr is not None
    pid = int(service.stdout.readline())
    before = until_up(service.stderr)
    service.kill()
    said = service.stderr.read()  # until the last of those who may write there is gone
    service.wait()
    service.stdout.close()
    service.stderr.close()
    assert "is gone" not in before
    assert "is gone" in said
    assert "has stopped" in said
    # It has closed its output, and its process may still be on the way out.
    poll.until(lambda: has_ended(pid), f"the end of process {pid}")


def until_up(said: IO[str]) -> str:
    lines = []
    for line in said:
        lines.append(line)
        if "holdfast.cli.worker: worker " in line:
            return "".join(lines)
    raise AssertionError("".join(lines))


def has_ended(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state == "Z"
