"""The JSON of tasks is made here, with secrets hidden."""

from __future__ import annotations

from holdfast.cli.output import redaction
from holdfast.domain.audit import Audit
from holdfast.domain.task.history import HistoryStep
from holdfast.domain.task.task import Failure, Task
from holdfast.insight.views import audit, tasks
from holdfast.insight.views.audit import AuditView, TransitionView
from holdfast.insight.views.tasks import Error, TaskDetail, TaskView
from holdfast.insight.views.view import keys
from holdfast.ports import Detail

TASK_KEYS = keys(TaskView)
DETAIL_KEYS = keys(TaskDetail, without=TaskView)

asked_view = tasks.asked_view


def task_view(task: Task) -> TaskView:
    return tasks.task_view(task, redaction.current())


def detail_view(detail: Detail, now: float) -> TaskDetail:
    return tasks.detail_view(detail, redaction.current(), now=now)


def failure_view(failure: Failure) -> Error:
    return tasks.failure_view(failure, redaction.current())


def audit_view(entry: Audit) -> AuditView:
    return audit.audit_view(entry, redaction.current())


def transition_view(step: HistoryStep) -> TransitionView:
    return audit.transition_view(step, redaction.current())
