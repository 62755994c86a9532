"""The report, the document and the plots, from canned figures."""

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from bench.harness.bench import Bench, Case, CaseResult, alternating
from bench.harness.command import FULL_SECONDS, QUESTIONS, RunOptions
from bench.harness.engines import MeasuredEngine
from bench.harness.paths import DOCS, RESULTS, peer_names
from bench.harness.plan import Part, allot_seconds, plan_parts
from bench.harness.trial_stores import TrialStores
from bench.report import document, report, summary
from bench.report.figures import CEILING, OURS
from bench.report.plots import plots
from bench.report.tables import number
from tests.support.bench.bench_figures import add, full_book, full_report, who


def test_the_report_is_read_as_it_was_written(tmp_path: Path) -> None:
    report.write(full_report(), tmp_path)

    again = report.read(tmp_path / "latest.json")
    assert again == json.loads(json.dumps(full_report()))
    assert [f.to_dict() for f in report.book_of(again)] == [f.to_dict() for f in full_book()]


def test_the_report_tells_spread_goals_settings_and_who_is_absent() -> None:
    said = "\n".join(report.markdown(full_report()))

    assert "| 60 (59–61) | 3 |" in said
    assert "1 to 3 runs (3 by default; each table says how many)" in said
    assert "| `drain_redis_vs_fastest_peer` | 1.50 | ≥ 1.5 | yes | rate |" in said
    assert "| `drain_redis_vs_fastest_redis_peer` | 3.00 | ≥ 3, then 5 | yes |" in said
    assert "a \\| b" in said
    assert "| celery | it could not be installed |" in said


def test_the_document_has_every_part_and_no_open_place(tmp_path: Path) -> None:
    document.write(full_report(), tmp_path)

    said = (tmp_path / "performance.md").read_text()
    goals = (tmp_path / "internals" / "benchmark-goals.md").read_text()
    assert "{{" not in said + goals
    assert "| `drain_redis_vs_fastest_peer` | 1.50 | ≥ 1.5 | yes |" in goals
    assert "≥" not in said  # users read figures, makers read goals
    assert "Not measured in this run." in said  # the canned figures have no memory
    for name in ("drain", "latency", "stages", "growth"):
        assert f"performance/{name}.svg" in said
        assert (tmp_path / "performance" / f"{name}.svg").is_file()


def test_the_pages_in_the_tree_are_rendered_from_the_report_in_the_tree() -> None:
    latest = summary.read(RESULTS)
    pictures = plots(report.book_of(latest))
    assert (DOCS / "performance.md").read_text() == document.text(latest, set(pictures))
    assert (DOCS / "capacity.md").read_text() == document.capacity_page(latest)
    goals = DOCS / "internals" / "benchmark-goals.md"
    assert goals.read_text() == document.goals(latest)
    for name, picture in pictures.items():
        assert (DOCS / "performance" / name).read_text() == picture


def test_the_summary_is_small_and_reads_as_the_report_it_was_made_of(tmp_path: Path) -> None:
    summary.write(full_report(), tmp_path)
    again, whole = summary.read(tmp_path), json.loads(json.dumps(full_report()))
    for one in (again, whole):
        one["figures"].sort(key=repr)  # the summary has the measures of a case together
    assert again == whole
    assert (RESULTS / "summary.json").stat().st_size < 100_000


def test_a_value_of_the_summary_is_shown_as_the_whole_one_would_be(tmp_path: Path) -> None:
    values = [12854.096091144962, 11050.933950177901, 0.123456789, 512.4, 1.0]
    book = full_book()
    for figure, value in zip(book, values, strict=False):
        figure.values[:] = [value]
    whole = {**full_report(), "figures": [figure.to_dict() for figure in book]}
    summary.write(whole, tmp_path)
    assert report.markdown(summary.read(tmp_path)) == report.markdown(whole)


def test_what_peers_do_better_is_told_from_the_figures() -> None:
    book = full_book()
    for figure in book.find("submit", "one", engine="repid"):
        figure.values[:] = [50.0]

    [_, _, line] = document.better(book)
    assert line.startswith("| submit, one")
    assert "repid redis (best) 50 | redis 10 |" in line


@pytest.mark.parametrize("name", ["drain.svg", "latency.svg", "stages.svg", "growth.svg"])
def test_a_plot_is_xml_with_axes_units_and_a_dark_side(name: str) -> None:
    picture = plots(full_book())[name]

    root = ET.fromstring(picture)
    words = [element.text or "" for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert any("/s" in word or "ms" in word for word in words)
    assert "prefers-color-scheme: dark" in picture
    assert "NaN" not in picture


def test_figures_are_short() -> None:
    assert [number(x) for x in (0.123, 12.34, 512.4, 5123.0, 51234.0)] == [
        "0.12",
        "12.3",
        "512",
        "5,120",
        "51,200",
    ]


def test_settings_as_they_come_count_and_each_store_is_compared_with_its_like() -> None:
    book = full_book()
    for measure, ours, other in (("in_flight", 100.0, 1.0), ("seconds", 30.0, 5.0)):
        for one, value in (("holdfast", ours), ("saq", other)):
            add(book, "recovery", who(one, "redis", "plain"), [value], measure, tasks=100)
    add(book, "drain", who("saq", "sqlite"), [70.0], tasks=10_000, workers=1, tenants=0)

    [_, _, line] = document.better(book)
    assert line.startswith("| recovery, seconds")
    assert "saq redis (plain) 5 | redis 30 |" in line


def case(engine: str, number: int, *, runs: int | None = None, about: float = 10.0) -> Case:
    result = CaseResult(values={})
    return Case(
        question="drain",
        who=who(engine, "redis"),
        case={"n": number},
        run=lambda: result,
        runs=runs,
        about=about,
    )


def test_ours_and_the_others_run_in_turn() -> None:
    order = alternating([*(case("repid", n) for n in range(3)), *(case(OURS, n) for n in range(3))])
    assert [one.who.engine for one in order] == [OURS, "repid"] * 3


def test_ours_runs_again_once_for_three_of_theirs() -> None:
    order = alternating([case(OURS, 1), *(case("repid", n) for n in range(9))])
    assert [one.who.engine for one in order] == [OURS, "repid", "repid", "repid"] * 3


def test_what_a_goal_needs_may_use_the_time_of_what_is_only_good_to_know() -> None:
    def part(*, needed: bool = True, fixed: bool = False) -> Part:
        cases = [case(OURS, 1)]
        return Part(question="drain", what="it", cases=cases, needed=needed, fixed=fixed)

    rest, fixed = part(needed=False), part(fixed=True)
    assert part().seconds(3) == 30.0
    assert allot_seconds(100.0, part(), [part(), rest], 3) == 70.0
    assert allot_seconds(40.0, part(), [part(), rest], 3) == 20.0  # too little: shared
    assert allot_seconds(100.0, part(), [fixed, rest], 3) == 70.0
    assert allot_seconds(60.0, rest, [rest], 3) == 30.0


def test_the_plan_of_a_full_run_asks_for_the_goals_first_and_fits() -> None:
    """As if all peers could do everything, which is more than they can."""
    stores = {"pgqueuer": ("postgres",), "absurd": ("postgres",), "huey": ("redis", "sqlite")}
    stores |= {"dbos": ("sqlite", "postgres"), OURS: ("redis", "sqlite")}
    for_workflows = {"dbos", "absurd", OURS}

    def engine(name: str) -> MeasuredEngine:
        can = {"drain", "submit", "latency", "recovery"}
        return MeasuredEngine(
            name=name,
            version="1",
            stores=stores.get(name, ("redis",)),
            settings={"best": "", "plain": ""},
            can=frozenset(can | ({"stages"} if name in for_workflows else set())),
            python=Path("python"),
            script=Path("adapter.py"),
        )

    with TrialStores() as trial_stores:
        peers = [engine(name) for name in peer_names()]
        bench = Bench(trial_stores, engine(OURS), peers, ceiling=engine(CEILING))
        parts = plan_parts(bench, QUESTIONS)
    assert [part.needed for part in parts] == sorted((part.needed for part in parts), reverse=True)
    assert {part.question for part in parts if part.needed} == set(QUESTIONS)
    assert sum(part.seconds(3) for part in parts if part.needed) < FULL_SECONDS - 120
    assert parts[0].question == "pairs"


def test_only_a_full_run_is_published() -> None:
    def options(
        *, quick: bool = False, runs: int = 3, peers: tuple[str, ...] | None = None
    ) -> RunOptions:
        return RunOptions(quick=quick, runs=runs, peers=peers)

    assert options().is_full
    assert not options(quick=True).is_full
    assert not options(runs=2).is_full
    assert not options(peers=("repid",)).is_full
