"""Logs on stderr, as lines for people or as JSON for machines.

Text from user code or from the store stays on its line, cannot steer a terminal, and has its
secrets hidden. A line from within a stage names the stage, whichever logger it comes from.
"""

from __future__ import annotations

import logging
import sys
import textwrap
from typing import Any, Literal

from holdfast.domain.errors import InvalidSetting
from holdfast.domain.plain import plain, plain_line
from holdfast.domain.redaction import USUAL, Redactor
from holdfast.ports import scope

Format = Literal["console", "json"]

CONSOLE = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def configure(
    format: Format = "console", level: int = logging.INFO, redactor: Redactor = USUAL
) -> None:
    """Configure the root logger, unless the program has configured it already."""
    handler = Lines(sys.stderr)
    handler.setFormatter(formatter(format, redactor))
    logging.basicConfig(level=level, handlers=[handler])


def formatter(format: Format, redactor: Redactor) -> logging.Formatter:
    if format == "console":
        return PlainFormatter(CONSOLE, redactor=redactor)
    try:
        from holdfast.observe.json_logs import json_formatter
    except ModuleNotFoundError as error:
        if error.name != "structlog":
            raise
        reason = "logs in JSON need structlog: pip install 'holdfast-engine[server]'"
        raise InvalidSetting("HOLDFAST_LOG", format, reason) from error
    return json_formatter(redactor)


class Lines(logging.StreamHandler[Any]):
    """A handler that reports a record which cannot be formatted, without its content."""

    def handleError(self, record: logging.LogRecord) -> None:
        error = sys.exc_info()[0]
        if error is not None and issubclass(error, OSError):
            return  # the stream itself is broken
        where = plain_line(f"{record.pathname}:{record.lineno}")
        name = error.__name__ if error is not None else "an error"
        print(f"a log line of {where} could not be written: {name}", file=sys.stderr)


class PlainFormatter(logging.Formatter):
    """A formatter in whose output no part of a message looks like a line of its own. Only a
    traceback has several lines, and they are indented."""

    def __init__(self, form: str, *, redactor: Redactor = USUAL) -> None:
        super().__init__(form)
        self._redactor = redactor

    def format(self, record: logging.LogRecord) -> str:
        first, _, rest = super().format(record).partition("\n")
        if not rest:
            return first
        traceback = plain(self._redactor.text(rest))
        return f"{first}\n{textwrap.indent(traceback, '    ', lambda _: True)}"

    def formatMessage(self, record: logging.LogRecord) -> str:
        line = super().formatMessage(record)
        if fields := scope.fields():
            line += f" [{' '.join(f'{name}={value}' for name, value in fields.items())}]"
        return plain_line(self._redactor.text(line))
