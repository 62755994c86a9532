"""`holdfast plans create`: a plan over the tenants of a file, or a dry run of it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from holdfast.cli import options as opt
from holdfast.cli.apps import load_app_for, payload_of, run_on, type_of
from holdfast.cli.exit_codes import Exit
from holdfast.cli.output.plan_json import PLAN_KEYS, PREVIEW_KEYS, plan_view, preview_view
from holdfast.cli.output.plan_view import status_text
from holdfast.cli.output.printer import Row, hint, item, print_fields, print_json, print_table, say
from holdfast.cli.session import person
from holdfast.domain import names
from holdfast.domain.errors import InvalidInput
from holdfast.domain.phrases import count, some
from holdfast.domain.plan.plan import FailureCount, FailureRate, HaltRule, OnHalt, TenantConflict
from holdfast.engine import Holdfast
from holdfast.engine.plans.create import PlanTerms, Preview
from holdfast.engine.plans.handle import PlanInfo

STDIN = "-"
TENANTS_SHOWN = 4
BUSY_SHOWN = 10
CREATE_HELP = f"JSON: {PLAN_KEYS}. With --dry-run: {PREVIEW_KEYS}."

_BUSY = {
    TenantConflict.WAIT: "their tasks wait for them, without a slot",
    TenantConflict.SKIP: "their tasks are skipped if they still are then",
    TenantConflict.REJECT: "the plan would be refused",
}


def create(
    context: typer.Context,
    *,
    app: opt.App,
    id: Annotated[str, typer.Argument(metavar="ID", help="The id of the new plan.")],
    type: Annotated[
        str, typer.Option(metavar="NAME", help="The type of the tasks, one for each tenant.")
    ],
    tenants: Annotated[
        str,
        typer.Option(metavar="FILE", help="A file with one tenant per line; - is standard input."),
    ],
    payload: opt.Payload = "null",
    max_concurrency: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="How many tasks run at once, on all machines."),
    ] = None,
    waves: Annotated[
        str | None,
        typer.Option(metavar="1,5%,100%", help="How many tasks have started after each wave."),
    ] = None,
    soak: Annotated[str, typer.Option(metavar="10m", help="The pause between two waves.")] = "0s",
    halt_on: Annotated[
        str | None,
        typer.Option(
            metavar="5%|3", help="Halt when more tasks of a wave fail; default with waves: 0%."
        ),
    ] = None,
    on_halt: Annotated[OnHalt, typer.Option(help="What to do after a halt.")] = OnHalt.PAUSE,
    conflict: Annotated[
        TenantConflict, typer.Option(help="What to do with busy tenants.")
    ] = TenantConflict.WAIT,
    repeat_tenants: Annotated[
        bool, typer.Option("--repeat-tenants", help="Allow a tenant more than once.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show waves and conflicts, and write nothing.")
    ] = False,
    json: opt.Json = False,
) -> int:
    """Create a plan: the same task for each tenant, wave by wave. The workers carry it out.

    If you repeat the command with the same tasks and terms, it continues the existing plan.
    """
    id = names.check("plan", id)
    terms = PlanTerms(
        max_concurrency=max_concurrency,
        soak=soak,
        on_halt=on_halt,
        conflict=conflict,
        repeat_tenants=repeat_tenants,
    )
    if waves is not None:
        terms["waves"] = [wave.strip() for wave in waves.split(",")]
    if halt_on is not None:
        terms["halt_on"] = halt_rule(halt_on)
    listed = _tenants(tenants)

    named = load_app_for(context, app)
    target = type_of(named, type)
    given = payload_of(target, payload)
    tasks = [target.on(given, tenant=tenant) for tenant in listed]

    async def preview(app: Holdfast) -> Preview:
        return await app.plan.preview(id, tasks, **terms)

    async def make(app: Holdfast) -> PlanInfo:
        made = await app.plan.acting_as(*person())(id, tasks, **terms)
        return await made.info()

    if dry_run:
        return _print_dry_run(run_on(named, preview, looks_only=True), conflict, json=json)
    _print_created(run_on(named, make), json=json)
    return Exit.OK


def halt_rule(written: str) -> HaltRule:
    try:
        if written.endswith("%"):
            return FailureRate(float(written.removesuffix("%")) / 100)
        return FailureCount(int(written))
    except ValueError:
        raise InvalidInput(
            f"--halt-on {written!r}: write a share such as 5%, or a number such as 3"
        ) from None


def _tenants(source: str) -> list[str]:
    """Read the tenants from a file, one per line; empty lines and lines that begin with # are
    skipped.
    """
    try:
        text = sys.stdin.read() if source == STDIN else Path(source).read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidInput(f"--tenants {source}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InvalidInput(f"--tenants {source}: the file is not text in UTF-8") from error
    lines = enumerate((line.strip() for line in text.splitlines()), 1)
    found = [_tenant(source, n, line) for n, line in lines if line and not line.startswith("#")]
    if not found:
        raise InvalidInput(f"--tenants {source}: the file contains no tenant")
    return found


def _tenant(source: str, number: int, line: str) -> str:
    try:
        return names.check("tenant", line)
    except InvalidInput as error:
        raise InvalidInput(f"--tenants {source}, line {number}: {error}") from error


def _print_created(made: PlanInfo, *, json: bool) -> None:
    if json:
        print_json(plan_view(made))
        return
    size = f"{count(made.total, 'task')} in {count(len(made.waves), 'wave')}"
    say(Text(f"{made.id}  ") + status_text(made.status) + Text(f"  {size}"))
    hint(f"watch it with: holdfast plans watch {made.id}")


def _print_dry_run(preview: Preview, conflict: TenantConflict, *, json: bool) -> int:
    if json:
        print_json(preview_view(preview))
    else:
        _print_preview(preview, conflict)
    return Exit.REFUSED if preview.busy and conflict is TenantConflict.REJECT else Exit.OK


def _print_preview(preview: Preview, conflict: TenantConflict) -> None:
    there = f"exists already: {preview.exists}" if preview.exists else None
    total = f"{count(preview.total, 'task')} in {count(len(preview.waves), 'wave')}"
    print_fields({"plan": preview.id, "exists": there, "total": total})
    say()
    rows: list[Row] = [
        {
            "WAVE": str(wave.number),
            "SIZE": str(len(wave.tenants)),
            "TENANTS": some([str(tenant) for tenant in wave.tenants], TENANTS_SHOWN),
        }
        for wave in preview.waves
    ]
    print_table(rows, keep=3)
    say()
    if preview.busy:
        told = f"{count(len(preview.busy), 'tenant')} now, {_BUSY[conflict]}:"
        item("busy", f"{told} {some(preview.busy, BUSY_SHOWN)}")
    else:
        item("busy", "no tenant has other work now")
    hint("this was a dry run: nothing was written")
