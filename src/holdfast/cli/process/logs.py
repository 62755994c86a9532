"""Logs go to stderr, unless the app has configured logging itself."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from holdfast.cli.output.redaction import current
from holdfast.observe.logs import Format, Lines, PlainFormatter, configure


def log_everything(format: Format = "console") -> None:
    """Log at INFO, for the worker and the service."""
    configure(format, logging.INFO, current())


def log_warnings() -> None:
    handler = Lines(sys.stderr)
    handler.setFormatter(PlainFormatter("%(levelname)s: %(message)s", redactor=current()))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])


@contextmanager
def without_warnings() -> Iterator[None]:
    """Suppress warnings while a command reports the same facts in its answer."""
    before = logging.root.manager.disable
    logging.disable(max(before, logging.WARNING))
    try:
        yield
    finally:
        logging.disable(before)
