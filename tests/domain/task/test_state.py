"""The table of states: every status against every command."""

from itertools import product

import pytest

from holdfast.domain.errors import IllegalTransition
from holdfast.domain.task.placement import DUE, LOSE, START, StoreMove
from holdfast.domain.task.state import (
    HOLDER,
    OPERATOR,
    PLAN,
    RECORD,
    SETTLED,
    STORE,
    SUSPENDED,
    TABLE,
    Command,
    Status,
    can,
    legal,
    step,
)
from tests.support.task_records import task

S, C = Status, Command


@pytest.mark.parametrize(("status", "command"), list(product(Status, Command)))
def test_a_command_steps_as_the_table_says_or_is_refused(status: Status, command: Command) -> None:
    if command in TABLE[status]:
        assert can(status, command)
        assert step(status, command) is TABLE[status][command]
        return
    assert not can(status, command)
    with pytest.raises(IllegalTransition) as refused:
        step(status, command)
    assert (refused.value.status, refused.value.command) == (status, command)
    assert f"{command} is not legal in {status}" in str(refused.value)


@pytest.mark.parametrize("status", list(Status))
def test_a_refusal_says_what_is_legal_instead(status: Status) -> None:
    with pytest.raises(IllegalTransition) as refused:
        step(status, C.FINISH_ROLLBACK if status is not S.ROLLING_BACK else C.COMPLETE)
    named = ", ".join(legal(status))
    others = f"legal now: {named}" if named else "no command is legal now"
    assert str(refused.value).partition("; ")[2] == others


def test_every_status_has_its_row() -> None:
    assert set(TABLE) == set(Status)


def test_every_command_is_somebodys() -> None:
    assert set(Command) == OPERATOR | HOLDER | STORE | PLAN | RECORD
    assert not STORE & (OPERATOR | HOLDER)
    assert not PLAN & (OPERATOR | HOLDER | STORE)
    assert not RECORD & (OPERATOR | HOLDER | STORE | PLAN)
    assert {C.PAUSE, C.CANCEL} == OPERATOR & HOLDER


def test_every_command_is_legal_somewhere() -> None:
    assert {command for row in TABLE.values() for command in row} == set(Command)


@pytest.mark.parametrize("status", list(Status))
def test_the_holder_has_commands_only_where_a_task_can_be_held(status: Status) -> None:
    only_holders = HOLDER - OPERATOR
    if status in (S.RUNNING, S.ROLLING_BACK):
        assert only_holders & set(TABLE[status])
        assert C.LOSE in TABLE[status]
    else:
        assert not only_holders & set(TABLE[status])
        assert C.LOSE not in TABLE[status]


@pytest.mark.parametrize("status", list(Status))
def test_what_is_legal_is_what_an_operator_may_ask(status: Status) -> None:
    assert set(legal(status)) == OPERATOR & set(TABLE[status])


@pytest.mark.parametrize("status", list(Status))
def test_to_ask_whether_a_command_is_legal_changes_nothing(status: Status) -> None:
    before = task(status)
    answers = {command: before.can(command) for command in Command}
    assert before == task(status)
    withdraws = {C.RESUME} if status is S.RUNNING else set()  # and no pause was asked for
    legal_now = set(TABLE[status]) - withdraws
    assert answers == {command: command in legal_now for command in Command}


@pytest.mark.parametrize(
    ("command", "origins"),
    [
        (C.ROLLBACK, {S.FAILED, S.PAUSED, S.CANCELLED, S.COMPLETED, S.ROLLBACK_FAILED}),
        (C.RETRY, {S.FAILED, S.ROLLED_BACK, S.RETRYING}),
        (C.DISCARD, {S.FAILED, S.ROLLBACK_FAILED}),
        (C.RESUME, {S.PAUSED, S.RUNNING}),
        (C.PAUSE, {S.PENDING, S.RUNNING, S.RETRYING}),
        (C.CANCEL, {S.CREATED, S.PENDING, S.RUNNING, S.RETRYING, S.PAUSED}),
        (C.RELEASE, {S.CREATED}),
        (C.PUT_CHECKPOINT, {S.PAUSED, S.FAILED}),
        (C.REMOVE_CHECKPOINT, {S.PAUSED, S.FAILED}),
        (C.COMPLETE, {S.RUNNING}),
        (C.CHECKPOINT, {S.RUNNING}),
        (C.START, {S.PENDING, S.ROLLING_BACK}),
    ],
)
def test_a_command_is_legal_where_the_requirements_say(
    command: Command, origins: set[Status]
) -> None:
    assert {status for status in Status if can(status, command)} == origins


@pytest.mark.parametrize("status", sorted(SETTLED))
def test_settled_stays_settled_but_for_an_explicit_retry_or_rollback(status: Status) -> None:
    leaves = {command for command, to in TABLE[status].items() if to is not status}
    assert leaves <= {C.RETRY, C.ROLLBACK}


@pytest.mark.parametrize("status", sorted(SUSPENDED))
def test_a_person_can_set_a_suspended_task_going_or_discard_it(status: Status) -> None:
    assert C.DISCARD in TABLE[status]
    assert {C.RETRY, C.ROLLBACK} & set(TABLE[status])
    assert set(TABLE[status]) <= OPERATOR | PLAN | RECORD


def test_every_status_can_be_reached_from_a_submit() -> None:
    assert reached_from(S.CREATED) == set(Status)


@pytest.mark.parametrize("status", sorted(set(Status) - SETTLED))
def test_every_unsettled_status_can_come_to_an_end(status: Status) -> None:
    assert reached_from(status) & SETTLED


def test_no_last_stage_completes_a_task_by_itself() -> None:
    assert [s for s in Status if S.COMPLETED in TABLE[s].values()] == [S.RUNNING]
    assert [c for c, after in TABLE[S.RUNNING].items() if after is S.COMPLETED] == [C.COMPLETE]


@pytest.mark.parametrize(
    ("move", "command", "event"),
    [(START, C.START, "TaskStarted"), (DUE, C.DUE, "TaskDue"), (LOSE, C.LOSE, "LeaseLost")],
)
def test_the_stores_moves_are_rows_of_the_table(
    move: StoreMove, command: Command, event: str
) -> None:
    assert move.event == event
    assert move.to == {s: TABLE[s][command] for s in Status if command in TABLE[s]}


def reached_from(status: Status) -> set[Status]:
    seen, todo = {status}, [status]
    while todo:
        found = set(TABLE[todo.pop()].values()) - seen
        seen |= found
        todo += found
    return seen
