"""The ratios from canned figures: who is compared with whom."""

import pytest

from bench.report.figures import Book
from bench.report.ratios import Ratio, by_name, ratios
from tests.support.bench.bench_figures import Pair, add, add_pair, full_book, who

GOALS = {
    "drain_redis_vs_fastest_redis_peer": 3,
    "drain_redis_vs_fastest_peer": 1.5,
    "drain_redis_200k_vs_10k": 0.9,
    "drain_redis_vs_ceiling": 0.25,
    "drain_sqlite_vs_ceiling": None,
    "drain_sqlite_vs_huey_sqlite": 8,
    "drain_tenants_vs_plain": 0.7,
    "submit_one_caller_vs_fastest_peer": 1,
    "submit_100_callers_vs_fastest_peer": 3,
    "submit_bulk_vs_fastest_peer": 1.3,
    "latency_p50_fastest_peer_vs_ours": 1,
    "stages_sqlite_vs_dbos_sqlite": 100,
    "stages_redis_vs_dbos_postgres": 100,
    "stages_one_by_one_vs_dbos_sqlite": 8,
    "waiting_1m_vs_1k": 0.8,
    "settled_1m_vs_0": 0.8,
    "find_due_1m_vs_1k": 0.83,
    "find_due_with_lease_1m_vs_1k": 0.83,
    "plan_10k_vs_plain": None,
    "plan_10k_100_slots_vs_plain": None,
    "page_p99_redis_50_ms": 1,
    "page_p99_sqlite_50_ms": 1,
    "service_p99_50_ms_at_2000": 1,
}


def found(book: Book) -> dict[str, Ratio]:
    return {ratio.name: ratio for ratio in ratios(book)}


def test_every_goal_has_its_ratio_and_no_other_is_told() -> None:
    assert {name: ratio.goal for name, ratio in found(full_book()).items()} == GOALS


@pytest.mark.parametrize(
    ("name", "value", "peer"),
    [
        ("drain_redis_vs_fastest_redis_peer", 3.0, "repid redis, best"),
        ("drain_redis_vs_fastest_peer", 1.5, "pgqueuer postgres, best"),
        ("drain_redis_200k_vs_10k", 0.95, "holdfast redis"),
        ("drain_redis_vs_ceiling", 0.25, "ceiling redis"),
        ("drain_sqlite_vs_huey_sqlite", 8.0, "huey sqlite, best"),
        ("drain_tenants_vs_plain", 0.75, "holdfast redis"),
        ("submit_one_caller_vs_fastest_peer", 1.0, "repid redis, best"),
        ("submit_100_callers_vs_fastest_peer", 2.0, "pgqueuer postgres, best"),
        ("submit_bulk_vs_fastest_peer", 2.0, "pgqueuer postgres, best"),
        ("latency_p50_fastest_peer_vs_ours", 1.6, "huey redis, best"),
        ("stages_sqlite_vs_dbos_sqlite", 100.0, "dbos sqlite, best"),
        ("stages_redis_vs_dbos_postgres", 80.0, "dbos postgres, best"),
        ("stages_one_by_one_vs_dbos_sqlite", 100.0, "dbos sqlite, best"),
    ],
)
def test_ours_is_compared_with_the_fastest_that_is_meant(
    name: str, value: float, peer: str
) -> None:
    ratio = found(full_book())[name]
    assert ratio.value == pytest.approx(value)
    assert ratio.other is not None
    assert ratio.other.who == peer
    assert ratio.goal is not None
    assert ratio.met is (value >= ratio.goal)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("waiting_1m_vs_1k", 0.7),
        ("find_due_1m_vs_1k", 0.8),
        ("find_due_with_lease_1m_vs_1k", 0.8),
    ],
)
def test_a_million_is_compared_with_a_thousand_by_the_worse_store(name: str, value: float) -> None:
    ratio = found(full_book())[name]
    assert ratio.value == pytest.approx(value)
    assert ratio.met is False
    assert ratio.note == "on sqlite, with 1,000,000: the worse of the stores"


@pytest.mark.parametrize("name", ["plan_10k_vs_plain", "plan_10k_100_slots_vs_plain"])
def test_a_plan_is_compared_with_its_tasks_alone_and_has_no_goal(name: str) -> None:
    ratio = found(full_book())[name]
    assert ratio.value == pytest.approx(0.4)
    assert ratio.met is None
    assert ratio.other is not None
    assert ratio.other.value == 80.0


def test_a_quick_run_says_how_many_it_had() -> None:
    book = Book()
    add(book, "growth", who("holdfast", "redis"), [90.0], waiting=100_000)
    add(book, "growth", who("holdfast", "redis"), [100.0], "beside", waiting=100_000)
    ratio = found(book)["waiting_1m_vs_1k"]
    assert ratio.value == pytest.approx(0.9)
    assert ratio.met is None
    assert ratio.note == (
        "on redis, with 100,000: the only store that was measured; "
        "not judged, for not both stores had 1,000,000"
    )


def test_a_goal_is_not_met_by_the_absence_of_who_may_be_the_fastest() -> None:
    book = Book([figure for figure in full_book() if figure.who.engine not in ("repid", "arq")])
    ratio = found(book)["drain_redis_vs_fastest_redis_peer"]
    assert ratio.other is not None
    assert ratio.other.who == "dramatiq redis, plain"
    assert ratio.met is None
    assert ratio.note == (
        "not measured: arq, repid; not judged, for the fastest may be missing (repid)"
    )


def test_who_is_slow_may_be_absent_but_is_named() -> None:
    book = Book([figure for figure in full_book() if figure.who.engine != "celery"])
    ratio = found(book)["drain_redis_vs_fastest_peer"]
    assert ratio.met is True
    assert ratio.note == "not measured: celery"


def test_a_peer_counts_with_whichever_settings_are_faster() -> None:
    book = full_book()
    add(book, "drain", who("repid", "redis", "plain"), [30.0], tasks=2_000, workers=1, tenants=0)
    ratio = found(book)["drain_redis_vs_fastest_redis_peer"]
    assert ratio.value == pytest.approx(2.0)
    assert ratio.other is not None
    assert ratio.other.who == "repid redis, plain"


def test_long_workflows_are_told_beside_short_ones() -> None:
    note = found(full_book())["stages_redis_vs_dbos_postgres"].note
    assert note == "50 stages against 5: 0.95 of the rate"


def test_a_figure_that_was_cut_short_says_so_beside_the_ratio() -> None:
    book = full_book()
    [figure] = book.find("drain", engine="holdfast", tasks=200_000)
    figure.notes.append("stopped after 15 s")
    assert found(book)["drain_redis_200k_vs_10k"].note == "stopped after 15 s"


def test_what_was_not_measured_is_neither_met_nor_missed() -> None:
    for ratio in by_name(ratios(Book())).values():
        assert (ratio["value"], ratio["met"]) == (None, None)
        assert ratio["note"] == "not measured in this run"


OURS = who("holdfast", "redis")
REPID = who("repid", "redis")


def test_pairs_decide_where_there_are_any() -> None:
    book = full_book()
    add_pair(book, Pair("drain", OURS, REPID, [40.0, 60.0, 50.0], [20.0, 20.0, 10.0]))
    ratio = found(book)["drain_redis_vs_fastest_redis_peer"]
    assert ratio.value == pytest.approx(3.0)  # the median of 2, 3 and 5
    assert ratio.decided_by == "rate"
    assert ratio.note == "3 pairs"


def test_on_a_busy_machine_cpu_decides_and_the_rate_is_told() -> None:
    book = full_book()
    add_pair(book, Pair("drain", OURS, REPID, [40.0], [20.0]), load=1.5, cpu=(10.0, 40.0))
    ratio = found(book)["drain_redis_vs_fastest_redis_peer"]
    assert ratio.value == pytest.approx(4.0)
    assert ratio.decided_by == "CPU"
    assert ratio.note == "1 pair, others kept 1.5 cores busy, by rate 2.00"
    assert ratio.ours is not None
    assert ratio.ours.cpu == {"client_cpu": 10.0}


def test_of_several_pairs_the_hardest_counts() -> None:
    book = full_book()
    add_pair(book, Pair("drain", OURS, REPID, [60.0], [20.0]))
    add_pair(book, Pair("drain", OURS, who("pgqueuer", "postgres"), [60.0], [50.0]))
    ratios_of = found(book)
    assert ratios_of["drain_redis_vs_fastest_peer"].value == pytest.approx(1.2)
    assert ratios_of["drain_redis_vs_fastest_redis_peer"].value == pytest.approx(3.0)


def test_a_peer_without_a_pair_that_was_clearly_ahead_is_named() -> None:
    book = full_book()
    add_pair(book, Pair("drain", OURS, REPID, [60.0], [10.0]))
    ratio = found(book)["drain_redis_vs_fastest_peer"]
    assert "pgqueuer postgres was faster in its table" in ratio.note


def test_latencies_of_pairs_are_compared_by_time() -> None:
    book = full_book()
    add_pair(book, Pair("latency", OURS, REPID, [0.5], [1.0], "start_p50"), load=2.0)
    ratio = found(book)["latency_p50_fastest_peer_vs_ours"]
    assert ratio.value == pytest.approx(2.0)
    assert ratio.decided_by == "time"


def test_own_drains_and_stages_are_taken_from_their_pairs() -> None:
    book = full_book()
    add_pair(book, Pair("drain with tenants", OURS, OURS, [30.0], [60.0]))
    add_pair(book, Pair("drain of 200,000", OURS, OURS, [48.0], [60.0]))
    sqlite = who("holdfast", "sqlite")
    add_pair(book, Pair("stages one by one", sqlite, who("dbos", "sqlite"), [40.0], [10.0]))
    add_pair(book, Pair("drain", sqlite, who("huey", "sqlite", "plain"), [60.0], [10.0]))
    values = {name: ratio.value for name, ratio in found(book).items()}
    assert values["drain_tenants_vs_plain"] == pytest.approx(0.5)
    assert values["drain_redis_200k_vs_10k"] == pytest.approx(0.8)
    assert values["stages_one_by_one_vs_dbos_sqlite"] == pytest.approx(4.0)
    assert values["drain_sqlite_vs_huey_sqlite"] == pytest.approx(6.0)
