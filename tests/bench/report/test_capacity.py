"""The page about capacity, from canned CPU."""

import pytest

from bench.report import capacity, document
from bench.report.capacity import WorkCost, cores, load_costs, partition_overhead
from bench.report.figures import Book
from tests.support.bench.bench_figures import add, full_report, who

OURS = who("holdfast", "redis")


def measured_book() -> Book:
    book = Book()
    drain = {"tasks": 10_000, "workers": 1, "tenants": 0}
    stages = {"stages": 5, "at_once": 50}
    for side, used in (("server_cpu", 40.0), ("client_cpu", 25.0)):
        add(book, "drain", OURS, [used], side, **drain)
        add(book, "stages", OURS, [used], side, **stages)
        add(book, "submit", OURS, [used / 2], f"many_{side}")
    for partitions, used in ((1, 60.0), (2, 32.0)):
        case = {"tasks": 10_000, "workers": 2, "partitions": partitions}
        add(book, "capacity", OURS, [used], "busiest_node_cpu", **case)
    for rate, reached in ((2_000, 2_000.0), (6_500, 2_900.0)):
        case = {"rate": rate, "batch": 1, "workers": 0}
        add(book, "service", OURS, [reached], "reached", **case)
        add(book, "service", OURS, [340.0], "cpu", **case)
        add(book, "service", OURS, [100.0], "redis_cpu", **case)
    return book


@pytest.mark.parametrize(
    ("rate", "microseconds", "needed"),
    [(100, 50, 1), (10_000, 60, 1), (10_001, 60, 2), (50_000, 60, 5)],
)
def test_cores_are_planned_with_room_to_spare(
    rate: float, microseconds: float, needed: int
) -> None:
    assert cores(rate, microseconds) == needed


def test_a_whole_task_costs_its_submit_and_its_run() -> None:
    costs = load_costs(measured_book())
    whole = costs["many"] + costs["drain"]
    assert (whole.server, whole.client) == (60.0, 37.5)
    assert "bulk" not in costs


def test_the_table_of_cores_has_what_a_core_does_in_a_second() -> None:
    lines = capacity.core_table(measured_book())
    assert "| claim, run and finish a no-op task | 40 | 25,000 | 25 | 40,000 |" in lines
    assert "| submit over HTTP, one task in a request | 100 | 10,000 | 340 | 2,940 |" in lines


def test_the_table_of_loads_has_partitions_and_cores() -> None:
    lines = capacity.load_table(measured_book())
    assert "| 20,000 | 3 | 2 | 8 | 5 |" in lines
    assert "| 500 | 1 | 1 | 1 | 1 |" in lines


def test_several_partitions_cost_what_the_run_with_two_shows() -> None:
    assert partition_overhead(measured_book()) == pytest.approx(64 / 60)
    assert partition_overhead(Book()) == 1.0


def test_the_run_with_two_partitions_says_how_much_more_they_can_do() -> None:
    said = capacity.partition_lines(measured_book())[-1]
    assert "It can do 16,700 tasks a second." in said
    assert "two nodes can do 31,200 tasks a second, 1.88 times as many as one." in said


def test_the_service_is_told_by_what_it_reached_and_not_by_the_offer() -> None:
    [said] = capacity.service_lines(measured_book())
    assert "answered at most 2,900 requests a second." in said
    assert said.endswith("The highest offer was 6,500.")


def test_what_was_not_measured_is_said() -> None:
    for lines in (
        capacity.core_table(Book()),
        capacity.load_table(Book()),
        capacity.partition_lines(Book()),
        capacity.service_lines(Book()),
    ):
        assert lines == ["Not measured in this run."]


def test_the_page_has_no_open_place() -> None:
    figures = [figure.to_dict() for figure in measured_book()]
    page = document.capacity_page({**full_report(), "figures": figures})
    assert "{{" not in page
    assert "The machine has 2 cores (one)." in page
    assert "Not measured" not in page


def test_costs_add_up() -> None:
    one = WorkCost(what="a", server=1.0, client=2.0)
    assert one + one == WorkCost(what="a and a", server=2.0, client=4.0)
