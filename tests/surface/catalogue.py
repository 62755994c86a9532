"""Every snapshot by its name, and what gives its lines."""

from collections.abc import Callable, Mapping

from tests.surface import document, package_surface

QUICK: Mapping[str, Callable[[], list[str]]] = {
    "api": document.api,
    "schemas": document.schemas,
    "commands": package_surface.commands,
    "settings": package_surface.settings,
    "loggers": package_surface.loggers,
    "metrics": package_surface.metrics,
    "names": package_surface.names,
    "keys": package_surface.keys,
}
