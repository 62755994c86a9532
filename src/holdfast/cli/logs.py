"""Logs go to stderr, unless the app has set up logging itself: then that stands."""

from __future__ import annotations

import logging
import sys

from holdfast.cli.plain import plain


class PlainFormatter(logging.Formatter):
    """A log line may carry what user code raised, or what was stored."""

    def format(self, record: logging.LogRecord) -> str:
        return plain(super().format(record))


def log_everything() -> None:
    _to_stderr(logging.INFO, "%(asctime)s %(levelname)s %(name)s: %(message)s")


def log_warnings() -> None:
    _to_stderr(logging.WARNING, "%(levelname)s: %(message)s")


def _to_stderr(level: int, form: str) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(PlainFormatter(form))
    logging.basicConfig(level=level, handlers=[handler])
