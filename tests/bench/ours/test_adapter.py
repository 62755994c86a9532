"""The protocol of the adapters, played by our own engine; and the board."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from bench.harness import engines, environments, processes
from bench.harness.bench import Bench, clear, new_board
from bench.harness.engines import MeasuredEngine
from bench.harness.processes import CaseFailed, ChildProcess
from bench.harness.trial_stores import TrialStore, TrialStores
from bench.questions import drain
from bench.questions.board_wait import wait_done
from bench.questions.drain import measure_drain

TASKS = 50


@pytest.fixture(scope="module")
def ours() -> MeasuredEngine:
    return engines.ours()


class PatientTrialStores(TrialStores):
    """Whoever stood still himself must not take it for the server's silence."""

    @contextmanager
    def open(self, store: str, *, apart: bool = False) -> Iterator[TrialStore]:
        with super().open(store, apart=apart) as trial:
            url = f"{trial.url}?timeout=60s" if trial.redis else trial.url
            yield msgspec.structs.replace(trial, url=url)


@pytest.fixture
def bench(ours: MeasuredEngine) -> Iterator[Bench]:
    with PatientTrialStores() as trial_stores:
        yield Bench(trial_stores, ours, runs=1, quick=True)


def test_a_board_counts_starts_and_ends_and_keeps_the_first_start() -> None:
    with new_board(3) as (path, board):
        board.mark(0)
        first = board.started_at(0)
        board.mark(0)
        board.start(2)

        assert (board.count_started(), board.count_done()) == (2, 1)
        assert list(board.dones()) == [2, 0, 0]
        assert board.started_at(0) == first
        assert board.started_at(1) is None
        assert board.span_seconds() > 0
        clear(path, 3)
        assert (board.count_started(), board.count_done()) == (0, 0)


def test_our_adapter_says_what_it_is_and_what_it_guarantees(ours: MeasuredEngine) -> None:
    assert ours.name == "holdfast"
    assert ours.stores == ("redis", "sqlite")
    assert "kill -9" in ours.settings["best"]
    assert {"drain", "submit", "latency", "stages", "recovery"} <= ours.can


def test_a_drain_on_sqlite_is_rated_and_verified(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    for limit in ("LIMIT_QUICK_SECONDS", "FIRST_START_SECONDS"):
        monkeypatch.setattr(drain, limit, 120.0)
    result = measure_drain(bench, bench.ours.on("sqlite"), tasks=TASKS, tenants=5)
    assert result.values["rate"][0] > 0
    assert not result.notes


@pytest.mark.parametrize("how", ["one", "many", "bulk"])
def test_submits_in_every_way_are_all_there(bench: Bench, how: str) -> None:
    who = bench.ours.on("sqlite")
    with bench.trial_stores.open("sqlite") as trial:
        bench.call(who, "prepare", trial)
        found = bench.call(who, "submit", trial, tasks=TASKS, how=how, callers=7)
        assert bench.call(who, "verify", trial)["by_status"] == {"PENDING": TASKS}
    assert found["seconds"] > 0
    assert found["cpu_seconds"] > 0


def test_latency_has_a_start_and_a_result_for_each_sample(bench: Bench) -> None:
    who = bench.ours.on("sqlite")
    with bench.trial_stores.open("sqlite") as trial, new_board(5) as (path, _):
        bench.call(who, "prepare", trial)
        with bench.working(who, trial, path, 5):
            found = bench.call(who, "latency", trial, board=path, size=5, samples=5)
    assert len(found["start_ms"]) == len(found["result_ms"]) == 5
    assert all(start > 0 for start in found["start_ms"])


def test_stages_run_to_their_end(bench: Bench) -> None:
    who = bench.ours.on("sqlite")
    with bench.trial_stores.open("sqlite") as trial:
        asked = {"workflows": 4, "stages": 3, "at_once": 2}
        assert bench.call(who, "stages", trial, **asked)["seconds"] > 0
        assert bench.call(who, "verify", trial)["by_status"] == {"COMPLETED": 4}


def test_a_call_that_takes_too_long_is_stopped_and_told() -> None:
    with pytest.raises(CaseFailed, match=r"not done within 0\.2 s, stopped"):
        processes.call([sys.executable, "-c", WAITS], seconds=0.2)


def test_a_call_that_fails_says_why() -> None:
    with pytest.raises(CaseFailed, match="exit code 3; it said: so it is"):
        processes.call([sys.executable, "-c", FAILS], seconds=120)


def test_a_worker_that_ends_by_itself_is_noticed() -> None:
    with new_board(1) as (_, board), ChildProcess([sys.executable, "-c", FAILS]) as process:
        process.wait(120)
        with pytest.raises(CaseFailed, match="a worker ended by itself; it said: so it is"):
            wait_done(board, [process], seconds=120)


def test_a_report_names_no_folder_and_no_host() -> None:
    said = 'File "/usr/lib/python3/site-packages/saq/queue.py", see https://example.org/simple/x'
    assert processes.without_places(said) == 'File "…/queue.py", see …'


def test_a_report_names_no_host_of_a_package_index() -> None:
    said = "HTTPConnectionPool(host='packages.example.org', port=80): no route"
    assert processes.without_places(said) == "HTTPConnectionPool(host=…, port=80): no route"


def test_an_environment_is_made_once_and_again_when_its_requirements_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[list[str]] = []

    def run(command: list[str]) -> None:
        commands.append(command)
        (tmp_path / "made" / "some").mkdir(parents=True, exist_ok=True)

    monkeypatch.setattr(environments, "PEERS", tmp_path)
    monkeypatch.setattr(environments, "ENVIRONMENTS", tmp_path / "made")
    monkeypatch.setattr(environments, "_run", run)
    wanted = tmp_path / "some" / "requirements.txt"
    wanted.parent.mkdir()
    made = []
    for text in ("a==1", "a==1", "a==2"):
        wanted.write_text(text)
        assert environments.python_for("some") == tmp_path / "made" / "some" / "bin" / "python"
        made.append(len(commands))
    assert made == [2, 2, 4]
    assert "--without-pip" in commands[0]
    assert "--require-hashes" in commands[1]


WAITS = "import signal; signal.pause()"
FAILS = "import sys; sys.exit(print('so it is', file=sys.stderr) or 3)"
