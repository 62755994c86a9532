"""The JSON views of the audit chain and of transitions."""

from __future__ import annotations

from typing import Annotated

from holdfast.domain.audit import Audit
from holdfast.domain.redaction import Redactor
from holdfast.domain.task.envelope import iso
from holdfast.domain.task.history import HistoryStep, Maker
from holdfast.domain.task.state import Command, Status
from holdfast.engine.operations.audit import ChainVerdict, format_link
from holdfast.engine.operations.audit_gaps import Missing
from holdfast.insight.views import fields
from holdfast.insight.views.view import Time, View, about, example

_HASH = "7c4e0c0b4f0c4f8b6a5b5d0e6f0d7d3a9d3f5a1b2c4d6e8f00112233445566aa"


class AuditView(View):
    at: Time
    actor: Annotated[str, example("api:ann")]
    origin: Annotated[str, example("10.0.0.7")]
    reason: Annotated[str, example("a duplicate")]
    command: Annotated[str, example(Command.CANCEL)]
    taskId: Annotated[
        fields.TaskId, about("The id of a task, or plan:ID, trigger:ID, queue:NAME, worker:NAME")
    ]
    before: Annotated[str, example(Status.PENDING)]
    after: Annotated[str, example(Status.CANCELLED)]
    refused: Annotated[str | None, example(None, "The code of the refusal; null if it was done")]


class AuditPage(View):
    entries: list[AuditView]
    cursor: fields.Cursor


class AuditList(View):
    entries: list[AuditView]
    cursor: int | None


class TransitionView(View):
    at: Time
    taskId: fields.TaskId
    version: Annotated[int, example(2, "The version of the record after the transition")]
    command: Annotated[str, example("start")]
    before: Annotated[Status | None, example(Status.PENDING, "null if the task is new")]
    after: Annotated[Status, example(Status.RUNNING)]
    maker: Annotated[Maker, example(Maker.WORKER)]
    name: Annotated[fields.WorkerName, about("The worker, actor, plan or trigger")]
    origin: fields.Origin
    reason: Annotated[str, example("")]


class TransitionList(View):
    transitions: list[TransitionView]
    cursor: fields.Cursor


class MissingView(View):
    """Links that are gone at the old end."""

    count: Annotated[int, example(204, "The numbers from 1 to this one are missing")]
    explained: Annotated[bool, example(True, "False if neither retention nor a prune took them")]
    says: Annotated[str, example("numbers 1 to 204 are missing: the retention of 365d took them")]


class ChainState(View):
    holds: Annotated[bool, example(True)]
    links: Annotated[int, example(1204)]
    base: Annotated[str, example("0:" + "0" * 64, "NUMBER:HASH before the oldest entry")]
    head: Annotated[
        str, example(f"1204:{_HASH}", "NUMBER:HASH of the chain tip, to note and compare")
    ]
    loose: Annotated[int, about("Entries that are not in the chain yet")]


class ChainView(ChainState):
    """The verdict on the chain, as the API answers it."""

    brokenAt: Annotated[int | None, example(None)]
    says: Annotated[str | None, example(None)]
    missing: Annotated[MissingView | None, example(None)]


class BrokenView(View):
    """The first link that does not fit."""

    seq: int
    says: str


class VerdictView(ChainState):
    """The verdict on the chain, as `holdfast audit verify --json` prints it."""

    broken: BrokenView | None
    missing: MissingView | None


def audit_view(entry: Audit, hide: Redactor) -> AuditView:
    return {
        "at": iso(entry.at),
        "actor": entry.by.actor,
        "origin": entry.by.origin,
        "reason": hide.text(entry.by.reason),
        "command": entry.command,
        "taskId": entry.task_id,
        "before": entry.before,
        "after": entry.after,
        "refused": entry.refused,
    }


def transition_view(step: HistoryStep, hide: Redactor) -> TransitionView:
    return {
        "at": iso(step.at),
        "taskId": step.task_id,
        "version": step.version,
        "command": step.command,
        "before": step.before,
        "after": step.after,
        "maker": step.maker,
        "name": step.name,
        "origin": step.origin,
        "reason": hide.text(step.reason),
    }


def missing_view(missing: Missing | None) -> MissingView | None:
    if missing is None:
        return None
    return {"count": missing.count, "explained": missing.explained, "says": missing.message}


def chain_view(verdict: ChainVerdict) -> ChainView:
    broken = verdict.broken
    return {
        **_state_view(verdict),
        "brokenAt": broken.seq if broken else None,
        "says": broken.message if broken else None,
        "missing": missing_view(verdict.missing),
    }


def verdict_view(verdict: ChainVerdict) -> VerdictView:
    broken = verdict.broken
    return {
        **_state_view(verdict),
        "broken": {"seq": broken.seq, "says": broken.message} if broken else None,
        "missing": missing_view(verdict.missing),
    }


def _state_view(verdict: ChainVerdict) -> ChainState:
    return {
        "holds": verdict.holds,
        "links": verdict.links,
        "base": format_link(verdict.base),
        "head": format_link(verdict.head),
        "loose": verdict.loose,
    }
