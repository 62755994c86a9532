"""A server whose disk is slow: each fdatasync of its process takes a while longer.

It needs a C compiler, as what is slowed down is a call of the C library.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from verify.servers import SERVER_VARIABLE, find_server

SYNC_MILLIS = 600

_SOURCE = f"""
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <unistd.h>
int fdatasync(int file) {{ usleep({SYNC_MILLIS * 1000}); return syscall(SYS_fdatasync, file); }}
"""
_WRAPPER = '#!/bin/sh\nLD_PRELOAD="{library}" exec "{server}" "$@"\n'


def possible() -> bool:
    return shutil.which("cc") is not None and Path("/proc/self").exists()


@contextmanager
def slow_disk() -> Iterator[None]:
    """Give a slow disk to the servers that are started meanwhile."""
    named = os.environ.get(SERVER_VARIABLE)
    with tempfile.TemporaryDirectory(prefix="holdfast-slow-disk-") as folder:
        os.environ[SERVER_VARIABLE] = str(_write_wrapper(find_server(), Path(folder)))
        try:
            yield
        finally:
            os.environ.pop(SERVER_VARIABLE)
            if named is not None:
                os.environ[SERVER_VARIABLE] = named


def _write_wrapper(server: Path, folder: Path) -> Path:
    library, wrapper = folder / "slow.so", folder / "redis-server"
    source = folder / "slow.c"
    source.write_text(_SOURCE)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    wrapper.write_text(_WRAPPER.format(library=library, server=server))
    wrapper.chmod(0o755)
    return wrapper
