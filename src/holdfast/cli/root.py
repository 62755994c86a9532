"""The root of the command line lists all commands."""

from __future__ import annotations

from typing import Annotated

import typer

from holdfast.cli import options as opt
from holdfast.cli.command_group import CommandGroup
from holdfast.cli.commands import alerts, backup, doctor, prune, stats, why
from holdfast.cli.commands.audit import audit
from holdfast.cli.commands.bulk import bulk
from holdfast.cli.commands.checkpoints import checkpoints
from holdfast.cli.commands.hooks import hooks
from holdfast.cli.commands.plans import plans
from holdfast.cli.commands.queues import queues
from holdfast.cli.commands.states import states
from holdfast.cli.commands.suspended import suspended
from holdfast.cli.commands.tasks import tasks
from holdfast.cli.commands.tenants import tenants
from holdfast.cli.commands.tokens import tokens
from holdfast.cli.commands.triggers import triggers
from holdfast.cli.commands.workers import workers
from holdfast.cli.exit_codes import EPILOG, Root
from holdfast.cli.process.serve import serve
from holdfast.cli.process.worker import worker
from holdfast.version import __version__

cli = CommandGroup(
    name="holdfast",
    cls=Root,
    epilog=EPILOG,
    rich_markup_mode=None,  # plain help: paragraphs are wrapped as they should be
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def show_version(wanted: bool) -> None:
    if wanted:
        print(f"holdfast {__version__}")
        raise typer.Exit


@cli.callback()
def holdfast(
    context: typer.Context,
    store: Annotated[
        str | None, opt.takes("URL", "Use this store instead of HOLDFAST_STORE.")
    ] = None,
    version: Annotated[
        bool,
        typer.Option(
            "--version", is_eager=True, callback=show_version, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Run workers, see why a task waits, and resume, retry or roll back durable work."""
    del version
    context.obj = store


cli.command("serve")(serve)
cli.command("worker")(worker)
cli.command("why", epilog=why.EPILOG)(why.why)
cli.command("doctor", epilog=doctor.EPILOG)(doctor.doctor)
cli.command("alerts", epilog=alerts.EPILOG)(alerts.alerts)
cli.command("stats", epilog=stats.EPILOG)(stats.stats)
cli.command("states")(states)
cli.command("prune", epilog=prune.EPILOG)(prune.prune)
cli.command("backup", epilog=backup.EPILOG)(backup.backup)
cli.add_typer(tasks, name="tasks")
cli.add_typer(suspended, name="suspended")
cli.add_typer(checkpoints, name="checkpoints")
cli.add_typer(bulk, name="bulk")
cli.add_typer(tenants, name="tenants")
cli.add_typer(queues, name="queues")
cli.add_typer(workers, name="workers")
cli.add_typer(plans, name="plans")
cli.add_typer(triggers, name="triggers")
cli.add_typer(tokens, name="tokens")
cli.add_typer(hooks, name="hooks")
cli.add_typer(audit, name="audit")


@cli.command("demo")
def demo() -> int:
    """Watch tasks survive a killed worker."""
    from holdfast.cli.demo.story import run

    return run()
