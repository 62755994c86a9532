"""The load that partitions share: `python -m bench.questions.capacity`.

A namespace with one partition and one with two are drained in turn, each on a Cluster of three
masters with two worker processes. What the busiest node uses for a task, from its submit to its
end, bounds the load; the page about capacity compares both (`bench/report/capacity.py`). The rate
is of this machine, whose cores the nodes and the workers share.
"""

from __future__ import annotations

from functools import partial

import msgspec

from bench.harness.bench import Bench, Case, CaseResult
from bench.harness.command import ask_alone
from bench.harness.cpu import process_cpu_seconds
from bench.harness.plan import Part
from bench.questions.drain import FEW, drain_trial
from bench.report.figures import BUSIEST_NODE, NODES

NAME = "capacity"
STORE = "redis"
PARTITIONS = (1, 2)
WORKERS = 2
RUNS = {True: 1, False: 5}  # quick or not


def parts(bench: Bench) -> list[Part]:
    one, two = (_case(bench, partitions) for partitions in PARTITIONS)
    cases = [msgspec.structs.replace(two, beside=one)]
    return [Part(question=NAME, what="one partition and two", cases=cases)]


def _case(bench: Bench, partitions: int) -> Case:
    return Case(
        question=NAME,
        who=bench.ours.on(STORE),
        case={"tasks": FEW, "workers": WORKERS, "partitions": partitions},
        run=partial(measure_partitions, bench, partitions),
        runs=RUNS[bench.quick],
        about=9.0,
    )


def measure_partitions(bench: Bench, partitions: int, *, tasks: int = FEW) -> CaseResult:
    with bench.trial_stores.open_cluster(partitions) as trial:
        before = [process_cpu_seconds(pid) for pid in trial.servers]
        found = drain_trial(bench, bench.ours.on(STORE), trial, tasks=tasks, workers=WORKERS)
        after = [process_cpu_seconds(pid) for pid in trial.servers]
    used = [1e6 * (b - a) / tasks for a, b in zip(before, after, strict=True)]
    nodes = {NODES: (sum(used), "µs/task"), BUSIEST_NODE: (max(used), "µs/task")}
    return msgspec.structs.replace(found, values=found.values | nodes)


if __name__ == "__main__":
    ask_alone(NAME)
