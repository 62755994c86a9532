"""The time that a page of a long list takes: `python -m bench.questions.pages`.

A store has a million settled tasks and twenty thousand suspended ones, of 20 types, 3 queues and
500 tenants, over 30 days (`page_filler.py`). Every kind of page that the API and the CLI make is
asked for many times, each time of another type, tenant and so on, at the beginning, in the middle
or at the end of the list. A page may be short, since a search is bounded: *tasks* is what it had.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Awaitable, Callable
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlencode, urlsplit

import msgspec

from bench.harness.bench import Bench, Case, CaseResult
from bench.harness.command import ask_alone
from bench.harness.load import open_batch_worker
from bench.harness.loop import run
from bench.harness.plan import Part
from bench.harness.processes import CaseFailed
from bench.harness.trial_stores import TrialStore
from bench.questions.page_filler import PLAN, QUEUES, TENANTS, TYPES, Filled, Filler
from bench.questions.service import Serving, serving
from bench.questions.service_load import share
from bench.report.figures import Who
from holdfast.domain.task.state import SUSPENDED, Status
from holdfast.ports import Filter, Store

NAME = "pages"
SETTLED = {True: 50_000, False: 1_000_000}  # quick or not
TIMES = {True: 60, False: 300}  # each kind of page
LIMIT, LIMIT_MOST = 50, 200  # tasks of a page: the default, and the most
DAY_SECONDS = 86_400.0
LIMIT_SECONDS = 600.0  # for one store
ABOUT_SECONDS = {True: 25.0, False: 230.0}
RESTED = tuple(sorted(SUSPENDED))

Ask = Callable[[], Awaitable[int]]  # how many came


def parts(bench: Bench) -> list[Part]:
    """A part for each store: neither takes the time of the other."""
    return [_part(bench, store) for store in bench.ours.stores]


def _part(bench: Bench, store: str) -> Part:
    who = bench.ours.on(store)

    def ask() -> CaseResult:
        ends_at = time.monotonic() + min(LIMIT_SECONDS, bench.seconds_left)
        with bench.trial_stores.open(store) as trial:
            return run(_measure_pages(bench, who, trial, ends_at))

    about = ABOUT_SECONDS[bench.quick]
    case = Case(question=NAME, who=who, case={}, run=ask, runs=1, about=about)
    return Part(question=NAME, what=store, cases=[case])


async def _measure_pages(bench: Bench, who: Who, trial: TrialStore, ends_at: float) -> CaseResult:
    def go_on() -> None:
        if time.monotonic() > ends_at:
            raise TimeoutError("the time for it was over before so many tasks were there")

    async with open_batch_worker(trial.url) as hand:
        filled = await Filler(hand.store).fill(SETTLED[bench.quick], go_on)
        asker = Asker(hand.store, filled)
        for kind, ask in asker.kinds().items():
            note(bench, who, kind, await time_calls(ask, TIMES[bench.quick]))
    with serving(trial) as service:
        for kind, query in OVER_HTTP.items():
            note(bench, who, f"HTTP: {kind}", over_http(service, query, TIMES[bench.quick]))
    return CaseResult(values={})


class PageTimes(msgspec.Struct, frozen=True, kw_only=True):
    seconds: list[float]
    tasks: list[int]


def note(bench: Bench, who: Who, kind: str, felt: PageTimes) -> None:
    ordered = sorted(felt.seconds)
    values = {
        "p50": (share(ordered, 0.5) * 1000, "ms"),
        "p99": (share(ordered, 0.99) * 1000, "ms"),
        "max": (ordered[-1] * 1000, "ms"),
        "tasks": (statistics.fmean(felt.tasks), "a page"),
    }
    case: dict[str, int | str] = {"settled": SETTLED[bench.quick], "page": kind}
    for measure, (value, unit) in values.items():
        bench.book.figure(NAME, who, case, measure, unit).values.append(value)


async def time_calls(ask: Ask, times: int) -> PageTimes:
    seconds, tasks = list[float](), list[int]()
    for _ in range(times):
        begun = time.perf_counter()
        tasks.append(await ask())
        seconds.append(time.perf_counter() - begun)
    return PageTimes(seconds=seconds, tasks=tasks)


# -- through the port


class Asker:
    """Each kind of page, as a call that picks what it asks for by chance."""

    def __init__(self, store: Store, filled: Filled) -> None:
        self._store = store
        self._filled = msgspec.structs.replace(filled, ids=[])  # a million would be in the way
        self._cursors = (None, filled.ids[len(filled.ids) // 2], filled.ids[-LIMIT])
        self._chance = random.Random(11)

    def kinds(self) -> dict[str, Ask]:
        return {name: self._page(where) for name, where in self._wheres().items()} | {
            "all, 200": self._page(Filter, LIMIT_MOST),
            "groups": self._groups,
            "stats": self._stats,
            "audit": self._audit,
        }

    def _wheres(self) -> dict[str, Callable[[], Filter]]:
        pick, span = self._chance.choice, self._span
        fingerprints = self._filled.fingerprints
        done, cut, failed = Status.COMPLETED, Status.CANCELLED, Status.FAILED
        return {
            "all": Filter,
            "status": lambda: Filter(statuses=(done,)),
            "status, few": lambda: Filter(statuses=(cut,)),
            "type": lambda: Filter(type=pick(TYPES)),
            "tenant": lambda: Filter(tenant=pick(TENANTS)),
            "queue": lambda: Filter(queue=pick(QUEUES)),
            "plan": lambda: Filter(plan=PLAN),
            "error": lambda: Filter(error=pick(fingerprints)),
            "time": lambda: Filter(**span()),
            "status, type": lambda: Filter(statuses=(done,), type=pick(TYPES)),
            "status, queue": lambda: Filter(statuses=(cut,), queue=pick(QUEUES)),
            "status, tenant": lambda: Filter(statuses=(cut,), tenant=pick(TENANTS)),
            "status, plan": lambda: Filter(statuses=(cut,), plan=PLAN),
            "status, time": lambda: Filter(statuses=(done,), **span()),
            "type, queue": lambda: Filter(type=pick(TYPES), queue=pick(QUEUES)),
            "type, tenant": lambda: Filter(type=pick(TYPES), tenant=pick(TENANTS)),
            "type, plan": lambda: Filter(type=pick(TYPES), plan=PLAN),
            "queue, tenant": lambda: Filter(queue=pick(QUEUES), tenant=pick(TENANTS)),
            "tenant, time": lambda: Filter(tenant=pick(TENANTS), **span()),
            "type without tasks": lambda: Filter(type="bench.never"),
            "type without tasks, tenant": lambda: Filter(type="bench.never", tenant=pick(TENANTS)),
            "suspended": lambda: Filter(statuses=RESTED),
            "suspended, type": lambda: Filter(statuses=(failed,), type=pick(TYPES)),
            "suspended, tenant": lambda: Filter(statuses=RESTED, tenant=pick(TENANTS)),
            "suspended, error": lambda: Filter(statuses=RESTED, error=pick(fingerprints)),
            "suspended, time": lambda: Filter(statuses=RESTED, **span()),
        }

    def _page(self, where: Callable[[], Filter], limit: int = LIMIT) -> Ask:
        async def ask() -> int:
            page = await self._store.views.find(where(), limit=limit, cursor=self._cursor())
            return len(page.tasks)

        return ask

    def _cursor(self) -> str | None:
        """Return the cursor of the first page, of one in the middle, or of the last."""
        return self._chance.choice(self._cursors)

    def _span(self) -> dict[str, Any]:
        """Return the span of any day, or of the last one, which has all suspended tasks."""
        first, last = self._filled.first_at, self._filled.last_at - DAY_SECONDS
        after = self._chance.choice((self._chance.uniform(first, last), last))
        return {"updated_after": after, "updated_before": after + DAY_SECONDS + 1}

    async def _groups(self) -> int:
        return len(await self._store.views.error_groups(limit=LIMIT))

    async def _stats(self) -> int:
        return len((await self._store.views.stats()).by_status)

    async def _audit(self) -> int:
        start = self._chance.randrange(max(1, self._filled.audits - LIMIT))
        return len(await self._store.admin.audits(limit=LIMIT, cursor=str(start)))


# -- through the service


OVER_HTTP: dict[str, dict[str, str]] = {
    "all": {},
    "status, type": {"status": Status.COMPLETED, "type": TYPES[0]},
    "type, tenant": {"type": TYPES[0], "tenant": TENANTS[0]},
    "suspended": {"status": Status.FAILED},
}


def over_http(service: Serving, query: dict[str, str], times: int) -> PageTimes:
    """Request the page so many times on one connection that is kept alive."""
    seconds, tasks = list[float](), list[int]()
    parts, path = urlsplit(service.url), f"/api/tasks?{urlencode(query)}"
    line = HTTPConnection(parts.hostname or "", parts.port, timeout=60)
    try:
        for _ in range(times):
            begun = time.perf_counter()
            line.request("GET", path, headers={"Authorization": f"Bearer {service.token}"})
            answer = line.getresponse()
            body = answer.read()
            seconds.append(time.perf_counter() - begun)
            if answer.status != 200:
                raise CaseFailed(f"{path}: {answer.status}")
            tasks.append(len(msgspec.json.decode(body)["tasks"]))
    finally:
        line.close()
    return PageTimes(seconds=seconds, tasks=tasks)


if __name__ == "__main__":
    ask_alone(NAME)
