"""The positions on the page of each of the three state machines; `diagram.py` draws them."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.domain.diagram import Arrow, Mover, Picture, Point, Route
from holdfast.domain.plan import plan
from holdfast.domain.plan.plan import PlanCommand, PlanStatus
from holdfast.domain.task import state
from holdfast.domain.task.state import Command, Status
from holdfast.domain.trigger import trigger
from holdfast.domain.trigger.trigger import TriggerCommand, TriggerStatus

S, P, T = Status, PlanStatus, TriggerStatus

ASKED, MOVED, HELD = "#1d5fbf", "#5b7f3a", "#333333"
PERSON = Mover(colour=ASKED, legend="a person asks")

TASK_CENTRES: Mapping[Status, Point] = {
    S.CREATED: (95, 300),
    S.PENDING: (360, 300),
    S.RUNNING: (690, 300),
    S.COMPLETED: (1130, 300),
    S.RETRYING: (510, 110),
    S.FAILED: (900, 110),
    S.PAUSED: (510, 470),
    S.ROLLING_BACK: (960, 470),
    S.ROLLED_BACK: (1230, 470),
    S.CANCELLED: (600, 640),
    S.ROLLBACK_FAILED: (960, 640),
}

TASK_ROUTES: Mapping[tuple[Status, Status], Route] = {
    (S.CREATED, S.PENDING): ((197, 300), [(170, 300), (285, 300)]),
    (S.CREATED, S.CANCELLED): ((150, 660), [(95, 325), (95, 660), (525, 660)]),
    (S.PENDING, S.RUNNING): ((472, 288), [(435, 288), (615, 288)]),
    (S.PENDING, S.PAUSED): ((405, 395), [(405, 325), (405, 458), (435, 458)]),
    (S.PENDING, S.CANCELLED): ((310, 560), [(310, 325), (310, 620), (525, 620)]),
    (S.RUNNING, S.COMPLETED): ((995, 300), [(765, 300), (1055, 300)]),
    (S.RUNNING, S.RETRYING): ((650, 190), [(650, 275), (650, 110), (585, 110)]),
    (S.RUNNING, S.FAILED): ((730, 190), [(730, 275), (730, 110), (825, 110)]),
    (S.RUNNING, S.PAUSED): ((635, 395), [(635, 325), (635, 458), (585, 458)]),
    (S.RUNNING, S.CANCELLED): ((660, 560), [(660, 325), (660, 615)]),
    (S.RUNNING, S.PENDING): ((565, 312), [(615, 312), (435, 312)]),
    (S.RETRYING, S.PENDING): ((405, 190), [(435, 122), (405, 122), (405, 275)]),
    (S.RETRYING, S.PAUSED): ((510, 395), [(510, 135), (510, 445)]),
    (S.RETRYING, S.CANCELLED): ((225, 395), [(435, 98), (225, 98), (225, 640), (525, 640)]),
    (S.PAUSED, S.PENDING): ((365, 430), [(435, 482), (365, 482), (365, 325)]),
    (S.PAUSED, S.CANCELLED): ((550, 560), [(550, 495), (550, 615)]),
    (S.PAUSED, S.ROLLING_BACK): ((760, 482), [(585, 482), (885, 482)]),
    (S.COMPLETED, S.ROLLING_BACK): ((1085, 395), [(1085, 325), (1085, 458), (1035, 458)]),
    (S.FAILED, S.PENDING): ((620, 52), [(900, 85), (900, 52), (355, 52), (355, 275)]),
    (S.FAILED, S.ROLLING_BACK): ((945, 395), [(945, 135), (945, 445)]),
    (S.FAILED, S.CANCELLED): ((845, 395), [(845, 135), (845, 625), (675, 625)]),
    (S.CANCELLED, S.ROLLING_BACK): (
        (760, 641),
        [(675, 641), (865, 641), (865, 545), (900, 545), (900, 495)],
    ),
    (S.ROLLING_BACK, S.ROLLED_BACK): ((1096, 502), [(1035, 482), (1155, 482)]),
    (S.ROLLING_BACK, S.ROLLBACK_FAILED): ((1012, 548), [(1000, 495), (1000, 615)]),
    (S.ROLLED_BACK, S.PENDING): ((620, 22), [(1265, 445), (1265, 22), (315, 22), (315, 275)]),
    (S.ROLLBACK_FAILED, S.ROLLING_BACK): ((938, 580), [(938, 615), (938, 495)]),
    (S.ROLLBACK_FAILED, S.CANCELLED): ((760, 657), [(885, 657), (675, 657)]),
}

WORKER = Mover(colour=HELD, legend="the worker that holds the lease")
STORE = Mover(colour=MOVED, legend="the store, over many tasks at once")


def _task_mover(edge: Arrow[Status, Command]) -> Mover:
    if edge.before is S.RUNNING:
        return WORKER
    first = edge.commands[0]
    return PERSON if first in state.OPERATOR else STORE if first in state.STORE else WORKER


TASKS = Picture(
    title="The states of a task",
    machine=state.MACHINE,
    begins=(S.CREATED, S.PENDING),
    suspended=state.SUSPENDED,
    settled=state.SETTLED,
    movers=(PERSON, WORKER, STORE),
    mover_of=_task_mover,
    width=1330,
    height=740,
    centres=TASK_CENTRES,
    routes=TASK_ROUTES,
)


PLAN_CENTRES: Mapping[PlanStatus, Point] = {
    P.CREATED: (95, 330),
    P.READY: (330, 330),
    P.RUNNING: (600, 330),
    P.PAUSED: (430, 480),
    P.COMPLETED: (960, 100),
    P.PARTIAL_FAILED: (960, 210),
    P.FAILED: (960, 330),
    P.HALTED: (960, 440),
    P.CANCELLED: (640, 620),
    P.ROLLED_BACK: (1320, 160),
    P.ROLLING_BACK: (1320, 320),
    P.ROLLBACK_FAILED: (1320, 490),
}

# The lines of several commands run together where they enter or leave a status.
TO_ROLLING_BACK = ((1182, 318), (1245, 318))
TO_CANCELLED = ((1162, 632), (715, 632))
TO_RUNNING = ((715, 342), (675, 342))
FROM_RUNNING = ((675, 318), (755, 318))

PLAN_ROUTES: Mapping[tuple[PlanStatus, PlanStatus], Route] = {
    (P.CREATED, P.READY): ((212, 330), [(170, 330), (255, 330)]),
    (P.CREATED, P.CANCELLED): ((95, 555), [(95, 355), (95, 632), (565, 632)]),
    (P.READY, P.RUNNING): ((463, 318), [(405, 318), (525, 318)]),
    (P.READY, P.PAUSED): ((380, 405), [(380, 355), (380, 455)]),
    (P.READY, P.CANCELLED): ((280, 555), [(280, 355), (280, 620), (565, 620)]),
    (P.RUNNING, P.PAUSED): ((560, 405), [(560, 355), (560, 468), (505, 468)]),
    (P.RUNNING, P.HALTED): ((822, 428), [*FROM_RUNNING, (755, 428), (885, 428)]),
    (P.RUNNING, P.COMPLETED): ((822, 100), [*FROM_RUNNING, (755, 100), (885, 100)]),
    (P.RUNNING, P.PARTIAL_FAILED): ((822, 198), [*FROM_RUNNING, (755, 198), (885, 198)]),
    (P.RUNNING, P.FAILED): ((822, 318), [(675, 318), (885, 318)]),
    (P.RUNNING, P.CANCELLED): ((650, 440), [(650, 355), (650, 595)]),
    (P.PAUSED, P.RUNNING): ((470, 405), [(470, 455), (470, 345), (525, 345)]),
    (P.PAUSED, P.ROLLING_BACK): ((822, 492), [(505, 492), (1182, 492), *TO_ROLLING_BACK]),
    (P.PAUSED, P.CANCELLED): ((430, 555), [(430, 505), (430, 608), (565, 608)]),
    (P.HALTED, P.RUNNING): ((822, 452), [(885, 452), (715, 452), *TO_RUNNING]),
    (P.HALTED, P.ROLLING_BACK): ((1097, 428), [(1035, 428), (1182, 428), *TO_ROLLING_BACK]),
    (P.HALTED, P.CANCELLED): ((1097, 452), [(1035, 452), (1162, 452), *TO_CANCELLED]),
    (P.COMPLETED, P.ROLLING_BACK): ((1097, 100), [(1035, 100), (1182, 100), *TO_ROLLING_BACK]),
    (P.RUNNING, P.ROLLING_BACK): (
        (760, 12),
        [(560, 305), (560, 12), (1470, 12), (1470, 320), (1395, 320)],
    ),
    (P.PARTIAL_FAILED, P.COMPLETED): ((960, 155), [(960, 185), (960, 125)]),
    (P.PARTIAL_FAILED, P.RUNNING): ((822, 222), [(885, 222), (715, 222), *TO_RUNNING]),
    (P.PARTIAL_FAILED, P.ROLLING_BACK): ((1097, 198), [(1035, 198), (1182, 198), *TO_ROLLING_BACK]),
    (P.PARTIAL_FAILED, P.CANCELLED): ((1097, 222), [(1035, 222), (1162, 222), *TO_CANCELLED]),
    (P.FAILED, P.COMPLETED): (
        (1045, 258),
        [(1000, 305), (1000, 285), (1045, 285), (1045, 145), (1000, 145), (1000, 125)],
    ),
    (P.FAILED, P.PARTIAL_FAILED): ((960, 270), [(960, 305), (960, 235)]),
    (P.FAILED, P.RUNNING): ((822, 342), [(885, 342), (675, 342)]),
    (P.FAILED, P.ROLLING_BACK): ((1097, 318), [(1035, 318), (1245, 318)]),
    (P.FAILED, P.CANCELLED): ((1097, 342), [(1035, 342), (1162, 342), *TO_CANCELLED]),
    (P.CANCELLED, P.ROLLING_BACK): ((822, 608), [(715, 608), (1182, 608), *TO_ROLLING_BACK]),
    (P.ROLLING_BACK, P.ROLLED_BACK): ((1285, 262), [(1285, 295), (1285, 185)]),
    (P.ROLLING_BACK, P.ROLLBACK_FAILED): ((1345, 385), [(1345, 345), (1345, 465)]),
    (P.ROLLED_BACK, P.ROLLING_BACK): ((1370, 212), [(1370, 185), (1370, 295)]),
    (P.ROLLED_BACK, P.CANCELLED): (
        (1097, 670),
        [(1395, 150), (1500, 150), (1500, 670), (640, 670), (640, 645)],
    ),
    (P.ROLLED_BACK, P.RUNNING): ((960, 35), [(1320, 135), (1320, 35), (600, 35), (600, 305)]),
    (P.ROLLBACK_FAILED, P.ROLLED_BACK): (
        (1440, 420),
        [(1395, 490), (1440, 490), (1440, 172), (1395, 172)],
    ),
    (P.ROLLBACK_FAILED, P.ROLLING_BACK): ((1275, 425), [(1275, 465), (1275, 345)]),
    (P.ROLLBACK_FAILED, P.CANCELLED): ((1255, 632), [(1320, 515), (1320, 632), (715, 632)]),
}

MAKER = Mover(colour=MOVED, legend="whoever makes it, when all its tasks are in")
DRIVER = Mover(colour=HELD, legend="the instance that drives it")


def _plan_mover(edge: Arrow[PlanStatus, PlanCommand]) -> Mover:
    first = edge.commands[0]
    return PERSON if first in plan.ASKED else MAKER if first is PlanCommand.SEAL else DRIVER


PLANS = Picture(
    title="The states of a plan",
    machine=plan.MACHINE,
    begins=(P.CREATED,),
    suspended=plan.SUSPENDED,
    settled=plan.SETTLED,
    movers=(PERSON, DRIVER, MAKER),
    mover_of=_plan_mover,
    width=1530,
    height=745,
    centres=PLAN_CENTRES,
    routes=PLAN_ROUTES,
)


TRIGGER_CENTRES: Mapping[TriggerStatus, Point] = {
    T.PENDING: (120, 240),
    T.PROCESSING: (520, 240),
    T.SUSPENDED: (520, 100),
    T.PAUSED: (520, 400),
    T.COMPLETED: (960, 240),
    T.CANCELLED: (960, 400),
}

TRIGGER_ROUTES: Mapping[tuple[TriggerStatus, TriggerStatus], Route] = {
    (T.PENDING, T.PROCESSING): ((320, 228), [(195, 228), (445, 228)]),
    (T.PENDING, T.COMPLETED): ((720, 40), [(160, 215), (160, 40), (1005, 40), (1005, 215)]),
    (T.PENDING, T.PAUSED): ((320, 388), [(140, 265), (140, 388), (445, 388)]),
    (T.PENDING, T.CANCELLED): ((320, 470), [(65, 265), (65, 470), (960, 470), (960, 425)]),
    (T.PROCESSING, T.PENDING): ((320, 252), [(445, 252), (195, 252)]),
    (T.PROCESSING, T.COMPLETED): ((685, 234), [(595, 234), (885, 234)]),
    (T.PROCESSING, T.SUSPENDED): ((520, 170), [(520, 215), (520, 125)]),
    (T.PROCESSING, T.PAUSED): ((520, 320), [(520, 265), (520, 375)]),
    (T.PROCESSING, T.CANCELLED): ((740, 330), [(595, 254), (740, 254), (740, 400), (885, 400)]),
    (T.PAUSED, T.COMPLETED): (
        (650, 340),
        [(595, 388), (650, 388), (650, 285), (940, 285), (940, 265)],
    ),
    (T.PAUSED, T.PENDING): ((320, 412), [(445, 412), (100, 412), (100, 265)]),
    (T.PAUSED, T.CANCELLED): ((685, 414), [(595, 414), (885, 414)]),
    (T.SUSPENDED, T.COMPLETED): ((685, 88), [(595, 88), (960, 88), (960, 215)]),
    (T.SUSPENDED, T.PENDING): ((320, 100), [(445, 100), (120, 100), (120, 215)]),
    (T.SUSPENDED, T.CANCELLED): ((685, 112), [(595, 112), (800, 112), (800, 386), (885, 386)]),
}

SCHEDULER = Mover(colour=HELD, legend="the scheduler that has it")
LEASER = Mover(colour=MOVED, legend="the store, when its time has come")


def _trigger_mover(edge: Arrow[TriggerStatus, TriggerCommand]) -> Mover:
    first = edge.commands[0]
    if first is TriggerCommand.LEASE:
        return LEASER
    # A trigger that fires once is finished when a person has fired it.
    fired = first is TriggerCommand.FINISH and edge.before is not T.PROCESSING
    return PERSON if fired or first in trigger.ASKED else SCHEDULER


TRIGGERS = Picture(
    title="The states of a trigger",
    machine=trigger.MACHINE,
    begins=(T.PENDING,),
    suspended=(T.SUSPENDED,),
    settled=frozenset(TriggerStatus) - trigger.UNFINISHED,
    movers=(PERSON, SCHEDULER, LEASER),
    mover_of=_trigger_mover,
    width=1080,
    height=560,
    centres=TRIGGER_CENTRES,
    routes=TRIGGER_ROUTES,
)
