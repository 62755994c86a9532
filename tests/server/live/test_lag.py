"""How late news is told: what was there before a stream began is history, not late."""

from holdfast.domain.task.state import Status
from holdfast.domain.task.task import Task
from holdfast.server.live.live_feed import LiveFeeds
from holdfast.testing.clock import ManualClock
from tests.server.conftest import declared


def task(version: int, *, changed_seconds_ago: float, watch_now: float) -> Task:
    at = watch_now - changed_seconds_ago
    return Task(
        id="t",
        type="mail.send",
        stages=("send",),
        created_at=at,
        status=Status.RUNNING,
        status_since=at,
        updated_at=at,
        version=version,
    )


def test_only_what_changes_while_somebody_watches_can_be_late() -> None:
    lags, app = list[float](), declared(clock=ManualClock())
    now = app.clock.now()
    watch = LiveFeeds(app, lag=lags.append)
    seen = watch.note_lag(task(3, changed_seconds_ago=3600, watch_now=now), None)
    assert lags == [], "the history of a task is not late"
    seen = watch.note_lag(task(3, changed_seconds_ago=3600, watch_now=now), seen)
    assert lags == [], "nothing is new"
    watch.note_lag(task(4, changed_seconds_ago=7, watch_now=now), seen)
    assert lags == [7]
