"""The report, the document and the plots, from canned figures."""

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from bench.harness import document, report
from bench.harness.bench import Case, Result, alternating
from bench.harness.plots import plots
from bench.harness.tables import number
from tests.bench_figures import full_book, full_report, who


def test_the_report_is_read_as_it_was_written(tmp_path: Path) -> None:
    report.write(full_report(), tmp_path)

    again = report.read(tmp_path / "latest.json")
    assert again == json.loads(json.dumps(full_report()))
    assert [f.told() for f in report.book_of(again)] == [f.told() for f in full_book()]


def test_the_report_tells_spread_goals_settings_and_who_is_absent() -> None:
    said = "\n".join(report.markdown(full_report()))

    assert "| 60 (59–61) | 3 |" in said
    assert "1 to 3 runs (3 asked for; each table has the number)" in said
    assert "| `drain_redis_vs_fastest_peer` | 1.50 | ≥ 1.5 | yes |" in said
    assert "| `drain_redis_vs_fastest_redis_peer` | 3.00 | ≥ 3, then 5 | yes |" in said
    assert "a \\| b" in said
    assert "| celery | it could not be installed |" in said


def test_the_document_has_every_part_and_no_open_place(tmp_path: Path) -> None:
    document.write(full_report(), tmp_path)

    said = (tmp_path / "performance.md").read_text()
    assert "{{" not in said
    assert "Not measured in this run." in said  # the canned figures have no memory
    for name in ("drain", "latency", "stages", "growth"):
        assert f"performance/{name}.svg" in said
        assert (tmp_path / "performance" / f"{name}.svg").is_file()


def test_what_peers_do_better_is_told_from_the_figures() -> None:
    book = full_book()
    for figure in book.find("submit", "one", engine="repid"):
        figure.values[:] = [50.0]

    [line] = document.better(book)
    assert line.startswith("- submit, one")
    assert "repid redis 50 – ours (redis) 10" in line


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


def test_ours_and_the_others_run_in_turn_and_ours_begin_again() -> None:
    def case(engine: str, number: int, runs: int | None = None) -> Case:
        result = Result(values={})
        return Case(
            question="drain",
            who=who(engine, "redis"),
            case={"n": number},
            run=lambda: result,
            runs=runs,
        )

    order = alternating(
        [case("holdfast", 1), case("holdfast", 2, runs=1), *(case("repid", n) for n in range(4))]
    )
    assert [(one.who.engine, one.case["n"]) for one in order] == [
        ("holdfast", 1),
        ("repid", 0),
        ("holdfast", 2),
        ("repid", 1),
        ("holdfast", 1),
        ("repid", 2),
        ("holdfast", 1),
        ("repid", 3),
    ]
