"""The JSON views of hooks, tokens, backups and deleted records."""

from __future__ import annotations

from holdfast.domain.notification import Hook
from holdfast.domain.task.state import Status
from holdfast.insight.views import fields
from holdfast.insight.views.tasks import callback_view
from holdfast.insight.views.view import Time, View
from holdfast.ports import Kept


class HookView(View):
    name: str
    url: str | None
    events: list[str]
    types: list[str]
    tenants: list[str]
    queues: list[str]
    results: bool


class HookList(View):
    hooks: list[HookView]
    callbacks: bool


class HookTested(View):
    taskId: fields.TaskId
    status: Status
    delivered: bool


class SecretView(View):
    secret: str


class TokenView(View):
    id: str
    name: str
    role: str
    tenants: list[str]
    createdAt: Time
    expiresAt: Time | None
    expired: bool
    rate: float | None


class TokenCreated(TokenView):
    token: str


class TokenList(View):
    tokens: list[TokenView]


class TokensRevoked(View):
    revoked: list[TokenView]


class BackupView(View):
    path: str
    sizeBytes: int


class PruneView(View):
    dryRun: bool
    olderThanSeconds: float
    ignoreKeep: bool
    pruned: dict[Kept, int]
    complete: bool


def hook_view(hook: Hook) -> HookView:
    return {
        "name": hook.name,
        "url": callback_view(hook.url),
        "events": sorted(hook.events),
        "types": sorted(hook.types),
        "tenants": sorted(hook.tenants),
        "queues": sorted(hook.queues),
        "results": hook.results,
    }
