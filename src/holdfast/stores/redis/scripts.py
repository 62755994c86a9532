"""The scripts, one for each verb, composed of the Lua files that their heads name.

The head of a Lua file is the comment at its top. Its lines name what the file uses, and nothing
else: ``-- uses:`` other files (whose heads name theirs), ``-- keys:`` functions and fields of the
table ``K`` (see `keys.py`), and ``-- constants:`` values that Python knows. The server builds every
function of a script at each run, so a shared file holds only what its users need together.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Set
from enum import StrEnum
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import TypeAlias

import msgspec

from holdfast.domain.plan.plan import PlanNext
from holdfast.domain.task import placement
from holdfast.domain.task.placement import Next, Place
from holdfast.stores.redis import keys
from holdfast.stores.redis.client.client import Script
from holdfast.stores.redis.encoding.record import KEEP_SECONDS

Constant: TypeAlias = str | Set[str] | Mapping[str, str]

# The place machine is Python's (`domain/task/placement.py`): the scripts get its tables as data.
CONSTANTS: Mapping[str, Constant] = {
    "GROUP": keys.GROUP,
    "RINGS": str(keys.RINGS),
    "DENIED": keys.DENIED,
    "TORN": keys.TORN,
    "STARTED": placement.START.event,
    "KEEP": str(KEEP_SECONDS),
    "PLACES": frozenset(Place),
    "WAITING": placement.WAITING,
    "RESTING": placement.RESTING,
    "MAY_BE_ACTIVE": placement.ACTIVE | placement.RESTING,
    "UNFINISHED": frozenset(Place) - placement.STOPPED,
    "PLACE_AFTER": {str(goes): place for goes, place in placement.PLACE_AFTER.items()},
}
ENUMS: Mapping[str, type[StrEnum]] = {"PLACE": Place, "NEXT": Next, "PLAN_NEXT": PlanNext}
_NAMED = re.compile(r"^-- (uses|keys|constants): (.*(?:\n--   .*)*)$", re.MULTILINE)
_COMMENT = re.compile(r"^\s*--.*\n", re.MULTILINE)
_BLANK = re.compile(r"^\n", re.MULTILINE)


class LuaFile(msgspec.Struct, frozen=True, kw_only=True):
    """A Lua file: the names in its head, and its code as it is sent to the server."""

    name: str
    text: str
    uses: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    constants: tuple[str, ...] = ()

    @property
    def code(self) -> str:
        return _BLANK.sub("", _COMMENT.sub("", self.text))


def _lua_file(name: str, text: str) -> LuaFile:
    head = text.partition("\n\n")[0]
    named = {kind: tuple(re.findall(r"[\w.]+", names)) for kind, names in _NAMED.findall(head)}
    return LuaFile(name=name, text=text, **named)


def _lua_files(folder: Traversable) -> Iterator[LuaFile]:
    for item in folder.iterdir():
        if item.is_dir():
            yield from _lua_files(item)
        elif item.name.endswith(".lua"):
            yield _lua_file(item.name.removesuffix(".lua"), item.read_text(encoding="utf-8"))


FILES: Mapping[str, LuaFile] = {
    file.name: file for file in _lua_files(files("holdfast.stores.redis"))
}


def script(name: str) -> Script:
    """Compose the script of a verb: constants, keys, the files that it uses, and the verb."""
    parts = list(_in_order(name, set()))
    used = {key for part in parts for key in part.keys}
    constants = _constants({name for part in parts for name in part.constants})
    prelude = [*constants, keys.in_lua(used)]
    code = "".join(part.code for part in parts)
    return Script(name, "\n".join([*prelude, code]), [part.name for part in parts])


def _in_order(name: str, seen: set[str]) -> Iterator[LuaFile]:
    """Yield the files that a file uses, each once, and then the file itself."""
    if name in seen:
        return
    seen.add(name)
    for used in FILES[name].uses:
        yield from _in_order(used, seen)
    yield FILES[name]


def _constants(used: set[str]) -> Iterator[str]:
    """Yield a line of Lua for each constant that is used, and for each enum with such members."""
    for name in sorted(used & CONSTANTS.keys()):
        yield f"local {name} = {_value(CONSTANTS[name])}"
    for enum, members in ENUMS.items():
        members_used = sorted(
            name.partition(".")[2] for name in used if name.startswith(f"{enum}.")
        )
        if members_used:
            yield f"local {enum} = {_table((name, members[name.upper()]) for name in members_used)}"


def _value(constant: Constant) -> str:
    if isinstance(constant, str):
        return f"'{constant}'"
    if isinstance(constant, Mapping):
        return _table(sorted(constant.items()))
    return "{" + ", ".join(f"{name} = true" for name in sorted(constant)) + "}"


def _table(pairs: Iterable[tuple[str, str]]) -> str:
    return "{" + ", ".join(f"{name} = '{value}'" for name, value in pairs) + "}"


INSERT = script("insert")
INSERT_TASKS = script("insert_tasks")
RECREATE_META = script("recreate_meta")
CLAIM = script("claim")
APPLY = script("apply")
APPLY_WITH_FOLLOW_UPS = script(
    "apply_with_follow_ups"
)  # for transitions with follow-up tasks, which are rare
COMPLETE_TASKS = script("complete_tasks")
COMMIT_STAGES = script("commit_stages")
EXPIRE = script("expire")
PROMOTE = script("promote")
RENEW = script("renew")
LEAVE = script("leave")
AUDIT = script("audit")
SEAL = script("seal")
SEAL_TRIM = script("seal_trim")
OUTBOX = script("outbox")
CHAIN_LINKS = script("chain_links")
SET_SWITCH = script("set_switch")
OBSERVE = script("observe")
LOST_WRITES = script("lost_writes")
LOAD = script("load")
PEEK = script("peek")
DETAIL = script("detail")
CHECKPOINT = script("checkpoint")
TENANTS = script("tenants")
WORKERS = script("workers")
STATS = script("stats")
FIRST_IN_QUEUE = script("first_in_queue")
NEWEST_IDS = script("newest_ids")
ERROR_GROUPS = script("error_groups")
CLOCK = script("clock")
PRUNE_TASKS = script("prune_tasks")
PRUNE_CHECKPOINTS = script("prune_checkpoints")
PRUNE_TOMBSTONES = script("prune_tombstones")
PRUNE_AUDIT = script("prune_audit")
PRUNE_WORKERS = script("prune_workers")
PRUNE_CLAIMS = script("prune_claims")
PRUNE_CONSUMERS = script("prune_consumers")
SALVAGE = script("salvage")
DROP_STRAY_TASK = script("drop_stray_task")
EXAMINE = script("examine")
EXAMINE_MEMBERS = script("examine_members")
EXAMINE_TENANTS = script("examine_tenants")
EXAMINE_ERROR_GROUPS = script("examine_error_groups")
COMPARE_COUNTS = script("compare_counts")
RECOUNT = script("recount")
TRIGGER_SAVE = script("trigger_save")
TRIGGER_REMOVE = script("trigger_remove")
TRIGGER_LEASE = script("trigger_lease")
TRIGGER_CLAIM = script("trigger_claim")
TRIGGER_DUE = script("trigger_due")
TRIGGER_APPLY = script("trigger_apply")
TRIGGER_SET_ASIDE = script("trigger_set_aside")
PRUNE_TRIGGERS = script("prune_triggers")
EXAMINE_TRIGGERS = script("examine_triggers")
PLAN_CREATE = script("plan_create")
PLAN_CLAIM = script("plan_claim")
PLAN_DUE = script("plan_due")
PLAN_RENEW = script("plan_renew")
PLAN_WAKE = script("plan_wake")
PLAN_APPLY = script("plan_apply")
PLAN_SET_ASIDE = script("plan_set_aside")
PRUNE_PLANS = script("prune_plans")
EXAMINE_PLANS = script("examine_plans")
EXAMINE_DUE_LISTS = script("examine_due_lists")
