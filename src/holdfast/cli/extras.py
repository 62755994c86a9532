"""Commands that need more than the core say so."""

from __future__ import annotations

from importlib.util import find_spec

from holdfast.domain.errors import HoldfastError

OF_SERVER = ("fastapi", "prometheus_client", "uvicorn")


class NotInstalled(HoldfastError, stored_name="NotInstalled"):
    code = "not-installed"


def check_server() -> None:
    missing = [name for name in OF_SERVER if find_spec(name) is None]
    if missing:
        raise NotInstalled(f"this needs {missing[0]}: pip install 'holdfast-engine[server]'")
