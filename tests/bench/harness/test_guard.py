"""The guard goes red when a ratio falls, and only then."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from bench.harness import guard
from bench.harness.bare_sqlite import group_transactions
from bench.questions.floor import written_in


@pytest.fixture
def baseline(tmp_path: Path) -> Path:
    path = tmp_path / "baseline.json"
    ratios = {"drain_redis_vs_floor": 0.6, "submit_a": 0.5}
    path.write_text(json.dumps({"ratios": ratios, "written": {"submit_a:rows": 2.0}}))
    return path


class Measured:
    """Ratios that come, try after try."""

    def __init__(self, *tries: dict[str, float], **written: float) -> None:
        self._tries, self._written = (
            list(tries),
            {"submit_a:rows": written.get("rows", 2.0)},
        )
        self.asked: list[list[str]] = []

    def __call__(self, names: Sequence[str]) -> guard.Measured:
        self.asked.append(list(names))
        ratios = self._tries.pop(0) if len(self._tries) > 1 else self._tries[0]
        return guard.Measured(ratios=ratios, written=self._written)


def test_a_slow_down_is_a_regression(baseline: Path, capsys: pytest.CaptureFixture[str]) -> None:
    slower = Measured({"drain_redis_vs_floor": 0.6 / 2, "submit_a": 0.5})

    assert guard.judge(slower, baseline) == 1
    said = capsys.readouterr().out
    assert "| drain_redis_vs_floor | 0.600 | at least 0.420 | 0.300 | REGRESSION |" in said
    assert "| submit_a | 0.500 | at least 0.350 | 0.500 | ok |" in said
    assert slower.asked[1:] == [["drain_redis_vs_floor"]] * (guard.TRIES - 1)


def test_within_the_tolerance_all_is_well(baseline: Path) -> None:
    measure = Measured({"drain_redis_vs_floor": 0.45, "submit_a": 0.9})
    assert guard.judge(measure, baseline) == 0
    assert len(measure.asked) == 1


def test_a_single_slow_try_is_forgiven(baseline: Path) -> None:
    tries = Measured({"drain_redis_vs_floor": 0.1, "submit_a": 0.5}, {"drain_redis_vs_floor": 0.6})
    assert guard.judge(tries, baseline) == 0


def test_what_cannot_be_measured_is_no_pass(baseline: Path) -> None:
    assert guard.judge(Measured({"submit_a": 0.5}), baseline) == 2


def test_a_little_more_that_is_written_is_a_regression(baseline: Path) -> None:
    good = {"drain_redis_vs_floor": 0.6, "submit_a": 0.5}
    assert guard.judge(Measured(good, rows=2.1), baseline) == 0
    slower = Measured(good, rows=2.5)
    assert guard.judge(slower, baseline) == 1
    assert slower.asked[1:] == [["submit_a"]] * (guard.TRIES - 1)


def test_the_tolerance_is_the_one_that_was_written(baseline: Path) -> None:
    said = json.loads(baseline.read_text())
    baseline.write_text(json.dumps(said | {"tolerance": 0.05}))
    measure = Measured({"drain_redis_vs_floor": 0.5, "submit_a": 0.5})
    assert guard.judge(measure, baseline) == 1


def test_what_was_written_is_read_from_the_notes() -> None:
    notes = [
        "drain: 2.50 commands and 1,024 bytes a task",
        "3.25 rows a task in 9 transactions",
    ]
    assert written_in(notes) == {"commands": 2.5, "bytes": 1024.0, "rows": 3.25}


def test_without_a_baseline_nothing_is_judged(tmp_path: Path) -> None:
    assert guard.judge(Measured({}), tmp_path / "none.json") == 2


def test_half_a_baseline_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "baseline.json"
    assert guard.write(Measured({"drain_redis_vs_floor": 0.6}), path) == 2
    assert not path.exists()


def test_a_baseline_that_was_just_written_is_met(tmp_path: Path) -> None:
    path = tmp_path / "new" / "baseline.json"
    measure = Measured(dict.fromkeys(guard.THINGS, 0.5))
    assert guard.write(measure, path) == 0
    assert len(measure.asked) == guard.TRIES
    assert guard.judge(measure, path) == 0


def test_noted_statements_become_transactions_with_all_their_rows() -> None:
    noted = [
        ("-- name: begin\nBEGIN IMMEDIATE;", None),
        ("INSERT a", (1,)),
        ("UPDATE b", (1, 2)),
        ("INSERT a", (2,)),
        ("COMMIT;", None),
        ("BEGIN;", None),
        ("ROLLBACK;", None),
        ("DELETE c", None),
    ]
    assert group_transactions(noted) == [
        [("INSERT a", [(1,), (2,)]), ("UPDATE b", [(1, 2)])],
        [("DELETE c", [()])],
    ]
