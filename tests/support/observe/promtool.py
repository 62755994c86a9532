"""The program promtool, if this machine has it."""

import os
import shutil

import pytest

# Read at import: a test sees no HOLDFAST_ variables.
PROMTOOL = os.environ.get("HOLDFAST_PROMTOOL") or shutil.which("promtool")

needs_promtool = pytest.mark.skipif(
    PROMTOOL is None,
    reason="no promtool: install Debian's package `prometheus`, "
    "or unpack it anywhere (`apt-get download prometheus`, `dpkg -x`) "
    "and set HOLDFAST_PROMTOOL to its usr/bin/promtool",
)
