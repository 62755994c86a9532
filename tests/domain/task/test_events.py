"""Each kind of event is written and read again."""

from typing import Any

import msgspec
import pytest

from holdfast.domain.errors import SerialisationError
from holdfast.domain.task import events as ev
from holdfast.domain.task.placement import DUE, LOSE, START
from tests.support.task_records import BY, failure

SAMPLES: dict[str, Any] = {
    "task_id": "task-1",
    "version": 7,
    "at": 1.5,
    "type": "mail.send",
    "tenant": "t-1",
    "by": BY,
    "worker": "w-1",
    "fence": 3,
    "stage": "one",
    "attempt": 2,
    "run": 1,
    "epoch": 1,
    "duration_seconds": 0.25,
    "failure": failure(),
    "fraction": 0.5,
    "message": "copying",
    "reason": "because",
    "delay_seconds": 60.0,
    "failures": 2,
    "outages": 3,
    "from_checkpoint": True,
    "from_stage": "two",
    "had_undo": False,
    "counted": False,
    "checkpoint": 4,
    "changed": ("payload", "data"),
}


def sample(kind: type[ev.Event]) -> ev.Event:
    return kind(**{field: SAMPLES[field] for field in kind.__struct_fields__})


@pytest.mark.parametrize("kind", list(ev.KINDS.values()), ids=list(ev.KINDS))
def test_an_event_is_read_as_it_was_written(kind: type[ev.Event]) -> None:
    event = sample(kind)
    name = ev.name_of(event)
    assert ev.KINDS[name] is kind
    assert ev.decode(name, ev.encode(event)) == event


@pytest.mark.parametrize("kind", list(ev.KINDS.values()), ids=list(ev.KINDS))
def test_an_event_says_in_its_json_what_it_is(kind: type[ev.Event]) -> None:
    written = msgspec.json.decode(ev.encode(sample(kind)))
    assert written["event"] == ev.NAMES[kind]
    assert written["taskId"] == "task-1"
    assert all("_" not in key for key in written)


def test_the_kinds_are_all_events_of_the_module() -> None:
    defined = {
        found
        for found in vars(ev).values()
        if isinstance(found, type) and issubclass(found, ev.Event) and found is not ev.Event
    }
    assert {*ev.KINDS.values()} == defined


def test_an_event_is_stored_under_its_tag_whatever_its_class_is_called() -> None:
    """Events that share their stored name with an exception have a class named apart."""
    apart = {kind.__name__: name for name, kind in ev.KINDS.items() if kind.__name__ != name}
    assert apart == {
        "TaskFailedEvent": "TaskFailed",
        "TaskCancelledEvent": "TaskCancelled",
        "TaskRolledBackEvent": "TaskRolledBack",
    }


def test_optional_facts_may_be_left_out() -> None:
    event = ev.TaskPaused(task_id="task-1", version=2, at=0.0)
    assert ev.decode("TaskPaused", ev.encode(event)) == event


@pytest.mark.parametrize(
    ("name", "body"),
    [("Unknown", b"{}"), ("TaskDue", b"{"), ("TaskDue", b"{}"), ("TaskFailed", b'{"event":"X"}')],
)
def test_what_cannot_be_read_is_a_serialisation_error(name: str, body: bytes) -> None:
    with pytest.raises(SerialisationError, match=name):
        ev.decode(name, body)


@pytest.mark.parametrize("move", [START, DUE, LOSE])
def test_the_stores_own_moves_have_events(move: Any) -> None:
    event = ev.made_by_store(
        move.event, task_id="t", version=2, at=1.0, worker="w", fence=3, counted=False
    )
    assert ev.decode(move.event, ev.encode(event)) == event
    assert event.version == 2
