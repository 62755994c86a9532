"""The scripts, one for each verb, over what they share."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable

from holdfast.domain.task.placement import START
from holdfast.stores.redis.client.client import Script
from holdfast.stores.redis.encoding.record import KEEP_SECONDS
from holdfast.stores.redis.keys import TEMPLATES, in_lua


def _lua_files(folder: Traversable) -> Iterator[Traversable]:
    for item in folder.iterdir():
        if item.is_dir():
            yield from _lua_files(item)
        elif item.name.endswith(".lua"):
            yield item


_FILES = {
    file.name.removesuffix(".lua"): file for file in _lua_files(files("holdfast.stores.redis"))
}


def _read(name: str) -> str:
    return _FILES[name].read_text(encoding="utf-8")


_COMMON = (
    f"local STARTED, KEEP = '{START.event}', '{KEEP_SECONDS}'\n{_read('common')}\n{_read('places')}"
)
_FUNCTION = re.compile(  # in one line, or up to an "end" that begins one
    r"^local function (\w+)\((?:[^\n]* end|[^\n]*\n.*?^end)$\n", re.MULTILINE | re.DOTALL
)
_COMMENT = re.compile(r"^\s*--.*\n", re.MULTILINE)


def script(name: str, *more: str) -> Script:
    """A verb over what it needs of what they share, all of them or some (``more``): the server
    makes all of it at each run."""
    verb = _read(name)
    shared = "\n".join([_COMMON, *map(_read, more)])
    common = _needed(_COMMENT.sub("", shared), verb)
    used = common + verb
    keys = TEMPLATES.keys() if "K[" in used else set(re.findall(r"\bK\.(\w+)", used))
    return Script(name, f"{in_lua(keys)}\n{common}\n{verb}")


def _needed(common: str, verb: str) -> str:
    """Without the functions that nothing in the verb leads to."""
    bodies = {found[1]: found[0] for found in _FUNCTION.finditer(common)}
    known = _words(_FUNCTION.sub("", common) + _COMMENT.sub("", verb))
    waiting = [name for name in bodies if name in known]
    needed = set(waiting)
    while waiting:
        more = (_words(bodies[waiting.pop()]) & bodies.keys()) - needed
        needed |= more
        waiting += more
    return _FUNCTION.sub(lambda found: found[0] if found[1] in needed else "", common)


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text))


INSERT = script("insert", "submits")
REMAKE = script("remake")
CLAIM = script("claim")
APPLY = script("apply")
APPLY_FOLLOWED = script("apply", "submits")  # the same where tasks follow, which is seldom
EXPIRE = script("expire")
PROMOTE = script("promote")
RENEW = script("renew")
LEAVE = script("leave")
AUDIT = script("audit")
SEAL = script("seal")
SEAL_TRIM = script("seal_trim")
LOOSE = script("loose")
LINKS = script("links")
THROW = script("throw")
OBSERVE = script("observe")
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
CAUSES = script("causes")
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
EXAMINE_CAUSES = script("examine_causes")
TALLY = script("tally")
RECOUNT = script("recount")
TRIGGER_SAVE = script("trigger_save", "triggers")
TRIGGER_REMOVE = script("trigger_remove", "triggers")
TRIGGER_LEASE = script("trigger_lease", "triggers")
TRIGGER_CLAIM = script("trigger_claim", "triggers")
TRIGGER_DUE = script("trigger_due", "triggers")
TRIGGER_APPLY = script("trigger_apply", "submits", "triggers")
TRIGGER_ASIDE = script("trigger_aside", "triggers")
PRUNE_TRIGGERS = script("prune_triggers", "triggers", "ended")
EXAMINE_TRIGGERS = script("examine_triggers", "triggers")
PLAN_CREATE = script("plan_create", "plans")
PLAN_CLAIM = script("plan_claim", "plans")
PLAN_DUE = script("plan_due", "plans")
PLAN_RENEW = script("plan_renew", "plans")
PLAN_WAKE = script("plan_wake", "plans")
PLAN_APPLY = script("plan_apply", "plans", "submits")
PLAN_ASIDE = script("plan_aside")
PRUNE_PLANS = script("prune_plans", "plans", "ended")
EXAMINE_PLANS = script("examine_plans", "plans")
EXAMINE_DUES = script("examine_dues")
