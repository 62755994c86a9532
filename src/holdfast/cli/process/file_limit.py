"""The limit on open files is raised here when a process starts."""

from __future__ import annotations

import logging

FILES_MAX = 65_536  # as many as connections and stages can use; more would only hide a leak

log = logging.getLogger("holdfast.cli")


def raise_file_limit() -> None:
    """Raise the soft limit on open files to the hard one, or to FILES_MAX if that is lower."""
    try:
        import resource
    except ModuleNotFoundError:  # Windows has no such limit
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES_MAX if hard == resource.RLIM_INFINITY else min(FILES_MAX, hard)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (OSError, ValueError) as error:  # macOS allows less than it says
        log.warning("cannot raise the limit of %d open files to %d: %s", soft, wanted, error)
