"""Logs go to stderr, unless the app has set up logging itself: then that stands."""

from __future__ import annotations

import logging
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager

from holdfast.cli.plain import plain, plain_line


class PlainFormatter(logging.Formatter):
    """A log line may carry what user code raised, or what was stored: no part of that may look
    like a line of its own. Only a traceback has several, and they are indented."""

    def format(self, record: logging.LogRecord) -> str:
        first, _, rest = super().format(record).partition("\n")
        return f"{first}\n{_indented(rest)}" if rest else first

    def formatMessage(self, record: logging.LogRecord) -> str:
        return plain_line(super().formatMessage(record))


def _indented(text: str) -> str:
    return textwrap.indent(plain(text), "    ", lambda _: True)


def log_everything() -> None:
    _to_stderr(logging.INFO, "%(asctime)s %(levelname)s %(name)s: %(message)s")


def log_warnings() -> None:
    _to_stderr(logging.WARNING, "%(levelname)s: %(message)s")


@contextmanager
def without_warnings() -> Iterator[None]:
    """For who says the same in its answer."""
    before = logging.root.manager.disable
    logging.disable(max(before, logging.WARNING))
    try:
        yield
    finally:
        logging.disable(before)


def _to_stderr(level: int, form: str) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(PlainFormatter(form))
    logging.basicConfig(level=level, handlers=[handler])
