"""Pairs of measured values decide the ratios: their medians, and what decides each."""

import pytest

from bench.report.figures import Book
from bench.report.pairs import find_pairs, median_cpu, median_ratio
from bench.report.tables import table
from tests.support.bench.bench_figures import Pair, add, add_pair, who

OURS, REPID = who("holdfast", "redis"), who("repid", "redis")


def test_the_median_is_taken_of_the_ratios_and_not_the_ratio_of_medians() -> None:
    assert median_ratio([10.0, 20.0, 90.0], [10.0, 40.0, 30.0]) == 1.0


def test_the_worse_load_of_both_sides_counts() -> None:
    book = Book()
    add_pair(book, Pair("drain", OURS, REPID, [1.0], [1.0]), load=0.2)
    [figure] = book.find("pairs", "load", side="other")
    figure.values[:] = [1.4]
    [pair] = find_pairs(book, "drain", store="redis")
    assert pair.load == 1.4
    assert pair.decided_by == "rate"  # for no CPU is known
    assert pair.note == "1 pair, others kept 1.4 cores busy"


def test_client_and_server_are_compared_together() -> None:
    book = Book()
    add_pair(book, Pair("submit", OURS, REPID, [9.0, 9.0], [3.0, 3.0], "many"), cpu=(10.0, 40.0))
    for side, one, used in (("ours", OURS, 30.0), ("other", REPID, 20.0)):
        case = {"pair": "submit: repid redis", "side": side}
        add(book, "pairs", one, [used] * 2, "many_server_cpu", **case)
    [pair] = find_pairs(book, "submit", "many", store="redis")
    assert pair.by_cpu == pytest.approx(60 / 40)
    assert pair.note == "2 pairs, by CPU 1.50"
    assert median_cpu(book, pair.ours.figure) == {"client_cpu": 10.0, "server_cpu": 30.0}


def test_less_may_be_better() -> None:
    book = Book()
    add_pair(book, Pair("latency", OURS, REPID, [2.0], [1.0], "start_p50"))
    [pair] = find_pairs(book, "latency", "start_p50", store="redis", less_is_better=True)
    assert pair.value == 0.5


def test_a_pair_of_another_kind_or_store_is_another_pair() -> None:
    book = Book()
    add_pair(book, Pair("drain with tenants", OURS, OURS, [1.0], [1.0]))
    assert find_pairs(book, "drain", store="redis") == []
    assert find_pairs(book, "drain with tenants", store="sqlite") == []


def test_the_table_has_a_row_for_each_pair_and_measure() -> None:
    book = Book()
    add_pair(book, Pair("drain", OURS, REPID, [30.0, 30.0], [20.0, 10.0]), cpu=(10.0, 40.0))
    add_pair(book, Pair("latency", OURS, REPID, [2.0], [1.0], "start_p50"), load=1.2)
    [_, _, drain, latency] = table(book, "pairs")
    assert drain == (
        "| drain: repid redis | rate, tasks/s | 30 | 15 (10–20) | 10 | 40 | 2.25 | 4.00 | 0.1 | 2 |"
    )
    assert latency.startswith("| latency: repid redis | start_p50, tasks/s | 2 | 1 | – | – |")
