"""A backup of the store, or a hint what to use instead."""

from __future__ import annotations

import logging
import os

from holdfast.domain.audit import Audit
from holdfast.domain.errors import BackupRefused, StoreFull
from holdfast.domain.task.task import By
from holdfast.ports import Store
from holdfast.ports.store import Copy
from holdfast.stores.memory import MemoryStore

IN_MEMORY = "a store in memory is kept nowhere and has no backup: use sqlite:/// or Redis"
ON_SERVER = (
    "the server makes the backups of this store: on Redis BGSAVE, wait until INFO persistence says "
    "rdb_bgsave_in_progress:0, copy its dump.rdb; or copy its append-only files while no rewrite "
    "runs (docs/runbook/codes-store.md, Backup and restore)"
)

log = logging.getLogger("holdfast.app.backup")


async def back_up(store: Store, target: str | os.PathLike[str], *, by: By, now: float) -> Copy:
    """Copy the store into a new file, and record who did so."""
    if store.file is None:
        raise BackupRefused(IN_MEMORY if store.url == MemoryStore.url else ON_SERVER)
    copy = await store.file.backup(target)
    await _note(store, copy, by, now)
    return copy


async def _note(store: Store, copy: Copy, by: By, now: float) -> None:
    after = f"{copy.size_bytes} bytes in {copy.path}"
    entry = Audit(task_id="store", command="backup", by=by, at=now, before="", after=after)
    try:
        await store.admin.audit(entry)
    except StoreFull as error:  # the copy is whole all the same
        log.warning("the backup %s is not recorded in the audit: %s", copy.path, error)
