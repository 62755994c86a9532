"""Logs go to stderr, unless the app has set up logging itself: then that stands."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from holdfast.cli.output.redaction import current
from holdfast.observe.logs import Format, Lines, PlainFormatter, configure


def log_everything(format: Format = "console") -> None:
    """Log everything, for a process that runs until it is stopped: the worker, the service."""
    configure(format, logging.INFO, current())


def log_warnings() -> None:
    handler = Lines(sys.stderr)
    handler.setFormatter(PlainFormatter("%(levelname)s: %(message)s", redactor=current()))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])


@contextmanager
def without_warnings() -> Iterator[None]:
    """Silence warnings for a command that says the same in its answer."""
    before = logging.root.manager.disable
    logging.disable(max(before, logging.WARNING))
    try:
        yield
    finally:
        logging.disable(before)
