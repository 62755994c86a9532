"""`holdfast why` explains why a task does not run."""

from __future__ import annotations

from holdfast.cli import options as opt
from holdfast.cli.output import redaction
from holdfast.cli.output.printer import print_json, prose
from holdfast.cli.session import Session, in_session
from holdfast.insight.views.tasks import WhyAnswer
from holdfast.insight.views.view import keys

EPILOG = f"JSON: {keys(WhyAnswer)}."


@in_session
async def why(session: Session, id: opt.Id, json: opt.Json = False) -> None:
    """Explain why a task does not run, and what to do about it."""
    answer = redaction.text(await session.app.why(id))
    if json:
        print_json(WhyAnswer(taskId=id, answer=answer))
    else:
        prose(answer)
