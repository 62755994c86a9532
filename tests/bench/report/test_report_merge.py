"""Questions asked again: what takes whose place in the report, and what stays as it was."""

from pathlib import Path
from typing import Any

import pytest

from bench.__main__ import publish
from bench.harness import command, engines
from bench.harness.command import RunOptions
from bench.report import report, report_merge, summary
from bench.report.figures import Book
from tests.support.bench.bench_figures import add, full_report, who

ASKED = ["plans", "triggers"]
FULL = RunOptions(quick=False, runs=3, peers=None)
LATER = "2031-02-03T00:00:00+00:00"


def again(*questions: str, full: bool = False) -> dict[str, Any]:
    """A later run, in which each of these questions brought one figure."""
    book = Book()
    for question in questions:
        case: dict[str, Any] = {"tasks": 10_000, "max_concurrency": 0}
        add(book, question, who("holdfast", "redis"), [7.0], **case)
        add(book, question, who("holdfast", "redis"), [70.0], "plain", **case)
    facts = {"measured_at": LATER, "commit": "abc1234", "versions": {"redis": "8"}}
    return {
        **full_report(),
        "taken_at": LATER,
        "full": full,
        "engines": {"holdfast": {"version": "2", "settings": {"best": "new"}}},
        "questions": dict.fromkeys(questions, facts),
        "figures": [figure.to_dict() for figure in book],
    }


def of(found: dict[str, Any], *questions: str) -> list[Any]:
    return [one for one in found["figures"] if one["question"] in questions]


def test_what_was_not_asked_again_stays_with_its_day() -> None:
    old = full_report()
    whole = report_merge.merge(old, again("plans"), ["plans"])

    others = {one["question"] for one in old["figures"]} - {"plans"}
    assert of(whole, *others) == of(old, *others)
    for name in others:
        assert whole["questions"][name]["measured_at"] == old["taken_at"]
    for name in ("taken_at", "full", "runs", "seconds", "machine", "versions", "absent"):
        assert whole[name] == old[name]


def test_what_was_asked_again_takes_the_place_of_the_old() -> None:
    new = again("plans")
    whole = report_merge.merge(full_report(), new, ["plans"])

    assert of(whole, "plans") == of(new, "plans")
    assert whole["questions"]["plans"]["measured_at"] == LATER
    assert whole["ratios"]["plan_10k_vs_plain"]["value"] == pytest.approx(0.1)
    assert whole["ratios"]["plan_10k_100_slots_vs_plain"]["value"] is None


def test_a_question_without_an_answer_keeps_the_old_one() -> None:
    old = full_report()
    whole = report_merge.merge(old, again("plans"), ASKED)
    assert of(whole, "triggers") == of(old, "triggers") != []
    assert whole["questions"]["triggers"]["measured_at"] == old["taken_at"]


def test_a_second_merge_leaves_the_day_of_the_first() -> None:
    first = report_merge.merge(full_report(), again("plans"), ["plans"])
    second = report_merge.merge(first, again("triggers"), ["triggers"])
    assert second["questions"]["plans"] == first["questions"]["plans"]
    assert second["questions"]["drain"] == {
        "measured_at": full_report()["taken_at"],
        "commit": None,
    }


def test_the_report_says_of_each_question_when_and_on_what() -> None:
    whole = report_merge.merge(full_report(), again("plans"), ["plans"])
    assert report.format_measured_at(whole, "drain") == "Measured on 2030-01-01."
    assert report.format_measured_at(whole, "plans") == (
        "Measured on 2031-02-03, at commit abc1234, with redis 8."
    )
    assert "at commit abc1234" in "\n".join(report.markdown(whole))


def test_some_questions_of_a_run_that_is_otherwise_full_are_published(tmp_path: Path) -> None:
    summary.write(full_report(), tmp_path)
    assert publish(again(*ASKED), ASKED, FULL, results=tmp_path, docs=tmp_path) == "latest"

    assert of(summary.read(tmp_path), "drain") == of(full_report(), "drain")
    said = (tmp_path / "performance.md").read_text()
    assert "Measured on 2031-02-03" in said
    assert "Measured on 2030-01-01." in said


@pytest.mark.parametrize(
    "asked",
    [
        RunOptions(quick=True, runs=3, peers=None),
        RunOptions(quick=False, runs=1, peers=None),
        RunOptions(quick=False, runs=3, peers=("repid",)),
    ],
)
def test_a_lesser_run_changes_nothing_that_is_published(tmp_path: Path, asked: RunOptions) -> None:
    summary.write(full_report(), tmp_path)
    before = (tmp_path / "summary.json").read_bytes()
    assert publish(again(*ASKED), ASKED, asked, results=tmp_path, docs=tmp_path) == "quick"
    assert (tmp_path / "summary.json").read_bytes() == before
    assert not (tmp_path / "performance.md").exists()


def test_a_part_is_not_published_as_if_it_were_the_whole(tmp_path: Path) -> None:
    assert publish(again(*ASKED), ASKED, FULL, results=tmp_path, docs=tmp_path) == "quick"
    assert not (tmp_path / "summary.json").exists()


def test_a_full_run_takes_the_place_of_all(tmp_path: Path) -> None:
    summary.write(full_report(), tmp_path)
    found = again("plans", full=True)
    assert publish(found, command.QUESTIONS, FULL, results=tmp_path, docs=tmp_path) == "latest"
    assert {one["question"] for one in summary.read(tmp_path)["figures"]} == {"plans"}


@pytest.mark.parametrize(("questions", "names"), [(ASKED, ()), (["plans", "drain"], None)])
def test_no_environment_is_made_for_peers_that_nobody_asks(
    monkeypatch: pytest.MonkeyPatch, questions: list[str], names: tuple[str, ...] | None
) -> None:
    asked: list[object] = []

    def peers(wanted: object) -> tuple[list[object], dict[str, str]]:
        asked.append(wanted)
        return [], {}

    monkeypatch.setattr(engines, "peers", peers)
    with command.open_bench(FULL, questions):
        pass
    assert asked == [names]
