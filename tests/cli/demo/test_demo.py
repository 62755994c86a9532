"""The demo, made short; and its judge, who must not believe everything."""

import asyncio
import os
import pty
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import pytest

from holdfast.cli.demo.checks import DemoCheck, StoryRecord, exit_code, judge
from holdfast.cli.demo.story import describe_take_over
from holdfast.cli.demo.tour import offer
from holdfast.clock import SystemClock
from holdfast.domain.task import events as ev
from holdfast.domain.task.state import Status
from holdfast.engine.store_url import store_from_url
from holdfast.ports import Detail, Filter, Finding
from verify.servers.poll import until

RUN = "from pathlib import Path; from holdfast.cli.demo.story import run; import sys; "
# A background shell hands down that interrupts are ignored; at a terminal they are not.
INTERRUPTIBLE = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
OFFER = (
    "import os, sys; from pathlib import Path; from holdfast.cli.demo.tour import offer\n"
    "offer(Path(sys.argv[1]), os.environ, print)"
)
SHORT = RUN + "sys.exit(run(tenants=24, speed=2, folder=Path(sys.argv[1])))"


@dataclass(frozen=True)
class Ran:
    code: int
    output: str
    told: StoryRecord
    details: tuple[Detail, ...]

    def checks(self) -> list[DemoCheck]:
        return judge(self.told, self.details, [])


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    folder = tmp_path_factory.mktemp("demo")
    done = subprocess.run(
        [sys.executable, "-c", SHORT, str(folder)],
        stdin=subprocess.DEVNULL,  # nobody is there to answer
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
        env={**os.environ, "PYTHONUTF8": "1"},
    )
    details = asyncio.run(stored(folder))
    return Ran(done.returncode, done.stdout + done.stderr, told_by(details), details)


async def stored(folder: Path) -> tuple[Detail, ...]:
    store = store_from_url(f"sqlite:///{folder}/demo.db", SystemClock(), "executor")
    await store.open()
    try:
        page = await store.views.find(Filter(), limit=200)
        found = [await store.views.detail(task.id) for task in page.tasks]
    finally:
        await store.close()
    return tuple(detail for detail in found if detail is not None)


def told_by(details: Sequence[Detail]) -> StoryRecord:
    lost = list(events_of(details, ev.LeaseLost))
    return StoryRecord(
        submitted=[detail.task.id for detail in details],
        killed=[event.worker for event in lost if isinstance(event, ev.LeaseLost)],
        in_hand=[event.task_id for event in lost],
        resumed=[event.task_id for event in events_of(details, ev.TaskRetried)],
        rolled_back=[event.task_id for event in events_of(details, ev.TaskRolledBackEvent)],
    )


def events_of(details: Sequence[Detail], kind: type[ev.Event]) -> Iterator[ev.Event]:
    return (event for detail in details for event in detail.events if isinstance(event, kind))


def test_the_demo_ends_well_and_says_so_in_plain_lines(ran: Ran) -> None:
    assert ran.code == 0, ran.output
    for line in (
        "kill -9",
        "continues from its checkpoint",
        "billing answers again",
        "holdfast suspended resume",
        "holdfast tasks rollback",
        "24 (23 completed, 1 rolled back)",
        "tasks list",
        "A service with two worker processes runs at\n  http://127.0.0.1:",
        '/api/workflows/apply: 200, "hello, world, at attempt 1"',
        "The service has ended.",
    ):
        assert line in ran.output
    assert "\x1b[" not in ran.output


@pytest.mark.parametrize(
    ("last_completed", "said"),
    [
        (-1, "starts again, because it had no checkpoint yet: stage 1, copy"),
        (0, "continues from its checkpoint: stage 2, check"),
        (1, "continues from its checkpoint: stage 2, check"),
    ],
)
def test_a_task_goes_on_at_a_checkpoint_only_where_it_has_one(
    last_completed: int, said: str
) -> None:
    assert describe_take_over(("copy", "check"), last_completed) == said


def test_the_judge_agrees_with_the_store_that_the_demo_left(ran: Ran) -> None:
    assert all(check.good for check in ran.checks()), ran.checks()


# -- tampering: each makes one thing untrue

Tamper = Callable[[Ran], Ran]


def changed(ran: Ran, status: Status, change: Callable[[Detail], Detail]) -> Ran:
    """The first task of that status is not what it was."""
    target = next(detail for detail in ran.details if detail.task.status is status)
    return replace(ran, details=tuple(change(d) if d is target else d for d in ran.details))


def with_events(detail: Detail, events: Sequence[ev.Event]) -> Detail:
    return msgspec.structs.replace(detail, events=tuple(events))


def a_commit_told_twice(ran: Ran) -> Ran:
    def twice(detail: Detail) -> Detail:
        commit = next(event for event in detail.events if isinstance(event, ev.StageCompleted))
        return with_events(detail, [*detail.events, commit])

    return changed(ran, Status.COMPLETED, twice)


def a_task_gone(ran: Ran) -> Ran:
    return replace(ran, details=ran.details[1:])


def a_task_not_settled(ran: Ran) -> Ran:
    def stuck(detail: Detail) -> Detail:
        task = msgspec.structs.replace(detail.task, status=Status.RUNNING)
        return msgspec.structs.replace(detail, task=task)

    return changed(ran, Status.COMPLETED, stuck)


def an_undo_out_of_order(ran: Ran) -> Ran:
    return changed(ran, Status.ROLLED_BACK, lambda detail: with_events(detail, detail.events[::-1]))


def a_version_missing(ran: Ran) -> Ran:
    return changed(ran, Status.COMPLETED, lambda d: with_events(d, d.events[1:]))


def nobody_killed(ran: Ran) -> Ran:
    return replace(ran, told=replace(ran.told, killed=[]))


def one_not_taken_over(ran: Ran) -> Ran:
    other = next(task_id for task_id in ran.told.submitted if task_id not in ran.told.in_hand)
    return replace(ran, told=replace(ran.told, in_hand=[*ran.told.in_hand, other]))


@pytest.mark.parametrize(
    ("tamper", "noticed"),
    [
        (a_commit_told_twice, "stages committed twice"),
        (a_task_gone, "tasks lost"),
        (a_task_not_settled, "tasks settled"),
        (an_undo_out_of_order, "rolled back, last stage first"),
        (a_version_missing, "tasks whose events have no gap"),
        (nobody_killed, "take-overs after kill -9"),
        (one_not_taken_over, "take-overs after kill -9"),
    ],
)
def test_the_judge_sees_what_was_tampered_with(ran: Ran, tamper: Tamper, noticed: str) -> None:
    checks = tamper(ran).checks()
    assert noticed in [check.what for check in checks if not check.good]
    assert exit_code(checks) == 1


def test_what_the_doctor_finds_makes_the_demo_fail(ran: Ran) -> None:
    finding = Finding(invariant="I1", task_id=None, message="is nowhere", mended=False)
    assert exit_code(judge(ran.told, ran.details, [finding])) == 1


def test_on_a_terminal_the_service_runs_until_enter(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    offering = subprocess.Popen(
        [sys.executable, "-u", "-c", OFFER, str(tmp_path)],
        stdin=theirs,
        stdout=subprocess.PIPE,
        text=True,
    )
    os.close(theirs)
    assert offering.stdout is not None
    said = "".join(iter(offering.stdout.readline, "Press Enter to end the service.\n"))
    url = next(line for line in said.splitlines() if line.startswith("URL=")).removeprefix("URL=")
    with urllib.request.urlopen(f"{url}/livez") as answer:
        assert answer.status == 200
    os.write(ours, b"\n")
    rest, _ = offering.communicate(timeout=120)
    os.close(ours)
    assert rest == "The service has ended.\n"
    assert offering.returncode == 0
    assert "hello to itself" not in said
    assert "the service has stopped" in (tmp_path / "service.log").read_text()


def test_the_service_does_not_outlive_a_demo_that_is_killed(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    offering = subprocess.Popen(
        [sys.executable, "-u", "-c", OFFER, str(tmp_path)],
        stdin=theirs,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert offering.stdout is not None
    for line in offering.stdout:
        if line.startswith("Press Enter"):
            break
    offering.kill()
    offering.communicate()
    for opened in (ours, theirs):
        os.close(opened)
    log = tmp_path / "service.log"
    until(lambda: "the service has stopped" in log.read_text(), "it ends", seconds=120)


def test_an_interrupt_ends_the_workers_too(tmp_path: Path) -> None:
    demo = subprocess.Popen(
        [sys.executable, "-u", "-c", INTERRUPTIBLE + SHORT, str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert demo.stdout is not None
    starts = (line for line in demo.stdout if "starts, pid" in line)
    pids = [int(next(starts).split()[-1]) for _ in range(2)]
    demo.send_signal(signal.SIGINT)
    rest, _ = demo.communicate(timeout=180)
    assert demo.returncode == 130, rest
    assert "All workers have ended" in rest
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_without_the_extra_the_demo_ends_by_saying_how_to_get_the_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.cli.extras.OF_SERVER", ("no_such_package",))
    said = list[str]()
    offer(tmp_path, {}, said.append)
    assert said == ["To try the service, too: pip install 'holdfast-engine[server]'"]
