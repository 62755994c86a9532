"""One command acts on many tasks, and one refusal does not stop the others."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field

from rich.text import Text

from holdfast.cli.exit_codes import Exit, exit_code, print_error
from holdfast.cli.output.printer import hint, print_json, say, status_text, warn
from holdfast.cli.session import Session
from holdfast.domain.errors import Refused
from holdfast.domain.phrases import acts, count
from holdfast.domain.task.task import Task
from holdfast.engine.operations.expired_checkpoints import (
    Forecast,
    JudgedTasks,
    Outlook,
    load_outlooks,
    unknown_types,
)
from holdfast.insight.views.tasks import BatchView, asked_view

AT_ONCE = 100  # tasks that share a commit
NAMED = 10  # as many of thousands are named


@dataclass(slots=True)
class BatchReport:
    done: list[Task] = field(default_factory=list)
    refused: list[tuple[str, Refused]] = field(default_factory=list)
    code_unknown: tuple[str, ...] = ()  # types whose checkpoints only their code can judge

    @property
    def code(self) -> Exit:
        return max((exit_code(error) for _, error in self.refused), default=Exit.OK)


async def act(ids: Sequence[str], ask: Callable[[str], Awaitable[Task]]) -> BatchReport:
    """Run the command on each task, in pages. A store that does not answer ends it, because the
    remaining tasks would fail, too.
    """
    report = BatchReport()
    unique = list(dict.fromkeys(ids))
    for start in range(0, len(unique), AT_ONCE):
        page = unique[start : start + AT_ONCE]
        answers = await asyncio.gather(*(_task_or_refusal(task_id, ask) for task_id in page))
        for task_id, answer in zip(page, answers, strict=True):
            if isinstance(answer, Refused):
                report.refused.append((task_id, answer))
            else:
                report.done.append(answer)
    return report


async def act_onward(
    session: Session, ids: Sequence[str], ask: Callable[[str], Awaitable[Task]]
) -> BatchReport:
    """Run a command that continues tasks from their checkpoints, and warn of those that cannot."""
    ahead = await judge_checkpoints(session, ids)  # before a worker discards the checkpoint
    report = await act(ids, ask)
    going = {task.id for task in report.done}
    warn_of([outlook for outlook in ahead.outlooks if outlook.task_id in going])
    report.code_unknown = code_unknown(session, [task for task in ahead.tasks if task.id in going])
    return report


async def judge_checkpoints(session: Session, ids: Sequence[str]) -> JudgedTasks:
    find = session.app.registry.find
    return await load_outlooks(session.store, ids, now=session.now, find=find)


def code_unknown(session: Session, tasks: Iterable[Task]) -> tuple[str, ...]:
    return unknown_types(tasks, session.app.registry.find)


def hint_of_code(types: Sequence[str]) -> None:
    """Say that checkpoints of these types were judged without the code that declares them."""
    if types:
        named = ", ".join(types[:NAMED]) + (", …" if len(types) > NAMED else "")
        hint(
            f"this command does not know the code of {named}, so it cannot tell whether these "
            "tasks start over; the service can"
        )


def warn_of(ahead: Sequence[Outlook]) -> None:
    for outlook in ahead[:NAMED]:
        warn(f"{outlook.task_id} {outlook.message}: {outlook.why}")
    if len(ahead) > NAMED:
        over = sum(outlook.starts_over for outlook in ahead)
        warn(f"{len(ahead)} tasks in all are affected; {over} of them start over")


def warn_of_starting_over(ahead: Forecast, number: int) -> None:
    """Say how many tasks would start over, which ones, and whether all of them were checked."""
    if number:
        named = ", ".join(ahead.ids[:NAMED]) + (", …" if number > len(ahead.ids[:NAMED]) else "")
        warn(f"{count(number, 'task')} would start over, with new effect keys: {named}")
    if ahead.message:
        warn(f"not all tasks were checked for starting over: {ahead.message}")


async def _task_or_refusal(task_id: str, ask: Callable[[str], Awaitable[Task]]) -> Task | Refused:
    try:
        return await ask(task_id)
    except Refused as error:
        return error


def print_report(report: BatchReport, *, json: bool, brief: bool = False) -> Exit:
    """Print the outcome and return the exit code; ``brief`` prints counts and the first refusals
    only.
    """
    if json:
        print_json(_view(report))
        return report.code
    for task in [] if brief else report.done:
        say(_line(task))
    for task_id, error in report.refused[: NAMED if brief else None]:
        print_error(error, about=task_id)
    hint_of_code(report.code_unknown)
    if brief or len(report.done) + len(report.refused) > 1:
        say(f"{len(report.done)} done, {len(report.refused)} refused")
    return report.code


def _line(task: Task) -> Text:
    request = ""
    if task.cancel_requested:
        request = f"  cancel requested: {acts(task)}"
    elif task.pause_requested:
        request = f"  pause requested: {acts(task)}"
    return Text(f"{task.id}  ") + status_text(task.status) + Text(request)


def _view(report: BatchReport) -> BatchView:
    return {
        "done": [asked_view(task) for task in report.done],
        "refused": [
            {"taskId": task_id, "code": error.code, "message": str(error)}
            for task_id, error in report.refused
        ],
        "codeUnknown": list(report.code_unknown),
    }
