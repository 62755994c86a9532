"""`holdfast hooks` lists and tests webhooks, and makes their secrets."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Annotated

from holdfast.cli import options as opt
from holdfast.cli.command_group import CommandGroup
from holdfast.cli.output.printer import Row, hint, print_answer, print_json, print_list, say
from holdfast.cli.session import Session, in_session
from holdfast.domain import names, notification
from holdfast.domain.errors import InvalidInput, NotDelivered
from holdfast.domain.task.events import TaskSnoozed, TaskStarted
from holdfast.domain.task.state import Status
from holdfast.insight.views import operations as views
from holdfast.insight.views.view import keys
from holdfast.notify import hooks as hook_file
from holdfast.notify.hooks import FILE
from holdfast.notify.signature import Secret
from holdfast.settings import load

hooks = CommandGroup(help="List and test webhooks, and make their secrets.")

WAIT_SECONDS = 30.0
SHRINKS = {"EVENTS": 10, "ONLY": 10}
NO_FILE = f"no hooks file is configured, so submissions cannot have a callback URL: set {FILE}"


@hooks.command("list", epilog=f"JSON: {keys(views.HookList, hooks=views.HookView)}.")
def list_hooks(json: opt.Json = False) -> None:
    """List the configured hooks, with the hosts of their URLs. HOLDFAST_WEBHOOKS names the file."""
    settings = load()
    configured = hook_file.load(settings)
    shown = [views.hook_view(hook) for hook in configured.hooks.values()]
    has_callbacks = notification.CALLBACK in configured.secrets
    has_file = settings.webhooks is not None
    print_list(
        views.HookList(hooks=shown, callbacks=has_callbacks),
        [_row(view) for view in shown],
        json=json,
        empty="the hooks file has no hook" if has_file else NO_FILE,
        keep=2,
        shrinks=SHRINKS,
    )
    if has_file and not has_callbacks and not json:
        hint("the file has no [callbacks] secret, so submissions cannot have a callback URL")


def _row(view: views.HookView) -> Row:
    limits = {"types": view["types"], "tenants": view["tenants"], "queues": view["queues"]}
    only = [f"{name} {', '.join(names)}" for name, names in limits.items() if names]
    return {
        "HOOK": view["name"],
        "URL": view["url"] or "-",
        "EVENTS": ", ".join(view["events"]),
        "ONLY": "; ".join(only) or "-",
    }


@hooks.command("test", epilog=f"JSON: {keys(views.HookTested)}. status: of the delivery.")
@in_session
async def probe(
    session: Session,
    name: Annotated[str, opt.argument("NAME", "The name of a hook.")],
    *,
    json: opt.Json = False,
) -> None:
    """Send a test message to a hook, through the store and a worker. It waits up to 30 s."""
    app = session.app
    hook = app.hooks.hooks.get(name)
    if hook is None:
        known = ", ".join(sorted(app.hooks.hooks))
        configured = f"configured are: {known}" if known else "no hook is configured"
        raise InvalidInput(f"there is no hook {name}; {configured}")
    task_id = await app.notifier.probe(hook)
    with suppress(TimeoutError):
        async with asyncio.timeout(WAIT_SECONDS):
            await app.waiters.wait_until_stopped(task_id)
    status, why = await _load_state(session, task_id)
    delivered = status is Status.COMPLETED
    if json:
        print_json(views.HookTested(taskId=task_id, status=status, delivered=delivered))
    elif delivered:
        say(f"{name}  delivered")
    if not delivered:
        raise NotDelivered(f"{name} has not received the message: {why} (delivery {task_id})")


async def _load_state(session: Session, task_id: str) -> tuple[Status, str]:
    """Return the status of the delivery, and why it has not arrived, as far as is known."""
    detail = await session.load_detail(task_id)
    task = detail.task
    if task.failure is not None:
        return task.status, task.failure.summary
    if any(isinstance(event, TaskSnoozed) for event in detail.events):
        return task.status, "it is put off: `holdfast tasks show` says why"
    started = any(isinstance(event, TaskStarted) for event in detail.events)
    return task.status, "it is under way" if started else "no worker has claimed it"


@hooks.command("secret", epilog=f"JSON: {keys(views.SecretView)}.")
def secret(
    *,
    tenant: Annotated[
        str | None, opt.takes("NAME", "Print the secret of this tenant's callbacks instead.")
    ] = None,
    no_tenant: Annotated[
        bool, opt.flag("--no-tenant", "Print the secret for tasks without a tenant instead.")
    ] = False,
    json: opt.Json = False,
) -> None:
    """Print a new secret for a hook or for callbacks. Holdfast does not store it."""
    if tenant is not None and no_tenant:
        raise InvalidInput("give --tenant or --no-tenant, not both")
    if no_tenant:
        text = _callback_secret(None)
    elif tenant is not None:
        text = _callback_secret(names.check("tenant", tenant))
    else:
        text = Secret.make()
    print_answer(views.SecretView(secret=text), text, json=json)


def _callback_secret(tenant: str | None) -> str:
    known = hook_file.load(load()).secrets_of(notification.CALLBACK, tenant)
    if not known:
        raise InvalidInput(f"{FILE} names no file with a [callbacks] secret")
    return known[0].text()
