"""The question about pages in its smallest form."""

from collections import Counter
from collections.abc import Iterator

import msgspec
import pytest

from bench.harness.bench import Bench
from bench.harness.engines import ours
from bench.harness.load import open_batch_worker
from bench.harness.trial_stores import TrialStore, TrialStores
from bench.questions import pages
from bench.questions.page_filler import PLAN, QUEUES, TENANTS, TYPES, Filler
from bench.questions.service import serving
from holdfast import Status
from holdfast.ports import Filter
from tests.support.source_tree import ROOT

SETTLED = 400
SUSPENDED = 8


@pytest.fixture(params=["redis", "sqlite"])
def trial(request: pytest.FixtureRequest) -> Iterator[TrialStore]:
    with TrialStores() as trial_stores, trial_stores.open(request.param) as trial:
        yield trial


async def test_what_is_filled_in_is_what_the_engine_would_have_left(trial: TrialStore) -> None:
    async with open_batch_worker(trial.url) as hand:
        filled = await Filler(hand.store).fill(SETTLED)
        tasks = await hand.store.views.load(filled.ids)
        assert Counter(task.status for task in tasks if task is not None) == {
            Status.COMPLETED: 386,
            Status.CANCELLED: 12,
            Status.ROLLED_BACK: 2,
            Status.FAILED: SUSPENDED,
        }
        assert filled.ids == sorted(filled.ids, reverse=True)
        assert await hand.store.admin.doctor(fix=False, limit=100) == []
        audits = await hand.store.admin.audits(limit=100)
        assert len(audits) == filled.audits == 14


async def test_every_kind_of_page_is_asked_for(trial: TrialStore) -> None:
    async with open_batch_worker(trial.url) as hand:
        asker = pages.Asker(hand.store, await Filler(hand.store).fill(SETTLED))
        felt = {kind: await pages.time_calls(ask, 3) for kind, ask in asker.kinds().items()}
        found = await hand.store.views.find(Filter(plan=PLAN), limit=1)
    assert all(len(one.seconds) == len(one.tasks) == 3 for one in felt.values())
    assert max(felt["all, 200"].tasks) == 200
    assert max(felt["type without tasks"].tasks) == 0
    assert max(felt["audit"].tasks) == 14
    assert len(found.tasks) == 1


async def test_a_page_is_asked_for_over_http(trial: TrialStore) -> None:
    async with open_batch_worker(trial.url) as hand:
        await Filler(hand.store).fill(SETTLED)
    patient = f"{trial.url}?timeout=60s" if trial.redis else trial.url
    with serving(msgspec.structs.replace(trial, url=patient)) as service:
        assert pages.over_http(service, {}, 2).tasks == [50, 50]
        assert pages.over_http(service, {"status": Status.FAILED}, 1).tasks == [SUSPENDED]


def test_the_figures_of_a_kind_have_their_place() -> None:
    with TrialStores() as trial_stores:
        bench = Bench(trial_stores, ours(), quick=True)
        felt = pages.PageTimes(seconds=[0.001] * 99 + [0.2], tasks=[50] * 100)
        pages.note(bench, bench.ours.on("redis"), "status, type", felt)
        [figure] = bench.book.find("pages", "p99", page="status, type")
    assert figure.values == [pytest.approx(1.0)]
    assert [part.what for part in pages.parts(bench)] == list(bench.ours.stores)


def test_the_names_are_as_many_as_are_said() -> None:
    assert (len(TYPES), len(QUEUES), len(TENANTS)) == (20, 3, 500)


def told() -> list[dict[str, str]]:
    """The figures of pages as docs/performance.md has them."""
    said = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    part = said.partition("\n## Pages\n")[2].partition("\n## ")[0]
    lines = [line for line in part.splitlines() if line.startswith("| ")]
    names, _, *figures = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    return [dict(zip(names, cells, strict=True)) for cells in figures]


def test_by_the_figures_that_are_told_every_kind_of_page_is_quick_among_a_million() -> None:
    p99_ms = {(one["store"], one["page"]): float(one["p99 ms"]) for one in told()}
    kinds = {"all", "status", "type", "queue", "tenant", "plan", "time", "error", "suspended"}
    kinds |= {"groups", "stats", "audit"} | {f"HTTP: {kind}" for kind in pages.OVER_HTTP}
    assert {(store, kind) for store in ("redis", "sqlite") for kind in kinds} <= set(p99_ms)
    assert {one["settled"] for one in told()} == {"1,000,000"}
    assert {page: ms for page, ms in p99_ms.items() if ms >= 50} == {}
