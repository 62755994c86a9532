"""The place machine, walked whole: every status in every place, every move, every ``Next``."""

import pytest

from holdfast.domain.task.placement import (
    ACTIVE,
    DUE,
    LOSE,
    PLACE_AFTER,
    RESTING,
    RUNNABLE,
    START,
    STATUSES_IN,
    STOPPED,
    WAITING,
    Next,
    Place,
    StoreMove,
    fits,
    opens_line,
)
from holdfast.domain.task.state import SETTLED, STORE, SUSPENDED, TABLE, Command, Status

S, P = Status, Place

# Written out beside the table, which derives it: a change of either has to be meant.
PLACES_OF: dict[Status, set[Place]] = {
    S.CREATED: {P.HELD},
    S.PENDING: {P.READY, P.LINE, P.LATER},
    S.RUNNING: {P.LEASED},
    S.RETRYING: {P.LATER},
    S.PAUSED: {P.PARKED},
    S.COMPLETED: {P.SETTLED},
    S.FAILED: {P.PARKED},
    S.CANCELLED: {P.SETTLED},
    S.ROLLING_BACK: {P.READY, P.LINE, P.LATER, P.LEASED},
    S.ROLLED_BACK: {P.SETTLED},
    S.ROLLBACK_FAILED: {P.PARKED},
}
MOVES = (START, DUE, LOSE)


@pytest.mark.parametrize("place", Place)
@pytest.mark.parametrize("status", Status)
def test_a_status_is_in_the_places_that_are_meant_for_it(status: Status, place: Place) -> None:
    assert fits(status, place) == (place in PLACES_OF[status])


def test_every_place_is_in_the_table() -> None:
    assert STATUSES_IN.keys() == set(Place)
    assert all(STATUSES_IN.values())


@pytest.mark.parametrize("move", MOVES)
def test_the_stores_moves_take_every_task_of_a_place_to_one_that_fits(move: StoreMove) -> None:
    assert STATUSES_IN[move.leaves] == move.to.keys()
    assert all(fits(status, move.enters) for status in move.to.values())


def test_a_task_in_line_is_started_like_one_that_is_ready() -> None:
    assert STATUSES_IN[P.LINE] == STATUSES_IN[P.READY]


def test_every_next_but_stay_leads_to_a_place() -> None:
    assert PLACE_AFTER.keys() == set(Next) - {Next.STAY}
    assert {*PLACE_AFTER.values()} == {P.READY, P.LATER, P.PARKED, P.SETTLED}


@pytest.mark.parametrize("status", Status)
def test_where_a_command_leads_some_place_fits(status: Status) -> None:
    """A command leads to a status whose place the transition's ``Next`` can name."""
    for command, after in TABLE[status].items():
        stays = any(fits(after, place) for place in PLACES_OF[status])
        goes = any(fits(after, place) for place in PLACE_AFTER.values())
        assert stays or goes or command is Command.START, (status, command)


def test_the_store_moves_tasks_by_its_own_commands_only() -> None:
    assert {move.event for move in MOVES} == {"TaskStarted", "TaskDue", "LeaseLost"}
    assert len(MOVES) == len(STORE)


def test_a_lease_is_held_in_one_place_only() -> None:
    assert [move.enters for move in MOVES].count(P.LEASED) == 1
    assert P.LEASED not in PLACE_AFTER.values()
    assert P.LEASED not in WAITING | RESTING | STOPPED


def test_the_sets_of_places_follow_from_one_another() -> None:
    assert {P.HELD} | RUNNABLE | STOPPED == set(Place)
    assert not RUNNABLE & STOPPED
    assert {status for place in STOPPED for status in STATUSES_IN[place]} == (
        SUSPENDED | SETTLED | {S.PAUSED}
    )
    assert ACTIVE <= RUNNABLE
    assert not ACTIVE & RESTING


@pytest.mark.parametrize("place", Place)
def test_a_line_opens_while_its_active_task_rests_and_does_not_hold_it(place: Place) -> None:
    assert opens_line(place, hold=False) == (place in {P.LATER, P.PARKED})
    assert not opens_line(place, hold=True)
