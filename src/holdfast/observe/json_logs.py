"""Log lines as JSON, by structlog: from its own loggers and from those of the standard library."""

from __future__ import annotations

import logging
from collections.abc import Mapping, MutableMapping
from datetime import UTC, datetime
from typing import Any

import msgspec
import structlog
from structlog.stdlib import BoundLogger, LoggerFactory, ProcessorFormatter

from holdfast.domain.plain import plain_json
from holdfast.domain.redaction import Redactor
from holdfast.ports import scope

_OF_EVERY_RECORD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}


def json_formatter(redactor: Redactor) -> logging.Formatter:
    if not structlog.is_configured():
        structlog.configure(
            processors=[
                structlog.stdlib.filter_by_level,
                structlog.contextvars.merge_contextvars,
                structlog.stdlib.PositionalArgumentsFormatter(),
                structlog.processors.format_exc_info,
                ProcessorFormatter.wrap_for_formatter,
            ],
            wrapper_class=BoundLogger,
            logger_factory=LoggerFactory(),
        )
    return ProcessorFormatter(
        foreign_pre_chain=[_extras, structlog.processors.format_exc_info],
        processors=[JsonLine(redactor)],
    )


class JsonLine:
    """A log line as one object: our fields first, then those of the call. A field of the call that
    has the name of one of ours gets a ``_`` at its end."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor

    def __call__(self, logger: Any, method: str, fields: MutableMapping[str, Any]) -> str:
        del logger, method
        record: logging.LogRecord = fields.pop("_record")
        fields.pop("_from_structlog", None)
        ours: dict[str, Any] = {
            "ts": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": str(fields.pop("event", "")),
            **scope.fields(),
        }
        theirs = {f"{name}_" if name in ours else name: value for name, value in fields.items()}
        return _encode(self._redactor.strings(ours) | self._redactor.value(theirs))


def _extras(logger: Any, method: str, fields: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Add the fields of ``extra=``; they never replace another field."""
    del logger, method
    record: logging.LogRecord = fields["_record"]
    for name, value in vars(record).items():
        if name not in _OF_EVERY_RECORD:
            fields[f"{name}_" if name in fields else name] = value
    return fields


def _encode(shown: Mapping[str, Any]) -> str:
    try:
        body = msgspec.json.encode(shown, enc_hook=str)
    except UnicodeEncodeError:
        body = msgspec.json.encode(_whole(shown), enc_hook=str)
    return plain_json(body.decode())


def _whole(value: Any) -> Any:
    """Return the value without lone surrogates, which JSON cannot represent."""
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode()
    if isinstance(value, Mapping):
        return {_whole(name): _whole(item) for name, item in value.items()}
    return [_whole(item) for item in value] if isinstance(value, list) else value
