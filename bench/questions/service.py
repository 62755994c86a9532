"""The load that the service bears: `python -m bench.questions.service`.

`holdfast serve --no-workers` on Redis, and in another process callers who post tasks at a fixed
rate, whatever becomes of them (`service_load.py`). Each case has a service and a server of its own;
in the end the store must have every task that was accepted. The highest rates are more than the
service can bear, so that what is reached shows its capacity and not the offer. CPU is what the
process of the service used for a request, the server's own work on it stands beside.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from bench.harness import processes
from bench.harness.bench import Bench, Case, CaseResult
from bench.harness.command import ask_alone
from bench.harness.cpu import process_cpu_seconds
from bench.harness.loop import run
from bench.harness.paths import PYTHON
from bench.harness.plan import Part
from bench.harness.processes import CaseFailed, ChildProcess
from bench.harness.trial_stores import TrialStore
from bench.questions.service_load import LoadTimes, ServiceLoad
from holdfast import Holdfast
from holdfast.server.auth import tokens as tk
from verify.servers.poll import NotInTime, until

NAME = "service"
STORE = "redis"
APP = "bench.questions.service_app:app"
SECONDS = {True: 5.0, False: 20.0}  # quick or not
FULL_RATE = 3_000  # what is offered beyond it in a second may take two to be answered
GOAL_RATE = 2_000  # requests a second
RATES = (500, 1_000, GOAL_RATE, 3_500, 5_000, 6_500)  # up to more than it can bear
WITH_WORKER = (500, 1_000)
BATCH, BATCH_RATES = 100, (20, 50)
CONNECTIONS = 64
WARM = {"rate": 200.0, "seconds": 1.0}  # before what is measured
NO_LIMIT = 1e9  # requests a second of the token
READY_SECONDS = 120.0


class LoadCase(msgspec.Struct, frozen=True, kw_only=True):
    rate: int  # requests a second
    batch: int = 1  # tasks in a request
    workers: int = 0  # processes that do the tasks meanwhile

    def case(self) -> dict[str, int | str]:
        return {"rate": self.rate, "batch": self.batch, "workers": self.workers}


def parts(bench: Bench) -> list[Part]:
    goal = LoadCase(rate=GOAL_RATE)
    others = [LoadCase(rate=rate) for rate in RATES if rate != GOAL_RATE]
    others += [LoadCase(rate=rate, batch=BATCH) for rate in BATCH_RATES]
    others += [LoadCase(rate=rate, workers=1) for rate in WITH_WORKER]
    return [
        Part(question=NAME, what="goal", cases=[_case(bench, goal, None)]),
        Part(question=NAME, what="rest", cases=[_case(bench, one, 1) for one in others]),
    ]


def _case(bench: Bench, asked: LoadCase, runs: int | None) -> Case:
    seconds = SECONDS[bench.quick] / (2 if asked.rate > FULL_RATE else 1)
    return Case(
        question=NAME,
        who=bench.ours.on(STORE),
        case=asked.case(),
        run=partial(_measure_case, bench, asked, seconds),
        runs=runs,
        main=("p99", "ms"),
        about=seconds + 5.0,
    )


def _measure_case(bench: Bench, asked: LoadCase, seconds: float) -> CaseResult:
    with bench.trial_stores.open(STORE) as trial:
        return measure_service(trial, asked, seconds)


def measure_service(
    trial: TrialStore, asked: LoadCase, seconds: float, connections: int = CONNECTIONS
) -> CaseResult:
    with serving(trial, workers=asked.workers) as service:
        load = ServiceLoad(
            url=service.url,
            token=service.token,
            rate=asked.rate,
            seconds=seconds,
            connections=min(connections, asked.rate),
            batch=asked.batch,
        )
        warm = run_load(msgspec.structs.replace(load, **WARM))
        before = service.cpu_seconds(), trial.server_cpu_seconds()
        felt = run_load(load)
        after = service.cpu_seconds(), trial.server_cpu_seconds()
    kept = run(count(trial.url))
    accepted = (warm.accepted + felt.accepted) * asked.batch
    if kept != accepted:
        raise CaseFailed(f"{accepted} tasks were accepted, and the store has {kept}")
    own, servers = (1e6 * (b - a) / felt.asked for a, b in zip(before, after, strict=True))
    return CaseResult(values=_values(felt) | {"cpu": (own, "µs"), "redis_cpu": (servers, "µs")})


def _values(felt: LoadTimes) -> dict[str, tuple[float, str]]:
    return {
        "reached": (felt.asked / felt.took_seconds, "requests/s"),
        "p50": (felt.p50_ms, "ms"),
        "p99": (felt.p99_ms, "ms"),
        "max": (felt.max_ms, "ms"),
        "refused": (felt.asked - felt.accepted, "requests"),
    }


def run_load(load: ServiceLoad) -> LoadTimes:
    words = [str(PYTHON), "-m", "bench.questions.service_load"]
    words += [msgspec.json.encode(load).decode()]
    return msgspec.convert(processes.call(words, seconds=2 * load.seconds + 60.0), LoadTimes)


async def count(url: str) -> int:
    """Return the number of tasks in the store, in whatever status."""
    async with Holdfast(url) as app:
        return sum((await app.store.views.stats()).by_status.values())


# -- the service


class Serving(msgspec.Struct, frozen=True, kw_only=True):
    process: Any
    url: str
    token: str

    def cpu_seconds(self) -> float:
        return process_cpu_seconds(self.process.pid)


@contextmanager
def serving(trial: TrialStore, *, workers: int = 0) -> Iterator[Serving]:
    """Run the service as people start it, with its workers in a process of their own."""
    with TemporaryDirectory(prefix="holdfast-bench-") as folder:
        path = Path(folder) / "tokens.json"
        token, text = tk.make("bench", tk.Role.ADMIN, rate=NO_LIMIT)
        tk.write(path, [token])
        extra = {
            "HOLDFAST_STORE": trial.url,
            "HOLDFAST_TOKENS": str(path),
            "HOLDFAST_LOG": "json",
            "HOLDFAST_STOP_DELAY": "0",
        }
        command = [str(PYTHON), "-m", "holdfast", "serve", APP, "--no-workers", "--port", "0"]
        if workers:
            command += ["--processes", str(workers)]
        with ChildProcess(command, extra=extra) as process:
            try:
                url = until(lambda: _address(process), "the service listens", seconds=READY_SECONDS)
            except NotInTime as error:
                raise CaseFailed(f"{error}; {process.complaint()}") from error
            yield Serving(process=process, url=url, token=text)
            process.stop()


def _address(process: ChildProcess) -> str:
    if not process.alive:
        raise CaseFailed(f"the service ended by itself; {process.complaint()}")
    try:
        return str(process.answer()["url"])
    except CaseFailed:
        return ""  # not yet


if __name__ == "__main__":
    ask_alone(NAME)
