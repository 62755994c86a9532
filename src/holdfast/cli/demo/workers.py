"""The demo's workers are processes of `holdfast worker`."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.domain.task.task import Task

COMMAND = (sys.executable, "-m", "holdfast", "worker", "holdfast.cli.demo.tasks:app")
END_SECONDS = 60.0


@dataclass(slots=True)
class WorkerProcess:
    letter: str
    process: subprocess.Popen[bytes]
    killed: bool = False

    @property
    def pid(self) -> int:
        return self.process.pid

    def is_owner(self, name: str) -> bool:
        return f"-{self.pid}-" in name

    def holds(self, tasks: Sequence[Task]) -> list[Task]:
        return [task for task in tasks if task.lease and self.is_owner(task.lease.owner)]


def wait_or_kill(process: subprocess.Popen[Any]) -> None:
    """Wait for a process that was asked to end, and kill it if it takes too long."""
    try:
        process.communicate(timeout=END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()


class WorkerProcesses:
    """Holds all worker processes of the demo; leaving the block ends the living ones."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self._folder = folder
        self._environment = environment
        self.all: list[WorkerProcess] = []

    def __enter__(self) -> WorkerProcesses:
        return self

    def __exit__(self, *_: object) -> None:
        living = [worker for worker in self.all if worker.process.poll() is None]
        for worker in living:
            worker.process.send_signal(signal.SIGTERM)
            self.thaw(worker)
        for worker in living:
            wait_or_kill(worker.process)

    def start(self) -> WorkerProcess:
        letter = chr(ord("A") + len(self.all))
        with (self._folder / f"worker-{letter}.log").open("wb") as log:
            process = subprocess.Popen(
                COMMAND,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for the demo, which then ends its workers
            )
        worker = WorkerProcess(letter, process)
        self.all.append(worker)
        return worker

    def freeze(self, worker: WorkerProcess) -> None:
        """Stop the process, so that it keeps its tasks until it is killed or thawed."""
        worker.process.send_signal(signal.SIGSTOP)

    def thaw(self, worker: WorkerProcess) -> None:
        worker.process.send_signal(signal.SIGCONT)

    def kill(self, worker: WorkerProcess) -> None:
        """Kill the process with kill -9: it cleans nothing up and tells the store nothing."""
        worker.process.kill()
        worker.process.wait()
        worker.killed = True

    @property
    def died(self) -> list[WorkerProcess]:
        """Return the workers that ended without being killed."""
        return [w for w in self.all if not w.killed and w.process.poll() is not None]
