"""`holdfast plans create` creates a plan for the tenants in a file; a dry run only shows it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from holdfast.cli import options as opt
from holdfast.cli.exit_codes import Exit
from holdfast.cli.loader import load_submission, run_on
from holdfast.cli.output import printer as out
from holdfast.cli.output import redaction
from holdfast.cli.session import person
from holdfast.domain import names
from holdfast.domain.errors import InvalidInput
from holdfast.domain.phrases import count, format_names
from holdfast.domain.plan.plan import OnHalt, TenantConflict
from holdfast.engine import Holdfast
from holdfast.engine.plans.create import PlanTerms, Preview
from holdfast.engine.plans.handle import PlanInfo
from holdfast.insight.views import plans as views
from holdfast.insight.views.view import keys

STDIN = "-"
TENANTS_SHOWN = 4
BUSY_SHOWN = 10
PLAN_KEYS = keys(views.PlanView, waves=views.WaveView)
PREVIEW_KEYS = keys(views.PreviewView, waves=views.WavePreviewView)
CREATE_HELP = f"JSON: {PLAN_KEYS}. With --dry-run: {PREVIEW_KEYS}."

_BUSY = {
    TenantConflict.WAIT: "their tasks wait for them, without a slot",
    TenantConflict.SKIP: "their tasks are skipped if they are still busy then",
    TenantConflict.REJECT: "the plan would be refused",
}


def create(
    context: typer.Context,
    *,
    app: opt.App,
    id: Annotated[str, opt.argument("ID", "The id of the new plan.")],
    type: Annotated[str, opt.takes("NAME", "The type of the tasks, one for each tenant.")],
    tenants: Annotated[
        str, opt.takes("FILE", "A file with one tenant per line; - is standard input.")
    ],
    payload: opt.Payload = "null",
    max_concurrency: Annotated[
        int | None, opt.takes("N", "How many tasks run at once, on all machines.", min=1)
    ] = None,
    waves: Annotated[
        str | None, opt.takes("1,5%,100%", "How many tasks have started after each wave.")
    ] = None,
    soak: Annotated[str, opt.duration("10m", "The pause between two waves.")] = "0s",
    halt_on: Annotated[
        str | None,
        opt.takes(
            "5%|3",
            "Halt if more than this share or number of a wave's tasks fail. "
            "Default with waves: 0%.",
        ),
    ] = None,
    on_halt: Annotated[OnHalt, typer.Option(help="What to do after a halt.")] = OnHalt.PAUSE,
    conflict: Annotated[
        TenantConflict, typer.Option(help="What to do with busy tenants.")
    ] = TenantConflict.WAIT,
    repeat_tenants: Annotated[
        bool, opt.flag("--repeat-tenants", "Allow a tenant more than once.")
    ] = False,
    dry_run: Annotated[
        bool, opt.flag("--dry-run", "Show waves and conflicts, and write nothing.")
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
        terms["halt_on"] = opt.halt_rule("--halt-on", halt_on)
    tenant_names = _read_tenants(tenants)
    loaded, target, content = load_submission(context, app, type, payload)
    tasks = [target.on(content, tenant=tenant) for tenant in tenant_names]

    async def preview(app: Holdfast) -> Preview:
        return await app.plan.preview(id, tasks, **terms)

    async def make(app: Holdfast) -> PlanInfo:
        made = await app.plan.acting_as(*person())(id, tasks, **terms)
        return await made.info()

    if dry_run:
        shown = run_on(loaded, preview, needs_store=True)
        _print_preview(shown, conflict, json=json)
        return Exit.REFUSED if shown.busy and conflict is TenantConflict.REJECT else Exit.OK
    plan = run_on(loaded, make)
    size = f"{count(plan.total, 'task')} in {count(len(plan.waves), 'wave')}"
    line = Text(f"{plan.id}  ") + out.status_text(plan.status) + Text(f"  {size}")
    out.print_answer(views.plan_view(plan, redaction.current()), line, json=json)
    out.hint("" if json else f"watch it with: holdfast plans watch {plan.id}")
    return Exit.OK


def _read_tenants(source: str) -> list[str]:
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
    tenants = []
    for number, line in lines:
        if not line or line.startswith("#"):
            continue
        try:
            tenants.append(names.check("tenant", line))
        except InvalidInput as error:
            raise InvalidInput(f"--tenants {source}, line {number}: {error}") from error
    if not tenants:
        raise InvalidInput(f"--tenants {source}: the file contains no tenant")
    return tenants


def _print_preview(preview: Preview, conflict: TenantConflict, *, json: bool) -> None:
    if json:
        out.print_json(views.preview_view(preview))
        return
    there = f"exists already: {preview.exists}" if preview.exists else None
    total = f"{count(preview.total, 'task')} in {count(len(preview.waves), 'wave')}"
    out.print_fields({"plan": preview.id, "exists": there, "total": total})
    out.say()
    rows: list[out.Row] = [
        {
            "WAVE": str(wave.number),
            "SIZE": str(len(wave.tenants)),
            "TENANTS": format_names([str(tenant) for tenant in wave.tenants], TENANTS_SHOWN),
        }
        for wave in preview.waves
    ]
    out.print_table(rows, keep=3)
    out.say()
    if preview.busy:
        busy = f"{count(len(preview.busy), 'tenant')} now, {_BUSY[conflict]}:"
        out.item("busy", f"{busy} {format_names(preview.busy, BUSY_SHOWN)}")
    else:
        out.item("busy", "no tenant has other work now")
    out.hint("this was a dry run: nothing was written")
