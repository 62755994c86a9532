"""Every snapshot by its name, and what gives its lines."""

from collections.abc import Callable, Mapping

from tests.surface import described, document

QUICK: Mapping[str, Callable[[], list[str]]] = {
    "api": document.api,
    "schemas": document.schemas,
    "commands": described.commands,
    "settings": described.settings,
    "loggers": described.loggers,
    "metrics": described.metrics,
    "names": described.names,
    "keys": described.keys,
}
