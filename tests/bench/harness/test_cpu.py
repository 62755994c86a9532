"""CPU of made-up processes, and of this one."""

import os
import time
from pathlib import Path

import pytest

from bench.harness import cpu
from bench.harness.cpu import CpuReading, ProcessStat, descendants, per_task

PROCESSES = [
    ProcessStat(1, 0, 1, 0.0),
    ProcessStat(10, 1, 10, 0.5),
    ProcessStat(11, 10, 10, 0.0),
    ProcessStat(12, 11, 12, 0.25),
    ProcessStat(20, 1, 20, 0.0),
]


def write_stat(proc: Path, pid: int, *, parent: int, group: int, reaped: int) -> None:
    folder = proc / str(pid)
    folder.mkdir(parents=True)
    words = ["S", parent, group, *[0] * 8, 7, 7, reaped, 0, 20, 0]
    (folder / "stat").write_text(f"{pid} (a (b) c) {' '.join(map(str, words))}\n")


def test_a_tree_has_the_process_and_all_that_it_started() -> None:
    assert [one.pid for one in descendants(PROCESSES, [10])] == [10, 11, 12]
    assert [one.pid for one in descendants(PROCESSES, [10, 11, 20])] == [10, 11, 20, 12]
    assert descendants(PROCESSES, [99]) == []


def test_processes_are_listed_with_the_cpu_of_their_ended_children(tmp_path: Path) -> None:
    write_stat(tmp_path, 5, parent=1, group=4, reaped=3 * cpu.TICKS)
    (tmp_path / "6").mkdir()
    (tmp_path / "6" / "stat").write_text("half a li")
    assert cpu.list_processes(tmp_path) == [ProcessStat(5, 1, 4, 3.0)]


def test_a_group_counts_its_own_processes_only(tmp_path: Path) -> None:
    never = 1 << 22  # above every process id: its own clock does not exist
    write_stat(tmp_path, never, parent=1, group=4, reaped=2 * cpu.TICKS)
    write_stat(tmp_path, never + 1, parent=1, group=5, reaped=9 * cpu.TICKS)
    assert cpu.group_cpu_seconds([4], proc=tmp_path) == pytest.approx(2.0)
    assert cpu.tree_cpu_seconds([never + 1], proc=tmp_path) == pytest.approx(9.0)


def test_the_machine_is_busy_with_everything_but_idling(tmp_path: Path) -> None:
    ticks = [n * cpu.TICKS for n in (10, 1, 5, 1000, 1000, 2, 3, 4, 50)]
    (tmp_path / "stat").write_text(f"cpu  {' '.join(map(str, ticks))}\ncpu0 1 1\n")
    assert cpu.busy_cpu_seconds(tmp_path) == pytest.approx(10 + 1 + 5 + 2 + 3 + 4)


def test_where_the_system_tells_nothing_all_is_zero(tmp_path: Path) -> None:
    assert cpu.busy_cpu_seconds(tmp_path) == 0.0
    assert cpu.list_processes(tmp_path) == []
    assert cpu.process_cpu_seconds(1 << 22) == 0.0


@pytest.mark.skipif(
    not cpu.PROC.is_dir(), reason="CPU times are read from /proc, which only Linux has"
)
def test_the_clock_of_a_process_goes_on_while_it_works() -> None:
    before = cpu.process_cpu_seconds(os.getpid())
    assert sum(range(100_000))
    assert cpu.process_cpu_seconds(os.getpid()) > before > 0


def test_the_load_of_others_leaves_out_what_is_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    readings = iter([(100.0, 10.0), (108.0, 12.0)])  # busy and ours, first and last
    now = iter([1.0, 5.0])

    def others_seconds() -> float:
        busy, ours = next(readings)
        return busy - ours

    monkeypatch.setattr(cpu, "_others_seconds", others_seconds)
    monkeypatch.setattr(time, "monotonic", lambda: next(now))
    assert cpu.LoadMeter().busy_cores() == pytest.approx(1.5)


def test_cpu_is_divided_by_the_tasks_between_two_readings() -> None:
    first = CpuReading(client=1.0, server=2.0, tasks=1_000)
    last = CpuReading(client=1.5, server=2.25, tasks=11_000)
    assert per_task(first, last) == {
        "client_cpu": (50.0, "µs/task"),
        "server_cpu": (25.0, "µs/task"),
    }
    assert per_task(last, last) == {}


def test_a_store_without_a_server_has_no_cpu_of_one() -> None:
    first = CpuReading(client=0.0, server=0.0, tasks=0)
    last = CpuReading(client=1.0, server=0.0, tasks=10)
    assert per_task(first, last, unit="µs/stage") == {"client_cpu": (100_000.0, "µs/stage")}
