"""What is raised, what is cleared, and what is said once only."""

from typing import Any

import pytest

from holdfast.domain.task.state import Status
from holdfast.observe import alerts
from holdfast.observe.alerts import AlertCleared, AlertRaised, Alerts, Thresholds, judge
from holdfast.observe.snapshot import Severity, Snapshot
from holdfast.ports import Awaited, OutageGroup, Switch
from tests.support.observe.snapshots import snapshot, thrown, waiting, worker
from tests.support.task_records import NOW

LIMITS = Thresholds(backlog={"mail": 10, "*": 100})
SERVED = {"workers": (worker("w-1", "mail", "other", "default"),)}


def judged(facts: Snapshot, before: Alerts | None = None, *, now: float = NOW) -> Alerts:
    return judge(facts, LIMITS, before or {}, now=now)


def names(found: Alerts) -> set[tuple[str, str]]:
    return set(found)


def test_a_store_at_peace_raises_nothing() -> None:
    facts = snapshot(snapshot_of=SERVED, **waiting("default", 5), checkpoints=5, locks=5)
    assert judged(facts) == {}


@pytest.mark.parametrize(
    ("code", "at", "above"),
    [
        ("checkpoints", {"checkpoints": 10_000}, {"checkpoints": 10_001}),
        ("tenant-locks", {"locks": 100}, {"locks": 101}),
    ],
)
def test_what_is_counted_is_raised_above_its_threshold(
    code: str, at: dict[str, Any], above: dict[str, Any]
) -> None:
    assert judged(snapshot(**at)) == {}
    assert names(judged(snapshot(**above))) == {(code, "")}


def test_an_alert_stands_until_its_value_is_below_four_fifths() -> None:
    first = judged(snapshot(locks=101))
    between = judged(snapshot(locks=80), first, now=NOW + 60)
    assert names(between) == {("tenant-locks", "")}
    assert between["tenant-locks", ""].since == NOW, "it stands since it was raised"
    assert judged(snapshot(locks=79), between) == {}
    assert judged(snapshot(locks=100)) == {}, "and it is not raised between the two"


def test_the_backlog_of_a_queue_is_judged_by_its_own_threshold_or_that_of_the_others() -> None:
    assert judged(snapshot(snapshot_of=SERVED, **waiting("mail", 10))) == {}
    assert names(judged(snapshot(snapshot_of=SERVED, **waiting("mail", 11)))) == {
        ("backlog", "mail")
    }
    assert judged(snapshot(snapshot_of=SERVED, **waiting("other", 11))) == {}
    assert names(judged(snapshot(snapshot_of=SERVED, **waiting("other", 101)))) == {
        ("backlog", "other")
    }


def test_the_backlog_is_what_waits_in_the_queue_in_a_line_or_for_a_time() -> None:
    facts = snapshot(snapshot_of=SERVED, **waiting("mail", 4, line=4, later=3, parked=90, leased=9))
    assert judged(facts)["backlog", "mail"].value == 11


def test_without_a_threshold_for_other_queues_they_are_not_judged() -> None:
    facts = snapshot(snapshot_of=SERVED, **waiting("other", 10**9))
    assert judge(facts, Thresholds(backlog={"mail": 10}), {}, now=NOW) == {}


@pytest.mark.parametrize(
    ("code", "of"),
    [
        ("lone-lock", {"findings": {"I2": 1}}),
        ("event-lag", {"event_lag_seconds": 5.1}),
        ("not-durable", {"durable": False}),
    ],
)
def test_what_is_wrong_with_the_whole_store_is_raised(code: str, of: dict[str, Any]) -> None:
    raised = judged(snapshot(snapshot_of=of))
    assert names(raised) == {(code, "")}
    fine = snapshot(snapshot_of={"findings": {}})
    assert judged(fine, raised) == {}, "and cleared when it is over"


def test_what_was_not_examined_is_as_it_was() -> None:
    raised = judged(snapshot(snapshot_of={"findings": {"I2": 1}}))
    assert judged(snapshot(), raised) == raised
    assert judged(snapshot()) == {}


def test_other_findings_and_a_small_lag_are_no_alert() -> None:
    of = {"findings": {"I11": 3}, "event_lag_seconds": 5.0}
    assert judged(snapshot(snapshot_of=of)) == {}


def test_suspended_tasks_are_told_with_their_number() -> None:
    facts = snapshot(by_status={Status.FAILED: 2, Status.ROLLBACK_FAILED: 1, Status.RUNNING: 9})
    [alert] = judged(facts).values()
    assert (alert.code, alert.value) == ("suspended", 3)
    assert "3" in alert.message


def test_one_is_not_told_as_many() -> None:
    limits = Thresholds(backlog={"*": 0}, checkpoints=0, tenant_locks=0)

    def said(number: int) -> list[str]:
        facts = snapshot(
            snapshot_of={"findings": {"I2": number}},
            **waiting("mail", number),
            by_status={Status.FAILED: number},
            checkpoints=number,
            locks=number,
        )
        return [alert.message for alert in judge(facts, limits, {}, now=NOW).values()]

    assert said(1) == [
        "1 checkpoint of unsettled tasks, threshold 0",
        "1 tenant is locked, threshold 0",
        "1 lock and its task do not agree: see `holdfast doctor`",
        "1 suspended task waits for a person",
        "1 task waits in queue mail, threshold 0",
        "1 ready, no worker serves queue mail",
    ]
    assert said(2) == [
        "2 checkpoints of unsettled tasks, threshold 0",
        "2 tenants are locked, threshold 0",
        "2 locks and their tasks do not agree: see `holdfast doctor`",
        "2 suspended tasks wait for a person",
        "2 tasks wait in queue mail, threshold 0",
        "2 ready, no worker serves queue mail",
    ]


@pytest.mark.parametrize(
    "workers",
    [
        (),
        (worker("w-1", "other"),),
        (worker("w-1", "mail", live=False),),
        (worker("draining", "mail"),),
    ],
    ids=["none", "of another queue", "lost", "draining"],
)
def test_ready_tasks_that_no_worker_would_take_are_told(workers: Any) -> None:
    of = {"workers": workers, "switches": (thrown(Switch.DRAIN, "draining"),)}
    facts = snapshot(snapshot_of=of, **waiting("mail", 1))
    assert names(judged(facts)) == {("no-workers", "mail")}


def test_a_worker_that_serves_the_queue_is_enough() -> None:
    of = {"workers": (worker("w-1", "other"), worker("w-2", "mail"))}
    assert judged(snapshot(snapshot_of=of, **waiting("mail", 1))) == {}


def test_nothing_is_missed_where_nothing_waits() -> None:
    assert judged(snapshot(**waiting("mail", 0, line=3, later=3))) == {}


@pytest.mark.parametrize("kind", Awaited)
def test_what_is_late_while_no_worker_is_alive_is_told(kind: Awaited) -> None:
    of = {"workers": (worker("w-1", live=False),)}
    assert judged(snapshot(snapshot_of=of, late_seconds={kind: 15.0})) == {}, "a restart"
    found = judged(snapshot(snapshot_of=of, late_seconds={kind: 16.0}))
    assert names(found) == {alerts.NO_WORKERS}
    [alert] = found.values()
    assert alert.message == f"no worker is alive: {alerts.LATE[kind]} 16 s ago"
    assert (alert.severity, alert.value, alert.threshold) == (Severity.PAGE, 16.0, 15.0)


def test_all_that_is_late_is_in_one_alert() -> None:
    [alert] = judged(snapshot(late_seconds={Awaited.TASK: 20.0, Awaited.PLAN: 50.0})).values()
    assert alert.message == "no worker is alive: a task was due 20 s ago, a plan was due 50 s ago"
    assert alert.value == 50.0


@pytest.mark.parametrize("name", ["w-1", "draining"])
def test_any_live_worker_is_enough_for_what_is_late(name: str) -> None:
    of = {"workers": (worker(name, "other"),), "switches": (thrown(Switch.DRAIN, "draining"),)}
    facts = snapshot(snapshot_of=of, late_seconds=dict.fromkeys(Awaited, 3600.0))
    assert judged(facts, judged(snapshot(late_seconds={Awaited.PLAN: 50.0}))) == {}


def test_services_share_what_they_say_of_having_no_worker_at_all() -> None:
    assert alerts.NO_WORKERS in alerts.shared_names([])


def test_a_task_that_waits_too_long_is_told() -> None:
    facts = snapshot(snapshot_of=SERVED, **waiting("mail", 1, age_seconds=900))
    assert judged(facts) == {}
    facts = snapshot(snapshot_of=SERVED, **waiting("mail", 1, age_seconds=901))
    assert names(judged(facts)) == {("oldest-age", "mail")}


def test_a_queue_that_a_person_has_paused_may_wait() -> None:
    of = {"switches": (thrown(Switch.CLAIMING, "mail"),)}
    assert judged(snapshot(snapshot_of=of, **waiting("mail", 1, age_seconds=5000))) == {}
    backlog = judged(snapshot(snapshot_of=of, **waiting("mail", 11, age_seconds=5000)))
    assert names(backlog) == {("backlog", "mail")}, "but not without end"


def test_a_store_that_is_away_is_an_alert_beside_those_that_stood() -> None:
    before = judged(snapshot(locks=101))
    during = alerts.away("nobody answers", before, now=NOW + 5)
    later = alerts.away("nobody answers", during, now=NOW + 10)
    assert names(later) == {("tenant-locks", ""), ("store-away", "")}
    assert later["store-away", ""].since == NOW + 5
    assert names(judged(snapshot(locks=101), later)) == {("tenant-locks", "")}


def test_only_what_has_changed_is_told() -> None:
    before, after = judged(snapshot(locks=101)), judged(snapshot(checkpoints=10_001))
    assert list(alerts.changes(before, before, now=NOW)) == []
    assert list(alerts.changes(before, after, now=NOW + 9)) == [
        AlertRaised(alert=after["checkpoints", ""], at=NOW + 9),
        AlertCleared(alert=before["tenant-locks", ""], at=NOW + 9),
    ]


def test_each_alert_has_a_severity() -> None:
    away = OutageGroup(fingerprint="4f0c", error="Away", stage="store", since=NOW - 301)
    facts = snapshot(
        snapshot_of={
            "durable": False,
            "findings": {"I2": 1},
            "event_lag_seconds": 9.0,
            "outages": (away,),
        },
        **waiting("mail", 11, age_seconds=901),
        by_status={Status.FAILED: 1},
        checkpoints=10_001,
        locks=101,
    )
    found = alerts.away("nobody answers", judged(facts), now=NOW)
    assert {code for code, _ in found} == set(alerts.SEVERITIES)
    assert {code for code, name in found if name} == {*alerts.OF_QUEUES, *alerts.OF_GROUPS}
    assert (found["outage", "4f0c"].group, found["outage", "4f0c"].queue) == ("4f0c", "")
    assert found["no-workers", "mail"].severity is Severity.PAGE
