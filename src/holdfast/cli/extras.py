"""Commands that need an extra check here that it is installed."""

from __future__ import annotations

from importlib.util import find_spec

from holdfast.domain.errors import HoldfastError

OF_SERVER = ("fastapi", "prometheus_client", "uvicorn")


class NotInstalled(HoldfastError, stored_name="NotInstalled"):
    code = "not-installed"


def check_server() -> None:
    """Raise NotInstalled unless the extra `server` is installed."""
    if missing := missing_server_package():
        raise NotInstalled(f"this needs {missing}: pip install 'holdfast-engine[server]'")


def missing_server_package() -> str | None:
    """Return the first package of the extra `server` that is not installed."""
    return next((name for name in OF_SERVER if find_spec(name) is None), None)
