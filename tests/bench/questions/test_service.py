"""The question about the service in its smallest form, and its goal."""

from collections.abc import Iterator

import msgspec
import pytest

from bench.harness.bench import Bench
from bench.harness.engines import ours
from bench.harness.trial_stores import TrialStore, TrialStores
from bench.questions import service
from bench.questions.service import LoadCase
from bench.questions.service_load import ServiceLoad, request_of, share
from bench.report.figures import Book
from bench.report.ratios import Ratio, ratios
from tests.support.bench.bench_figures import add, who

OURS = who("holdfast", "redis")


@pytest.fixture
def trial() -> Iterator[TrialStore]:
    """A service that stood still must not refuse for want of its server's answer."""
    with TrialStores() as trial_stores, trial_stores.open("redis") as trial:
        yield msgspec.structs.replace(trial, url=f"{trial.url}?timeout=60s")


@pytest.mark.parametrize("asked", [LoadCase(rate=100), LoadCase(rate=20, batch=10, workers=1)])
def test_what_is_posted_is_kept_and_its_latency_told(trial: TrialStore, asked: LoadCase) -> None:
    values = service.measure_service(trial, asked, seconds=0.5, connections=4).values
    assert {name: unit for name, (_, unit) in values.items()} == {
        "reached": "requests/s",
        "p50": "ms",
        "p99": "ms",
        "max": "ms",
        "refused": "requests",
        "cpu": "µs",
        "redis_cpu": "µs",
    }
    assert values["refused"][0] == 0
    assert 0 < values["p50"][0] <= values["p99"][0] <= values["max"][0]


def test_a_request_says_how_long_it_is() -> None:
    load = ServiceLoad(
        url="http://127.0.0.1:1", token="t", rate=1, seconds=1, connections=1, batch=3
    )
    head, _, body = request_of(load).partition(b"\r\n\r\n")
    assert f"Content-Length: {len(body)}".encode() in head
    assert body.count(b"bench.noop") == 3


def test_a_share_of_a_hundred_is_its_last_but_one() -> None:
    assert share(list(map(float, range(1, 101))), 0.99) == 99.0


def test_the_goal_has_all_runs_and_the_rest_one() -> None:
    with TrialStores() as trial_stores:
        goal, rest = service.parts(Bench(trial_stores, ours()))
    assert [case.case for case in goal.cases] == [{"rate": 2_000, "batch": 1, "workers": 0}]
    assert {case.runs for case in goal.cases} == {None}
    assert {case.runs for case in rest.cases} == {1}
    assert max(int(case.case["rate"]) for case in rest.cases) == 6_500  # more than it can bear


# -- the bounds, as ratios


def found(book: Book) -> dict[str, Ratio]:
    return {ratio.name: ratio for ratio in ratios(book)}


def booked(reached: float, p99: float) -> Book:
    book = Book()
    for measure, value in (("reached", reached), ("p99", p99)):
        add(book, "service", OURS, [value], measure, rate=2_000, batch=1, workers=0)
    return book


@pytest.mark.parametrize(
    ("reached", "p99", "met"), [(2_000, 25, True), (2_000, 60, False), (1_700, 25, False)]
)
def test_a_service_that_falls_behind_misses_its_goal(reached: float, p99: float, met: bool) -> None:
    ratio = found(booked(reached, p99))["service_p99_50_ms_at_2000"]
    assert ratio.met is met
    assert ratio.other is not None
    assert ratio.other.value == 50


def test_the_slowest_kind_of_page_decides() -> None:
    book = Book()
    for kind, value in (("all", 5.0), ("type", 100.0), ("tenant", 20.0)):
        add(book, "pages", OURS, [value], "p99", settled=1_000_000, page=kind)
    ratio = found(book)["page_p99_redis_50_ms"]
    assert (ratio.value, ratio.met) == (0.5, False)
    assert ratio.note == "the slowest of 3 kinds: type"
    assert found(book)["page_p99_sqlite_50_ms"].value is None


def test_a_quick_run_is_not_judged() -> None:
    book = Book()
    add(book, "pages", OURS, [5.0], "p99", settled=50_000, page="all")
    ratio = found(book)["page_p99_redis_50_ms"]
    assert (ratio.value, ratio.met) == (10.0, None)
