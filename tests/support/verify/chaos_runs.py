"""Short runs of `python -m verify.chaos`."""

import subprocess
import sys

STORES = {"sqlite": "", "redis": "--store redis --server-kills 1 --lost-replies 8"}


def run_chaos(arguments: str) -> None:
    """Run chaos, and assert that the judge has no complaint."""
    done = subprocess.run(
        [sys.executable, "-m", "verify.chaos", *arguments.split()],
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
