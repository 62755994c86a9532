"""In which order a worker asks for work and for deliveries."""

from holdfast.domain import notification
from holdfast.runtime.worker.claimer import ASIDE_SECONDS, DELIVERIES, Lanes, SlotRequest
from holdfast.testing.clock import ManualClock


class Worker:
    """Whose work never ends, so that every claim for it is filled."""

    def __init__(self, slots: int = 4) -> None:
        self.clock = ManualClock()
        self.lanes = Lanes(("default", notification.QUEUE), slots, self.clock)

    def ask(self, deliveries: int) -> str:
        """What is asked for, when so many deliveries wait; they are put off at once."""
        asked = self.lanes.next_request()
        assert isinstance(asked, SlotRequest)
        claimed = asked.limit if asked.for_work else min(asked.limit, deliveries)
        self.lanes.note_answer(asked, claimed)
        return "work" if asked.for_work else "deliveries"


def test_where_many_deliveries_wait_they_take_turns_with_the_work() -> None:
    worker = Worker()
    assert worker.ask(1000) == "work"
    worker.clock.advance(ASIDE_SECONDS)
    asked = [worker.ask(1000) for _ in range(6)]
    assert asked == ["deliveries", "work"] * 3


def test_where_few_deliveries_wait_they_are_looked_for_once_a_second() -> None:
    worker = Worker()
    assert worker.ask(3) == "work"
    worker.clock.advance(ASIDE_SECONDS)
    assert [worker.ask(3) for _ in range(4)] == ["deliveries", "work", "work", "work"]


def test_a_worker_without_a_free_slot_asks_for_deliveries_while_there_are_some() -> None:
    worker = Worker(slots=1)
    assert worker.ask(1000) == "work"
    worker.lanes.begin("default")
    worker.clock.advance(ASIDE_SECONDS)
    assert [worker.ask(1000) for _ in range(3)] == ["deliveries"] * 3
    for _ in range(DELIVERIES):
        worker.lanes.begin(notification.QUEUE)
    assert worker.lanes.next_request() is None
