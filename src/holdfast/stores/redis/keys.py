"""The names of all keys, in one place, for Python and for the scripts.

A partition's keys share a prefix: the namespace itself, or, in a Cluster, the namespace and the
partition's number in braces, so that they all live in one slot (`{executor-07}:task:…`).
"""

from __future__ import annotations

from collections.abc import Iterable, Set

GROUP = "workers"  # the consumer group of every queue's stream
RINGS = 8  # entries that the bell keeps at least: exact trimming costs more than the entry
DENIED = "NOPERM"  # a script puts this among the names of foreign keys if a command was refused
TORN = "TORN"  # the same for a refusal that another process noted: see torn_writes.py

# Each key's name, and its type (nothing if it varies). The keys that the documents name come first,
# with the documents' types but for two: their indexes by plan and by status are sets, ours are
# sorted sets (docs/internals/decisions/0008 says why).
_KEYS = {
    "task": ("task:{}", "hash"),  # the record
    "ckpt": ("ckpt:{}", "string"),  # the checkpoint's JSON
    "ckpt_meta": ("ckpt:meta:{}", "hash"),  # its version, and who wrote it
    "active": ("index:tenant:{}", "string"),  # the id of the tenant's active task
    "lock": ("lock:tenant:{}", "string"),  # the id of the tenant's running task
    "by_plan": ("index:plan:{}", "zset"),  # ids, all scores 0
    "by_status": ("index:status:{}", "zset"),  # ids, all scores 0
    "by_day": ("index:time:{}", "set"),  # the ids of a day's new tasks (UTC)
    "tasks": ("queue:tasks", "stream"),  # what is ready in the queue "default"
    "tasks_of": ("queue:tasks:{}", "stream"),  # what is ready in another queue
    "retry": ("queue:retry", "zset"),  # ids by due time
    "suspended": ("queue:suspended", "zset"),  # ids by time
    # Keys of one task beside its record.
    "payload": ("payload:{}", "string"),
    "result": ("result:{}", "string"),
    "data": ("data:{}", "string"),  # customData that outlives its checkpoint
    "kept": ("kept:{}", "string"),  # a settled task's last checkpoint, for when that has expired
    "stages": ("stages:{}", "hash"),  # one field for each committed stage
    "events": ("events:{}", "list"),  # one element for each version
    "tombstone": ("tombstone:{}", "hash"),
    "damaged": ("damaged:{}", ""),  # hash: an unreadable record (salvage.py); list: its events
    # Tenants.
    "by_tenant": ("index:tasks:{}", "zset"),  # all its ids, all scores 0
    "line": ("line:{}", "zset"),  # ids by order: those behind the active task
    "resting": ("resting:{}", "zset"),  # ids by order: unsettled, without holding the line
    "fences": ("fences", "hash"),  # tenant → the last fence given out for it
    # Sets of tasks.
    "leases": ("leases", "zset"),  # ids by the end of their lease
    "back": ("back:{}", "zset"),  # ids, the newest submit first: tasks taken back
    "settled": ("settled", "zset"),  # the settled, by the end of their retention
    "saved": ("saved", "zset"),  # settled ids that have a checkpoint, by the time they settled
    "tombstones": ("tombstones", "zset"),  # the ids of tombstones by their end
    "by_error": ("index:error:{}", "zset"),  # ids, all scores 0
    "by_cause": ("index:suspended:{}", "zset"),  # ids that this error keeps suspended, scores 0
    "errors": ("errors", "zset"),  # the errors that keep tasks suspended, by how many
    "key": ("key:{}", "string"),  # the id of the task that a tenant's key belongs to
    # Triggers.
    "trigger": ("trigger:{}", "hash"),  # the record
    "trigger_lease": ("trigger:lease:{}", "string"),  # the holder, until the lease ends
    "triggers": ("triggers", "zset"),  # all ids, all scores 0
    "triggers_declared": ("triggers:declared", "zset"),  # those of code, all scores 0
    "triggers_due": ("triggers:due", "zset"),  # ids that nobody has, by time in milliseconds
    "triggers_leased": ("triggers:leased", "zset"),  # ids by the end of their lease
    "triggers_ended": ("triggers:ended", "zset"),  # ids by the end of their retention
    # Plans.
    "plan": ("plan:{}", "hash"),  # the record, and the list of its tasks
    "plan_admitted": ("plan:{}:admitted", "zset"),  # the tasks that have a slot, by number
    "plan_members": ("plan:{}:members", "hash"),  # number of a task → how the plan sees it
    "plan_events": ("plan:{}:events", "list"),  # one element for each version
    "plans": ("plans", "zset"),  # "TIME ID", all scores 0
    "plans_due": ("plans:due", "zset"),  # ids by the time they are due, or the lease's end
    "plans_settled": ("plans:settled", "zset"),  # "TIME ID" by the end of their retention
    # All of them.
    "meta": ("meta", "hash"),  # format, partitions, the numbers that rise
    "queues": ("queues", "set"),  # the queues' names
    "counts": ("counts", "hash"),  # "queue place" (or locks, or checkpoints) → how many
    "moves": ("moves", "hash"),  # "from to queue type" → how often; with "us" → after how long
    "durations": ("durations", "hash"),  # "type stage outcome span" → how often; "… us" → how long
    "switches": ("switches", "hash"),  # "switch name" → who has set it, and when
    "refused": ("refused", "hash"),  # "status command" → how often
    "audit": ("audit", "list"),  # the oldest first: what is not in the chain yet
    "chain": ("audit:chain", "list"),  # "number hash entry", the oldest first (the first partition)
    "ends": ("audit:ends", "hash"),  # the chain's base and head, and what it has of which partition
    "workers": ("workers", "hash"),  # worker → its last beat
    "seen": ("workers:seen", "zset"),  # workers by their last beat
    "claims": ("claims", "hash"),  # worker → its last claim
    "mending": ("mending", "string"),  # while a process repairs what a refused command has torn
    "reconciled": ("reconciled", "string"),  # while the last reconciliation is recent
    "bell": ("bell", "stream"),  # a few entries: something may be ready, or has stopped
}
TEMPLATES = {kind: template for kind, (template, _) in _KEYS.items()}
TYPE_OF = {kind: type_ for kind, (_, type_) in _KEYS.items()}
# The types of the keys whose names are fixed.
TYPES = {kind: type_ for kind, type_ in TYPE_OF.items() if "{}" not in TEMPLATES[kind]}


class KeyNames:
    """The keys of one partition."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.meta = self("meta")  # passed to every script as the name of its partition
        self.bell = self("bell")

    def __call__(self, kind: str, *of: str) -> str:
        return f"{self.prefix}:{TEMPLATES[kind].format(*of)}"

    def stream(self, queue: str) -> str:
        return self("tasks") if queue == "default" else self("tasks_of", queue)

    def key(self, tenant: str | None, key: str) -> str:
        return self("key", f"{tenant or ''}|{key}")  # a name has no bar in it


def number_of(partition: int) -> str:
    return f"{partition:02}"


def prefixes(namespace: str, partitions: int, *, clustered: bool) -> list[str]:
    if not clustered:
        return [namespace]
    return [f"{{{namespace}-{number_of(number)}}}" for number in range(partitions)]


_MADE_OF = {"stream": ("tasks", "tasks_of"), "key_of": ("key",)}  # others are made of these
_MADE = {
    "stream": "function(q) if q == 'default' then return K.tasks end return K.tasks_of(q) end",
    "key_of": "function(tenant, key) return K.key(tenant .. '|' .. key) end",
}
ALL = "all"  # for a script that gets the kind of its key as an argument
KINDS = {*TEMPLATES, *_MADE, ALL}


def in_lua(used: Set[str]) -> str:
    """Return the keys that a script uses as a table ``K``, over the prefix of its first key.

    The server makes the table at each run: at once, because one that grows costs it more.
    """
    kinds = {*TEMPLATES, *_MADE} if ALL in used else set(used)
    kinds |= {part for kind in kinds for part in _MADE_OF.get(kind, ())}
    prefix = f"local P = string.sub(KEYS[1], 1, -{len(TEMPLATES['meta']) + 1})"
    return "\n".join([prefix, "local K", "K = {", *_members(kinds), "}"])


def _members(used: Set[str]) -> Iterable[str]:
    for kind, template in TEMPLATES.items():
        head, slot, tail = template.partition("{}")
        if kind not in used:
            continue
        if slot:
            after = f" .. '{tail}'" if tail else ""
            yield f"{kind} = function(of) return P .. '{head}' .. of{after} end,"
        else:
            yield f"{kind} = P .. '{head}',"
    yield from (f"{kind} = {text}," for kind, text in _MADE.items() if kind in used)
