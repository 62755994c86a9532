"""`holdfast why` explains why a task does not run."""

from __future__ import annotations

import typer

from holdfast.cli import options as opt
from holdfast.cli.output import redaction
from holdfast.cli.output.printer import print_json, prose
from holdfast.cli.session import Session, run


def why(context: typer.Context, id: opt.Id, json: opt.Json = False) -> None:
    """Explain why a task does not run, and what to do about it. JSON: taskId, answer."""

    async def ask(session: Session) -> str:
        return redaction.text(await session.app.why(id))

    answer = run(context, ask)
    if json:
        print_json({"taskId": id, "answer": answer})
    else:
        prose(answer)
