"""`holdfast hooks`: who is told of what, and whether it arrives."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import typer

from holdfast.app.hooks import FILE
from holdfast.app.telling import tell_probe
from holdfast.cli import options as opt
from holdfast.cli.session import Session, run
from holdfast.cli.show import Row, hint, print_json, print_table, say
from holdfast.domain import telling
from holdfast.domain.errors import InvalidInput, NotDelivered, ResultTimeout
from holdfast.domain.state import Status
from holdfast.domain.telling import Hook
from holdfast.settings import load
from holdfast.sinks.signing import Secret

hooks = typer.Typer(help="Webhooks: who is told of what, and whether it arrives.")

WAIT_SECONDS = 30.0


@hooks.callback()
def of_hooks() -> None:
    """Webhooks: who is told of what, and whether it arrives."""


@hooks.command(
    "list",
    epilog="JSON: hooks (each: name, url, events, types, tenants, queues, results), callbacks.",
)
def listed(json: opt.Json = False) -> None:
    """Those of the file that HOLDFAST_WEBHOOKS names; URLs without what follows the path."""
    from holdfast.app import hooks as book

    found = book.load(load())
    shown = [_shape(hook) for hook in found.hooks.values()]
    if json:
        print_json({"hooks": shown, "callbacks": telling.CALLBACK in found.secrets})
        return
    print_table([_row(one) for one in shown], keep=2)
    if not shown:
        hint(f"no hook is configured: {FILE} names the file")
    if telling.CALLBACK not in found.secrets:
        hint("requests may bring no callback URL: the file has no [callbacks] secret")


def _shape(hook: Hook) -> dict[str, Any]:
    return {
        "name": hook.name,
        "url": hook.url.partition("?")[0],
        "events": sorted(hook.events),
        "types": sorted(hook.types),
        "tenants": sorted(hook.tenants),
        "queues": sorted(hook.queues),
        "results": hook.results,
    }


def _row(one: dict[str, Any]) -> Row:
    only = [
        f"{name} {', '.join(one[name])}" for name in ("types", "tenants", "queues") if one[name]
    ]
    return {
        "HOOK": one["name"],
        "EVENTS": ", ".join(one["events"]),
        "ONLY": "; ".join(only) or "-",
        "URL": one["url"],
    }


@hooks.command("test", epilog="JSON: taskId, status (of the delivery), delivered.")
def probe(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="A hook's name.")],
    *,
    json: opt.Json = False,
) -> None:
    """Send it a word as every other is sent: through the store and a worker. Waits 30 seconds."""

    async def send(session: Session) -> tuple[str, Status, str]:
        app = session.app
        hook = app.hooks.hooks.get(name)
        if hook is None:
            known = ", ".join(sorted(app.hooks.hooks)) or "none"
            raise InvalidInput(f"no hook {name} is configured (there are: {known})")
        task_id = await tell_probe(app, hook)
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                peek = await app.waiters.rested(task_id)
        except TimeoutError:
            raise ResultTimeout(task_id, WAIT_SECONDS) from None
        return task_id, peek.status, peek.failure.summary if peek.failure else ""

    task_id, status, why = run(context, send)
    delivered = status is Status.COMPLETED
    if json:
        print_json({"taskId": task_id, "status": status, "delivered": delivered})
    elif delivered:
        say(f"{name}  delivered")
    if not delivered:
        raise NotDelivered(f"{name} did not get it: {why} (delivery {task_id})")


@hooks.command(epilog="JSON: secret.")
def secret(json: opt.Json = False) -> None:
    """A new secret for a hook or for callbacks; it is kept nowhere."""
    text = Secret.make()
    if json:
        print_json({"secret": text})
    else:
        say(text)
