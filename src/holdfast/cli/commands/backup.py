"""`holdfast backup` copies the store's file while everything runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from holdfast.cli import options as opt
from holdfast.cli.output.printer import print_answer
from holdfast.cli.session import Session, in_session
from holdfast.engine.operations.backup import back_up
from holdfast.insight.views.operations import BackupView
from holdfast.insight.views.view import keys

EPILOG = f"JSON: {keys(BackupView)}."

Target = Annotated[Path, opt.argument("FILE", "The new file; it must not exist.")]


@in_session
async def backup(
    session: Session, target: Target, reason: opt.Reason = "", json: opt.Json = False
) -> None:
    """Copy an SQLite store into a new file while everything runs.

    The copy is checked before it gets its name. Use Redis's own tools to back up Redis.
    """
    copy = await back_up(session.store, target, by=session.operator(reason), now=session.now)
    view = BackupView(path=copy.path, sizeBytes=copy.size_bytes)
    print_answer(view, f"{copy.path}  {copy.size_bytes} bytes, checked", json=json)
