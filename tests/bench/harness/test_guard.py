"""The guard goes red when a task becomes dearer, and only then."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from bench.harness import guard
from bench.harness.guard_cases import NAMES

RATE, CALLS, CLIENT = "drain_redis:rate", "drain_redis:calls", "drain_redis:client_cpu"
GOOD = {RATE: 0.6, CALLS: 100.0, CLIENT: 8.0}


@pytest.fixture
def baseline(tmp_path: Path) -> Path:
    path = tmp_path / "baseline.json"
    path.write_text(json.dumps({"values": GOOD}))
    return path


class Tries:
    """Values that come, try after try."""

    def __init__(self, *tries: dict[str, float], disturbed: Sequence[str] = ()) -> None:
        self._tries, self._disturbed = list(tries), frozenset(disturbed)
        self.asked: list[list[str]] = []

    def __call__(self, names: Sequence[str]) -> guard.Measured:
        self.asked.append(list(names))
        values = self._tries.pop(0) if len(self._tries) > 1 else self._tries[0]
        return guard.Measured(values=values, disturbed=self._disturbed)


def test_a_slow_down_is_a_regression(baseline: Path, capsys: pytest.CaptureFixture[str]) -> None:
    slower = Tries(GOOD | {RATE: 0.3})

    assert guard.judge(slower, baseline) == 1
    said = capsys.readouterr().out
    assert "| drain_redis:rate | 0.600 | at least 0.420 | 0.300 | REGRESSION |" in said
    assert "| drain_redis:calls | 100.000 | at most 103.000 | 100.000 | ok |" in said
    assert slower.asked[1:] == [[RATE]] * (guard.TRIES - 1)


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        (CALLS, 102.9, 0),
        (CALLS, 103.1, 1),
        (CLIENT, 8.7, 0),
        (CLIENT, 8.9, 1),
        (RATE, 0.43, 0),
        (RATE, 0.41, 1),
    ],
)
def test_each_kind_of_value_has_its_tolerance(
    baseline: Path, name: str, value: float, code: int
) -> None:
    assert guard.judge(Tries(GOOD | {name: value}), baseline) == code


def test_a_single_slow_try_is_forgiven(baseline: Path) -> None:
    assert guard.judge(Tries(GOOD | {RATE: 0.1}, {RATE: 0.6}), baseline) == 0


def test_a_better_value_is_no_regression(baseline: Path) -> None:
    measure = Tries({RATE: 0.9, CALLS: 50.0, CLIENT: 4.0})
    assert guard.judge(measure, baseline) == 0
    assert len(measure.asked) == 1


def test_what_cannot_be_measured_is_no_pass(baseline: Path) -> None:
    assert guard.judge(Tries({RATE: 0.6, CALLS: 100.0}), baseline) == 2


def test_on_a_busy_machine_the_rate_is_not_judged_but_cpu_is(baseline: Path) -> None:
    slow = GOOD | {RATE: 0.1}
    assert guard.judge(Tries(slow, disturbed=[RATE]), baseline) == 0
    assert guard.judge(Tries(slow | {CLIENT: 20.0}, disturbed=[RATE]), baseline) == 1


def test_the_tolerance_is_the_one_that_was_written(baseline: Path) -> None:
    said = json.loads(baseline.read_text())
    strict = guard.TOLERANCES | {guard.RATES: 0.05}
    baseline.write_text(json.dumps(said | {"tolerances": strict}))
    assert guard.judge(Tries(GOOD | {RATE: 0.5}), baseline) == 1


def test_the_best_of_two_tries_is_the_highest_rate_and_the_lowest_cost() -> None:
    one = guard.Measured(values={RATE: 0.5, CALLS: 90.0}, disturbed=frozenset([RATE]))
    other = guard.Measured(values={RATE: 0.4, CALLS: 95.0})
    assert guard.best_of(one, other) == guard.Measured(values={RATE: 0.5, CALLS: 90.0})


def test_without_a_baseline_nothing_is_judged(tmp_path: Path) -> None:
    assert guard.judge(Tries({}), tmp_path / "none.json") == 2


def test_half_a_baseline_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "baseline.json"
    assert guard.write(Tries({RATE: 0.6}), path) == 2
    assert not path.exists()


def test_a_baseline_that_was_just_written_is_met(tmp_path: Path) -> None:
    path = tmp_path / "new" / "baseline.json"
    measure = Tries(dict.fromkeys(NAMES, 0.5))
    assert guard.write(measure, path) == 0
    assert guard.judge(measure, path) == 0


def test_the_baseline_in_the_tree_has_every_value() -> None:
    said = json.loads(guard.BASELINE.read_text())
    assert list(said["values"]) == NAMES
    assert said["tolerances"] == guard.TOLERANCES
