"""Defects of the scripts of the Redis store: a text in one of them, and what stands there instead.

The store contract must catch each of them, on a real server. Of the straight path, the tests that
compare both ways must.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from holdfast.stores.redis import scripts
from holdfast.stores.redis.client.client import Script
from verify.mutants.straight_claim_mutants import CLAIM_DEFECTS
from verify.mutants.straight_commit_mutants import COMMIT_DEFECTS
from verify.mutants.straight_insert_mutants import INSERT_DEFECTS


@dataclass(frozen=True, slots=True)
class LuaMutant:
    name: str
    says: str
    text: str
    instead: str

    @contextmanager
    def alive(self) -> Iterator[None]:
        real = {name: one for name, one in vars(scripts).items() if isinstance(one, Script)}
        broken = {name: self._broken(one) for name, one in real.items()}
        if all(broken[name].source == one.source for name, one in real.items()):
            raise LookupError(f"{self.name}: no script has the text {self.text!r}")
        vars(scripts).update(broken)
        try:
            yield
        finally:
            vars(scripts).update(real)

    def _broken(self, script: Script) -> Script:
        return Script(script.name, script.source.replace(self.text, self.instead))


LUA_MUTANTS = [
    LuaMutant(*row)
    for row in (
        ("no-version", "a stale version is written over", "r.version ~= t.expects", "false"),
        ("no-lease", "a lease is not compared", "r.leaseId ~= t.lease or", "false and"),
        (
            "operator-moves-leased",
            "an operator moves a task that runs",
            "elseif r.place == PLACE.leased and t.next ~= NEXT.stay then",
            "elseif false then",
        ),
        ("no-repeats", "a repeated request is stale", "known and 'repeated'", "false and 'x'"),
        (
            "no-tombstone-repeat",
            "the last repeat of all is stale",
            "== t.request then",
            "== 0 then",
        ),
        ("no-moved-on", "newer work of the tenant is ignored", "> fence\nend", "> fence * 2\nend"),
        (
            "no-checkpoint-needed",
            "a task continues without its checkpoint",
            "if t.not_without_checkpoint and",
            "if false and",
        ),
        ("old-checkpoint", "an older checkpoint replaces a newer", "if version >=", "if 0 >"),
        (
            "line-always-open",
            "a tenant's tasks run side by side",
            "not line_is_open(active)",
            "false",
        ),
        ("hold-ignored", "a resting workflow lets others pass", "and a[2] ~= 'true')", ")"),
        (
            "line-not-advanced",
            "the next in line is not let through",
            "if first then\n      to_queue(first)",
            "if false then\n      to_queue(first)",
        ),
        ("line-last-in-first-out", "the line is a stack", "'ZPOPMIN'", "'ZPOPMAX'"),
        ("active-kept", "the tenant's index is not cleared", "r.place ~= PLACE.settled and", ""),
        (
            "no-resting",
            "a resting task is not shown again",
            "'ZREVRANGE', K.resting",
            "'ZREVRANGE', K.line",
        ),
        ("lock-kept", "the tenant's lock stays after the end", "\n    unlock(r)\n", "\n"),
        ("entry-kept", "the entry stays in the stream", "try('XDEL', stream, unpack(of))", ""),
        (
            "not-acknowledged",
            "the entry stays pending",
            "try('XACK', stream, GROUP, unpack(of))",
            "",
        ),
        (
            "lost-at-the-end",
            "a lost task goes behind all others",
            "if #claimed < limit then take_back(queue, stream) end",
            "",
        ),
        (
            "lost-not-counted",
            "a crash is not counted",
            "add(changes, 'crashes', whole(crashes + 1))",
            "add(changes, 'crashes', '0')",
        ),
        (
            "lost-keeps-lease",
            "a lost lease can still be renewed",
            "found[1] == lease and found[3] == PLACE.leased",
            "found[1] == lease",
        ),
        (
            "no-lapse",
            "a lease is taken over too early",
            "'-inf', decimal(now), 'LIMIT', 0, ARGV[2]",
            "'-inf', '+inf', 'LIMIT', 0, ARGV[2]",
        ),
        (
            "claim-not-repeated",
            "a lost answer loses its tasks",
            "if before > got then",
            "if false then",
        ),
        (
            "fence-stands-still",
            "fences do not rise",
            "fence = math.max(fence + 1, math.floor(now * 1000000))",
            "fence = 7",
        ),
        ("no-depth", "a full queue takes more", "depth(s.queue) >= limit", "depth(s.queue) < 0"),
        (
            "depth-not-counted",
            "a batch goes past the limit",
            "depths[s.queue] + 1",
            "depths[s.queue]",
        ),
        (
            "no-key",
            "a key is taken twice",
            "if id then return {digest",
            "if false then return {digest",
        ),
        ("no-digest", "another payload under the same key", "digest == s.digest and", "true and"),
        (
            "no-insert-repeat",
            "a submit sent again is a second task",
            "> 0 then return {'inserted', s.id} end",
            "> 9 then return {} end",
        ),
        (
            "status-not-indexed",
            "the index of status is not kept",
            "if after then put_in(K.by_status(after), id) end",
            "",
        ),
        (
            "no-moves",
            "transitions are not counted",
            "so_far.times = (so_far.times or 0) + (times or 1)",
            "so_far.times = 0",
        ),
        (
            "no-counts",
            "places are not counted",
            "of[place] = (of[place] or 0) + by",
            "of[place] = 0",
        ),
        ("no-bell", "nobody is told", "if #bell > 0 then", "if false then"),
        (
            "no-optional",
            "what was said once is said for ever",
            "if gone then call('HDEL'",
            "if false then call('HDEL'",
        ),
        (
            "due-at-once",
            "a retry does not wait",
            "decimal(now + tonumber(t.delay))",
            "decimal(now)",
        ),
        (
            "wall-clock-leases",
            "a jump of the wall clock takes leases",
            "now, wall = tonumber(a), tonumber(b)",
            "now, wall = tonumber(b), tonumber(b)",
        ),
        ("renew-any", "any lease renews", "found[1] == lease", "found[1]"),
        (
            "stages-kept",
            "a start from scratch keeps old results",
            "if t.drop_stages then",
            "if false then",
        ),
        (
            "known-without-version",
            "a holder's old write is taken for its next",
            "found[1] ~= t.expects or found[2] ~= t.lease",
            "found[2] ~= t.lease",
        ),
        (
            "known-without-lease",
            "whoever knows the version may write",
            "found[1] ~= t.expects or found[2] ~= t.lease",
            "found[1] ~= t.expects",
        ),
        (
            "start-never-said",
            "that a task was started is forgotten",
            "r.unlogged = r.leaseId and version == r.version",
            "r.unlogged = false",
        ),
        (
            "straight-runs-forgotten",
            "a repeat of the only commit is stale",
            "if r.ran then return behind == 0",
            "if r.ran then return false",
        ),
        (
            "no-tombstone",
            "a key is free as soon as the record is gone",
            "if till > wall then",
            "if false then",
        ),
        (
            "busy-ignored",
            "a task that was not to wait waits",
            "and would_wait(r) then return answer('busy', t.id) end",
            "and false then return nil end",
        ),
        (
            "trigger-no-version",
            "a change is written over a newer one",
            "if found[1] == t.expects then return nil end",
            "if found[1] then return nil end",
        ),
        (
            "trigger-not-moved-on",
            "a trigger fires and stays where it is",
            "\n  write_trigger(t)\n  if t.audit",
            "\n  if t.audit",
        ),
        (
            "trigger-leased-and-due",
            "a trigger that is leased is handed out again",
            "else take_from(K.triggers_due, id) end",
            "end",
        ),
        (
            "trigger-lease-shared",
            "a trigger is leased to two",
            "r.owner ~= owner and not has_lapsed(r)",
            "false",
        ),
        (
            "trigger-lapse-not-counted",
            "a lapsed lease counts as no try",
            "(has_lapsed(r) and 1 or 0)",
            "0",
        ),
        (
            "trigger-lease-by-the-wall",
            "a jump of the wall clock takes triggers",
            "K.triggers_leased, '-inf', decimal(now)",
            "K.triggers_leased, '-inf', decimal(wall)",
        ),
        (
            "trigger-overlaps",
            "the last task is not looked at",
            "if t.unless and is_unfinished(t.unless)",
            "if false",
        ),
        (
            "trigger-room-for-one",
            "of several tasks some find no room",
            "added[s.queue] = (added[s.queue] or 0) + 1",
            "depths[s.queue] = depths[s.queue] - 1",
        ),
        (
            "change-not-repeated",
            "a repeated change is stale",
            "same and 'repeated'",
            "false and 'repeated'",
        ),
        (
            "due-not-told",
            "nobody hears of what is due",
            "rings.due = true",
            "rings.due = nil",
        ),
        (
            "ended-not-kept",
            "what has ended goes before the age asked for",
            "at ~= nil and at < before",
            "at ~= nil",
        ),
        (
            "plan-no-version",
            "a stale change of a plan is written",
            "if found[1] ~= t.expects then",
            "if false then",
        ),
        (
            "plan-no-lease",
            "a zombie driver moves a plan",
            "if t.lease and found[3] ~= t.lease then",
            "if false then",
        ),
        (
            "plan-claimed-twice",
            "a plan that is driven is handed out again",
            "  put_in(K.plans_due, id, till)\n  written",
            "  written",
        ),
        (
            "plan-renew-any",
            "any lease renews a plan's",
            "found ~= ARGV[3] or seconds > 0 and till <= now",
            "seconds > 0 and till <= now",
        ),
        (
            "plan-fence-stands-still",
            "fences of plans do not rise",
            "fence = math.max(fence + 1, math.floor(now * 1000000))\n  call('HSET', K.plan(id)",
            "fence = 7\n  call('HSET', K.plan(id)",
        ),
        (
            "admitted-not-written",
            "a task has a slot that nobody sees",
            "in_pieces('ZADD', K.plan_admitted(id), slots)",
            "",
        ),
        (
            "waiting-kept",
            "a task that waits again is still seen as before",
            "in_pieces('HDEL', K.plan_members(id), unseen)",
            "",
        ),
        (
            "intake-not-shut",
            "a queue whose intake is off takes more",
            "if is_shut(s.queue) then",
            "if false then",
        ),
        (
            "trigger-not-shut",
            "a trigger moves on though its task was refused",
            "or known[1] == 'shut' or",
            "or",
        ),
        (
            "claiming-not-off",
            "a queue whose claiming is off is claimed from",
            "if not off then open",
            "if true then open",
        ),
        (
            "hold-not-seen",
            "a task of a held tenant is handed out",
            "local hold = any_switch_set and r.tenantId",
            "local hold = false and r.tenantId",
        ),
        (
            "hold-outlives-its-end",
            "a task of a tenant whose hold is over is not handed out",
            "return hold and (end_of(hold) or wall + 1) > wall",
            "return hold",
        ),
        (
            "new-hold-taken-for-the-old",
            "a hold that took the place of one that is over is set back with it",
            "if only ~= '' and (ends ~= tonumber(only) or ends > wall) then return 0 end",
            "",
        ),
        (
            "hold-not-let-go",
            "a task that was met under a hold is in no queue after the release",
            "if r and r.place == PLACE.ready and not r.entry then",
            "if false then",
        ),
        (
            "switch-written-over",
            "who has set a switch first is forgotten",
            "if not stood then call('HSET', K.switches, switch, setting) end",
            "call('HSET', K.switches, switch, setting)",
        ),
        (
            "switch-not-written-down",
            "nobody knows who set a switch",
            "if entry ~= '' then",
            "if false then",
        ),
        (
            "switch-not-told",
            "nobody hears that a queue is on again",
            "if stored and setting == '' then",
            "if false then",
        ),
        (
            "drain-kept",
            "a worker that has gone is still to be drained",
            "call('HDEL', K.switches, 'drain ' .. worker)",
            "",
        ),
        (
            "locks-not-counted",
            "no lock is counted",
            "if r.tenantId then count(r.queue, 'locks', by) end",
            "",
        ),
        (
            "lock-counted-for-ever",
            "the lock of a task that ends is still counted",
            "    count_lock(r, -1)\n    take_from",
            "    take_from",
        ),
        (
            "lost-lock-counted",
            "the lock of a lost task is still counted",
            "  count_lock(r, -1)\n  rings",
            "  rings",
        ),
        (
            "checkpoints-not-counted",
            "no checkpoint is counted",
            "if t.saves then",
            "if false then",
        ),
        (
            "moves-of-one-type",
            "moves of all types are one",
            ".. (r.type or '')",
            "",
        ),
        (
            "error-group-kept",
            "a task that is tried again stays in its group",
            "take_from(K.by_cause(before), id)",
            "",
        ),
        (
            "error-group-not-counted",
            "a group of suspended tasks is not found",
            "call('ZADD', K.errors, tasks, fingerprint)",
            "call('ZADD', K.errors, 1, fingerprint)",
        ),
        (
            "nothing-follows",
            "what follows from a transition is left out",
            "if t.follows then follow_ups.accept_all(t.follows) end",
            "",
        ),
        (
            "nothing-follows-from-a-plan",
            "what follows from a change of a plan is left out",
            "\nif t.follows then accept_all(t.follows) end\n",
            "\n",
        ),
        (
            "followers-refused",
            "a queue that is shut keeps back what has happened",
            "if not met_before(s) then accept(s) end",
            "insert(s, 1000000)",
        ),
        (
            "followers-of-the-refused",
            "what follows from a refused transition goes in",
            "  if refused then return refused end\n",
            (
                "  if refused then\n    if t.follows then follow_ups.accept_all(t.follows) end\n"
                "    return refused\n  end\n"
            ),
        ),
        (
            "followers-made-again",
            "a task that follows is written over one that was there",
            "if not met_before(s) then accept(s) end",
            "accept(s)",
        ),
        (
            "followers-not-ended",
            "tasks that follow are not among those of their day",
            "if follow_ups then follow_ups.end_submits() end",
            "",
        ),
        (
            "times-not-added",
            "only the last times of stages are kept",
            "'HINCRBY', K.durations",
            "'HSET', K.durations",
        ),
        *INSERT_DEFECTS,
        *CLAIM_DEFECTS,
        *COMMIT_DEFECTS,
    )
]
