"""The scripts, one for each verb, over what they share."""

from __future__ import annotations

from importlib.resources import files

from holdfast.domain.state import START
from holdfast.stores.redis.keys import in_lua
from holdfast.stores.redis.link import Script
from holdfast.stores.redis.record import KEEP_SECONDS

_FOLDER = files("holdfast.stores.redis") / "lua"


def _read(name: str) -> str:
    return (_FOLDER / f"{name}.lua").read_text(encoding="utf-8")


_COMMON = f"{in_lua()}\nlocal STARTED, KEEP = '{START.event}', '{KEEP_SECONDS}'\n{_read('common')}"


def script(name: str) -> Script:
    return Script(name, f"{_COMMON}\n{_read(name)}")


INSERT = script("insert")
CLAIM = script("claim")
APPLY = script("apply")
EXPIRE = script("expire")
PROMOTE = script("promote")
RENEW = script("renew")
LEAVE = script("leave")
AUDIT = script("audit")
GONE_BACK = script("gone_back")
LOAD = script("load")
PEEK = script("peek")
DETAIL = script("detail")
CHECKPOINT = script("checkpoint")
TENANTS = script("tenants")
WORKERS = script("workers")
STATS = script("stats")
HEADS = script("heads")
NEWEST = script("newest")
CLOCK = script("clock")
PRUNE_TASKS = script("prune_tasks")
PRUNE_CHECKPOINTS = script("prune_checkpoints")
PRUNE_TOMBSTONES = script("prune_tombstones")
PRUNE_AUDIT = script("prune_audit")
PRUNE_WORKERS = script("prune_workers")
PRUNE_CLAIMS = script("prune_claims")
PRUNE_CONSUMERS = script("prune_consumers")
SALVAGE = script("salvage")
STRAY = script("stray")
EXAMINE = script("examine")
MEMBERS = script("members")
EXAMINE_TENANTS = script("examine_tenants")
TALLY = script("tally")
RECOUNT = script("recount")
