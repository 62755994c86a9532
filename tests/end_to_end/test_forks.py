"""Stages that fork, and stages that end what they run in: in a worker process, as people run it."""

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from tests.end_to_end.test_two_workers import BOUND_SECONDS, Terminal
from tests.support.programs import run_python
from verify.servers import RedisServer, until

APP = '''
import asyncio
import concurrent.futures
import multiprocessing
import os
import sys
import threading

from holdfast import Context, Holdfast, Retry

app = Holdfast()


def note(name: str) -> None:
    with open(name, "a") as log:
        log.write(f"{os.getpid()}\\n")


def fork(ctx: Context) -> int:
    """Both come back; the parent once its child has ended."""
    pid = os.fork()
    if pid == 0:
        note("children")
        return 0
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@app.task("plain")
def plain(ctx: Context) -> int:
    return fork(ctx)


@app.task("plain.raises")
def plain_raises(ctx: Context) -> int:
    code = fork(ctx)
    if threading.main_thread() is threading.current_thread():  # the child
        sys.exit(7)
    return code


@app.task("async")
async def returns(ctx: Context) -> int:
    return fork(ctx)


@app.task("async.awaits")
async def awaits(ctx: Context) -> int:
    code = fork(ctx)
    woken = asyncio.Event()
    asyncio.get_running_loop().call_soon(woken.set)
    await woken.wait()
    return code


@app.task("async.inner")
async def inner(ctx: Context) -> int:
    async def one() -> int:
        return fork(ctx)

    return await asyncio.create_task(one())


@app.task("async.pool")
async def pool(ctx: Context) -> int:
    return await asyncio.to_thread(fork, ctx)


def double(number: int) -> int:
    return 2 * number


@app.task("multi")
def multi(ctx: Context) -> int:
    context = multiprocessing.get_context("fork")
    with concurrent.futures.ProcessPoolExecutor(2, mp_context=context) as pool:
        return sum(pool.map(double, range(4)))


class Own(BaseException):
    pass


@app.task("exits.inside", retry=Retry(max=1))
async def exits_inside(ctx: Context) -> None:
    async def leave() -> None:
        raise SystemExit(3)

    await asyncio.create_task(leave())


@app.task("interrupts", retry=Retry(max=1))
async def interrupts(ctx: Context) -> None:
    raise KeyboardInterrupt
'''
SUBMIT = """
import sys, forking
with forking.app.blocking as app:
    for name in sys.argv[1:]:
        print(app.submit(getattr(forking, name)).id)
"""


@pytest.fixture(params=["sqlite", "redis"])
def terminal(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Terminal]:
    (tmp_path / "forking.py").write_text(APP)
    with ExitStack() as opened:
        if request.param == "redis":
            yield Terminal(tmp_path, opened.enter_context(RedisServer(appendonly=True)).url, opened)
        else:
            yield Terminal(tmp_path, "sqlite:///holdfast.db", opened)


def settled(terminal: Terminal, ids: list[str]) -> dict[str, str]:
    """What became of them, by the name of their type."""
    listed = terminal.json("tasks", "list")["tasks"]
    found = {one["type"]: one["status"] for one in listed if one["taskId"] in ids}
    done = {"COMPLETED", "FAILED"}
    return found if len(found) == len(ids) and set(found.values()) <= done else {}


def run(terminal: Terminal, *names: str) -> dict[str, str]:
    worker = terminal.worker("forking:app")
    ids = terminal.python("-c", SUBMIT, *names).split()
    until(lambda: settled(terminal, ids), "they have settled", seconds=BOUND_SECONDS)
    assert worker.poll() is None, "the worker lives"
    children = terminal.folder / "children"
    for pid in children.read_text().split() if children.exists() else ():
        until(partial(has_ended, int(pid)), "no clone is left", seconds=BOUND_SECONDS)
    found = settled(terminal, ids)
    assert terminal.json("doctor")["clean"]
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(BOUND_SECONDS) == 0
    return found


def has_ended(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_a_stage_that_forks_leaves_no_clone_of_the_worker(terminal: Terminal) -> None:
    names = ("plain", "plain_raises", "returns", "awaits", "inner", "pool", "multi")
    found = run(terminal, *names)
    assert found == dict.fromkeys(found, "COMPLETED")
    assert len(found) == len(names)
    assert len((terminal.folder / "children").read_text().split()) == 6, "each forked once"


@pytest.mark.parametrize("terminal", ["sqlite"], indirect=True)
def test_an_exit_in_a_task_of_the_stages_own_fails_the_stage_and_not_the_worker(
    terminal: Terminal,
) -> None:
    found = run(terminal, "exits_inside", "interrupts", "plain")
    assert found == {"exits.inside": "FAILED", "interrupts": "FAILED", "plain": "COMPLETED"}


INTERRUPTED = """
import asyncio, os, signal, sys
from holdfast import Context, Holdfast

app = Holdfast()


def spin(ctx: Context) -> None:
    open("began", "w").close()
    if sys.argv[1] == "second":  # the first cancels what asyncio.run runs
        signal.raise_signal(signal.SIGINT)
    signal.raise_signal(signal.SIGINT)
    for _ in range(10**6):  # it comes at once
        pass


@app.task("spin")
async def stage(ctx: Context) -> str:
    if os.path.exists("began"):
        return "done"
    spin(ctx)
    return "not reached"


async def main() -> None:
    async with app.running():
        handle = await stage.submit(key="one")
        print(await handle.result())


if sys.argv[1] == "second":
    asyncio.run(main())
else:  # as in a notebook: the interrupt is raised where the code is
    loop = asyncio.new_event_loop()
    work = loop.create_task(main())
    try:
        loop.run_until_complete(work)
    except KeyboardInterrupt:
        work.cancel()
        try:
            loop.run_until_complete(work)
        except asyncio.CancelledError:
            print("was interrupted", file=sys.stderr)
        sys.exit(130)
"""


# The second Ctrl-C under asyncio.run leaves no time to give anything back: that lease has to lapse.
@pytest.mark.parametrize(("how", "lease"), [("second", "1s"), ("raised", "10m")])
def test_ctrl_c_in_a_stage_ends_the_program_and_is_no_failure(
    tmp_path: Path, how: str, lease: str
) -> None:
    (tmp_path / "program.py").write_text(INTERRUPTED)
    done = run_python(tmp_path, "program.py", how, HOLDFAST_LEASE=lease)
    assert done.returncode not in (0, 1), done.stdout + done.stderr
    assert not done.stdout
    again = run_python(tmp_path, "program.py", how, HOLDFAST_LEASE=lease)
    assert again.stdout.strip() == "done"
