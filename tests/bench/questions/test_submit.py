"""The question about submits: the amounts that follow from the rates."""

from typing import Any

import pytest

from bench.harness import engines
from bench.harness.bench import Bench
from bench.harness.trial_stores import TrialStores
from bench.questions import submit
from bench.questions.submit import Submitted
from bench.report.figures import Who

OURS = Who(engine="holdfast", store="redis")
CPU = {"client_cpu": (5.0, "µs/task"), "server_cpu": (7.0, "µs/task")}
RATES = {"one": 2_000.0, "many": 10_000.0, "bulk": 20_000.0}


@pytest.fixture
def amounts_asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    found: list[tuple[str, int]] = []

    def answer(_: Bench, __: Who, how: str, tasks: int) -> Submitted:
        found.append((how, tasks))
        return Submitted(RATES[how], CPU)

    monkeypatch.setattr(submit, "_submit", answer)
    return found


@pytest.fixture
def bench() -> Any:
    return Bench(TrialStores(), engines.ours(), runs=1)


def test_each_way_has_its_rate_and_the_cpu_beside_it(
    bench: Bench, amounts_asked: list[tuple[str, int]]
) -> None:
    values = submit.measure_submits(bench, OURS).values
    assert {how: values[how][0] for how in RATES} == RATES
    assert values["many_server_cpu"] == (7.0, "µs/task")
    assert amounts_asked[:2] == [("one", submit.PROBED), ("one", 1_400)]


def test_a_way_that_was_quicker_than_thought_submits_more(
    bench: Bench, amounts_asked: list[tuple[str, int]]
) -> None:
    submit.measure_submits(bench, OURS)
    assert [amount for how, amount in amounts_asked if how == "many"] == [1_400, 7_000]


def test_bulk_alone_has_its_rate_and_cpu(
    bench: Bench, amounts_asked: list[tuple[str, int]]
) -> None:
    values = submit.measure_bulk(bench, OURS, tasks=20_000).values
    assert values == {"rate": (20_000.0, "tasks/s"), **CPU}
    assert amounts_asked == [("bulk", 20_000)]
