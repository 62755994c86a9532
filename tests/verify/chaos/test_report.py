"""What chaos is asked for, and the page it writes."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from verify.chaos import document
from verify.chaos.__main__ import main
from verify.chaos.amounts import (
    LONG,
    REDIS,
    ROUND_KILLS_MAX,
    SHORT,
    SQLITE,
    TIMED_KILLS_MAX,
    TIMED_LONG,
    TIMED_SHORT,
    Amount,
)
from verify.chaos.crew import KillCounts
from verify.chaos.judges.plans import PlanHistory, judge_plans
from verify.chaos.judges.tasks import History, judge
from verify.chaos.judges.triggers import TriggerHistory, judge_triggers
from verify.chaos.report import by_subject, rows
from verify.chaos.round_plan import RoundPlan, Subject
from verify.chaos.rounds import FinishedRound
from verify.chaos.wire import harms_for
from verify.proxy import REPLIES_LOST, Harm

NO_HISTORY = History(expected={}, records={}, lines=[], findings=[], lease_seconds=1.0)
NOTHING = judge(NO_HISTORY)
NO_PLANS = judge_plans(PlanHistory(expected={}, plans={}, beside=NO_HISTORY))
NO_TRIGGERS = judge_triggers(TriggerHistory(names=[], triggers=[], tasks=[], lines=[], findings=[]))


def one_round(*, tenants: int = 5, kills: int = 3, store: str = "sqlite") -> FinishedRound:
    plan = RoundPlan(
        name="round-1",
        store=store,
        folder=Path("nowhere"),
        tenants=tenants,
        kills=kills,
        zombies=0,
        tasks=0,
        seed=7,
        seconds=1.0,
    )
    tally = KillCounts(kills=kills, settled=True, calm_after_seconds=2.0)
    return FinishedRound(plan=plan, tally=tally, verdict=NOTHING, seconds=4.0, version="SQLite 3")


def section(store: str, kills: int) -> document.Section:
    one = one_round(kills=kills, store=store)
    return document.Section(store=store, version=store, arguments=["--long"], rounds=[one])


def test_a_store_s_figures_replace_its_own_and_leave_the_other_s(tmp_path: Path) -> None:
    page = tmp_path / "reliability.md"
    for store, kills in ((SQLITE, 11), (REDIS, 22), (SQLITE, 33)):
        document.write(page, section(store, kills))
    text = page.read_text()
    assert [text.count(f"|workers killed|{kills}|") for kills in (11, 22, 33)] == [0, 1, 1]
    assert text.index("## sqlite") < text.index("## redis")
    assert text.count("# Reliability") == 1


def test_what_the_page_says_above_its_figures_is_told_anew(tmp_path: Path) -> None:
    page = tmp_path / "reliability.md"
    document.write(page, section(SQLITE, 11))
    first = page.read_text()
    page.write_text(first.replace("This page shows", "This page once showed"))
    document.write(page, section(SQLITE, 11))
    assert page.read_text() == first


def test_each_subject_has_a_table_of_its_own() -> None:
    rounds = [one_round(), of_subject(Subject.PLANS), of_subject(Subject.TRIGGERS)]
    assert list(by_subject(rounds)) == [Subject.TASKS, Subject.PLANS, Subject.TRIGGERS]
    assert rows(rounds[1:2])["over max_concurrency"] == ["0"]
    assert rows(rounds[2:])["fire times with two tasks"] == ["0"]
    text = document.Section(store=SQLITE, version="", arguments=[], rounds=rounds).text
    assert [text.count(f"| |{name}|") for name in ("5 tenants", "plans", "triggers")] == [1, 1, 1]


def of_subject(subject: Subject) -> FinishedRound:
    one = one_round()
    verdict = NO_PLANS if subject is Subject.PLANS else NO_TRIGGERS
    return replace(one, plan=replace(one.plan, subject=subject), verdict=verdict)


def test_rounds_over_as_many_tenants_are_counted_together() -> None:
    rounds = [one_round(tenants=5), one_round(tenants=400), one_round(tenants=5, kills=4)]
    assert rows(rounds)["workers killed"] == ["7", "3"]
    assert rows(rounds)["seconds"] == ["8.0", "4.0"]


def test_harm_that_was_planned_and_not_dealt_is_a_complaint() -> None:
    good = one_round()
    assert good.complaints == []
    planned = replace(good.plan, server_kills=1, wire=harms_for(10))
    short = replace(good, plan=planned, tally=replace(good.tally, wire=Counter({Harm.LOSE: 9})))
    assert "only 0 kills of the server" in str(short.complaints)


def test_of_the_lost_replies_that_are_asked_for_none_is_missing() -> None:
    for lost in (0, 1, 7, 200):
        harms = harms_for(lost)
        assert sum(harms.get(harm, 0) for harm in REPLIES_LOST) == lost


@pytest.mark.parametrize("amount", [*SHORT.values(), *LONG.values()])
def test_the_parts_make_up_the_whole_and_none_is_too_large(amount: Amount) -> None:
    count = amount.rounds(2)
    parts = [amount.part(number, count) for number in range(count)]
    assert count % 2 == 0
    assert max(part.kills for part in parts) <= ROUND_KILLS_MAX
    assert sum(part.lost_replies for part in parts) == amount.lost_replies


@pytest.mark.parametrize("amount", [*TIMED_SHORT.values(), *TIMED_LONG.values()])
def test_rounds_of_triggers_and_plans_are_small(amount: Amount) -> None:
    count = amount.rounds(1, TIMED_KILLS_MAX)
    parts = [amount.part(number, count) for number in range(count)]
    assert max(part.kills for part in parts) <= TIMED_KILLS_MAX
    assert sum(part.kills for part in parts) == amount.kills


def test_a_broken_promise_is_told_with_its_seed() -> None:
    short = replace(one_round(), tally=KillCounts(kills=3))
    assert short.complaints == ["round-1 (seed 7): not all was settled after 1 s"]


def test_a_store_without_a_server_has_none_to_kill() -> None:
    with pytest.raises(SystemExit, match="need --store redis"):
        main(["--server-kills", "1"])
