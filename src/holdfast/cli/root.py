"""The command line as a whole: which commands there are."""

from __future__ import annotations

from typing import Annotated

import typer

from holdfast.cli.alerts import alerts
from holdfast.cli.audit import audit
from holdfast.cli.backup import backup
from holdfast.cli.bulk import bulk
from holdfast.cli.checkpoints import checkpoints
from holdfast.cli.doctor import doctor
from holdfast.cli.exits import EPILOG, Root
from holdfast.cli.hooks import hooks
from holdfast.cli.plans import plans
from holdfast.cli.prune import prune
from holdfast.cli.queues import queues
from holdfast.cli.serve import serve
from holdfast.cli.states import states
from holdfast.cli.stats import stats
from holdfast.cli.suspended import suspended
from holdfast.cli.tasks import tasks
from holdfast.cli.tenants import tenants
from holdfast.cli.tokens import tokens
from holdfast.cli.triggers import triggers
from holdfast.cli.why import why
from holdfast.cli.worker import worker
from holdfast.cli.workers import workers
from holdfast.version import __version__

cli = typer.Typer(
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
        str | None,
        typer.Option(metavar="URL", help="The store, else HOLDFAST_STORE. May stand anywhere."),
    ] = None,
    version: Annotated[
        bool,
        typer.Option(
            "--version", is_eager=True, callback=show_version, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Work that must not be lost: run workers, see what is stuck and why, set it going again."""
    del version
    context.obj = store


cli.command()(serve)
cli.command()(worker)
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
cli.command()(why)
cli.command()(doctor)
cli.command()(alerts)
cli.command()(stats)
cli.command()(states)
cli.add_typer(audit, name="audit")
cli.command()(prune)
cli.command()(backup)


@cli.command()
def demo() -> int:
    """Watch tasks survive a killed worker."""
    from holdfast.cli.demo import run

    return run()
