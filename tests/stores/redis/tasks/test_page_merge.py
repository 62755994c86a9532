"""Answers of several partitions as one: no task is skipped, none is shown twice."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from holdfast.domain.audit import Audit
from holdfast.domain.task.placement import Place
from holdfast.domain.task.state import Status
from holdfast.domain.task.task import Task
from holdfast.ports import Awaited, Moves, Page, Stats
from holdfast.stores.redis.admin.audit_chain import merge_audits
from holdfast.stores.redis.views.counts import merge_stats
from holdfast.stores.redis.views.find import merge_pages
from tests.support.redis.redis_records import NOW, entry, made

# -- pages

ids = st.sets(st.text("abc", min_size=1, max_size=4), max_size=12).map(sorted)
Shelf = tuple[list[str], set[str]]  # the ids of a partition, and those that match


def page_of(shelf: Shelf, limit: int, look: int, cursor: str | None) -> Page:
    """As `find`: so many matches of so many ids at most."""
    there, matching = shelf
    below = [i for i in reversed(there) if cursor is None or i < cursor]
    found: list[Task] = []
    for task_id in below[:look]:
        if task_id in matching:
            if len(found) == limit:
                return Page(tasks=tuple(found), cursor=found[-1].id)
            found.append(made(task_id))
    return Page(tasks=tuple(found), cursor=below[look - 1] if len(below) >= look else None)


@given(
    shelves=st.lists(
        ids.flatmap(
            lambda there: st.tuples(
                st.just(there), st.sets(st.sampled_from(there)) if there else st.just(set())
            )
        ),
        max_size=4,
    ),
    limit=st.integers(1, 5),
    look=st.integers(1, 7),
)
def test_merged_pages_hold_every_match_once_newest_first(
    shelves: list[Shelf], limit: int, look: int
) -> None:
    apart = [
        ([f"{i}.p{n}" for i in there], {f"{i}.p{n}" for i in matching})
        for n, (there, matching) in enumerate(shelves)
    ]
    seen: list[str] = []
    cursor: str | None = None
    while True:
        page = merge_pages([page_of(shelf, limit, look, cursor) for shelf in apart], limit)
        assert len(page.tasks) <= limit
        seen += [task.id for task in page.tasks]
        assert page.cursor is None or cursor is None or page.cursor < cursor
        cursor = page.cursor
        if cursor is None:
            break
    assert seen == sorted((i for _, matching in apart for i in matching), reverse=True)


# -- audits and counts


@given(times=st.lists(st.lists(st.integers(0, 9), max_size=6), max_size=4), limit=st.integers(1, 4))
def test_audits_of_several_partitions_are_paged_without_loss(
    times: list[list[int]], limit: int
) -> None:
    """Each list is in the order in which its entries came, which may differ from their times'."""
    lists = [[entry(f"{n}-{i}", at) for i, at in enumerate(ats)] for n, ats in enumerate(times)]
    total = sum(map(len, lists))
    seen: list[Audit] = []
    for start in range(0, total + limit, limit):
        seen += merge_audits([some[: start + limit] for some in lists], limit, start)
    for some in lists:
        assert [one for one in seen if one in some] == some
    assert len(seen) == total


def test_merged_audits_are_newest_first() -> None:
    lists = [[entry("a", 5), entry("b", 1)], [entry("c", 3)], []]
    merged = merge_audits(lists, 2, 0)
    assert [one.task_id for one in merged] == ["a", "c"]
    assert [one.task_id for one in merge_audits(lists, 2, 2)] == ["b"]


def counted(now: float, count: int, head: Task) -> Stats:
    move = Moves(
        before=Status.PENDING, after=Status.RUNNING, count=count, dwell_seconds=count * 2.0
    )
    return Stats(
        by_status={Status.PENDING: count},
        by_queue={"q": {Place.READY: count}},
        moves=(move,),
        refused={"PENDING discard": count},
        heads={"q": head},
        now=now,
    )


def test_of_several_partitions_the_latest_says_how_late_it_is() -> None:
    one, two = counted(NOW, 1, made("a", NOW)), counted(NOW, 1, made("b", NOW))
    late = [{Awaited.TASK: 3.0, Awaited.PLAN: 1.0}, {Awaited.TASK: 9.0}]
    parts = [replace(part, late_seconds=of) for part, of in zip((one, two), late, strict=True)]
    assert merge_stats(parts).late_seconds == {Awaited.TASK: 9.0, Awaited.PLAN: 1.0}


def test_the_numbers_of_several_partitions_add_up() -> None:
    younger, older = made("a", NOW), made("b", NOW - 10)
    merged = merge_stats([counted(NOW, 2, younger), counted(NOW + 1, 3, older)])
    assert merged == Stats(
        by_status={Status.PENDING: 5},
        by_queue={"q": {Place.READY: 5}},
        moves=(Moves(before=Status.PENDING, after=Status.RUNNING, count=5, dwell_seconds=10.0),),
        refused={"PENDING discard": 5},
        heads={"q": older},
        now=NOW + 1,
    )
