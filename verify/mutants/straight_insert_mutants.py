"""Defects of the straight insert: a text in its script, and what stands there instead.

The comparison of both ways must see each of them, in `tests/stores/redis/straight/`.
"""

from __future__ import annotations

from verify.mutants.lua_mutants import LuaMutant

STRAIGHT_INSERT_MUTANTS = [
    LuaMutant(*row)
    for row in (
        (
            "straight-insert-late",
            "a batch is accepted whose sender has given up",
            "if time[1] + time[2] / 1000000 > tonumber(ARGV[3]) then",
            "if false then",
        ),
        (
            "straight-insert-repeat",
            "a task that is there is written over",
            "if call('EXISTS', unpack(names)) > 0 then",
            "if false then",
        ),
        (
            "straight-insert-tombstone",
            "a task that was deleted comes back",
            "K.task(id), K.tombstone(id)",
            "K.task(id), K.task(id)",
        ),
        (
            "straight-insert-key",
            "a key is taken twice",
            "= name, name, id .. ' '",
            "= K.task(id), name, id .. ' '",
        ),
        (
            "straight-insert-digest",
            "the digest is not kept with the key",
            "name, id .. ' ' .. ARGV[at + 5]",
            "name, id .. ' ' .. ARGV[at + 1]",
        ),
        (
            "straight-insert-intake",
            "a queue whose intake is off takes more",
            "if call('HGET', K.switches, 'intake ' .. queue) then",
            "if false then",
        ),
        (
            "straight-insert-stream",
            "a stream of another program is met in the middle",
            "if is_refused(try('XLEN', of.stream)) then",
            "if false then",
        ),
        (
            "straight-insert-depth",
            "a full queue takes one more",
            "if depth > tonumber(ARGV[2]) then",
            "if depth > tonumber(ARGV[2]) + 1 then",
        ),
        (
            "straight-insert-depth-of-batch",
            "only the first of a batch is counted",
            "local fields, depth = {}, of.ready",
            "local fields, depth = {}, 1",
        ),
        (
            "straight-insert-resting",
            "a task waits behind one that rests",
            "RESTING[active[1]] and active[2] ~= 'true' then",
            "false then",
        ),
        (
            "straight-insert-hold",
            "a resting workflow is not seen to hold its line",
            "RESTING[active[1]] and active[2] ~= 'true' then",
            "RESTING[active[1]] then",
        ),
        (
            "straight-insert-gone",
            "a task waits behind one that is gone",
            "if active.err or not active[1] or",
            "if active.err or",
        ),
        (
            "straight-insert-foreign",
            "a key of another program is written over",
            "if known > 0 then return unusual(8) end",
            "if false then return end",
        ),
        (
            "straight-insert-line",
            "a tenant's tasks run side by side",
            "if tenant and leaders[tenant] ~= id then",
            "if false then",
        ),
        (
            "straight-insert-active",
            "an active task of an earlier batch is passed",
            "leaders[tenant], known = actives[n], known - 1",
            "known = known - 1",
        ),
        (
            "straight-insert-active-unset",
            "the tenant's index does not name its active task",
            "      texts[#texts + 1] = keys[n]\n      texts[#texts + 1] = leaders[tenant]\n",
            "\n",
        ),
        (
            "straight-insert-line-order",
            "a line has no order",
            "put_in(K.line(tenant), number, id)",
            "put_in(K.line(tenant), '0', id)",
        ),
        (
            "straight-insert-order",
            "a number is given out twice",
            "pcall(write_tasks, order - tasks)",
            "pcall(write_tasks, order - tasks - 1)",
        ),
        (
            "straight-insert-copied-fields",
            "a copy keeps the fields of the first",
            "ARGV[at + 4], unpack(ARGV, own, last))\n    else",
            "ARGV[at + 4])\n    else",
        ),
        (
            "straight-insert-copied-time",
            "a copy keeps the time of the first",
            "ARGV[at + 4], unpack",
            "ARGV[first + 4], unpack",
        ),
        (
            "straight-insert-copied-place",
            "a copy in a line has the entry of one that is ready",
            "      m[place] = name\n",
            "      m.ready, m.line = name, name\n",
        ),
        (
            "straight-insert-shared-fields",
            "what the tasks of a model share is lost",
            "unpack(ARGV, model + 10, m.last))",
            "unpack(ARGV, model + 10, m.last - 2))",
        ),
        (
            "straight-insert-own-fields",
            "the fields of the first of a model are lost",
            "if own <= last then",
            "if false then",
        ),
        (
            "straight-insert-by-status",
            "the index of status is not kept",
            "put_in(K.by_status(ARGV[model + 6]), '0', id)",
            "",
        ),
        (
            "straight-insert-by-tenant",
            "the tasks of a tenant are not found",
            "put_in(K.by_tenant(tenant), '0', id)",
            "",
        ),
        (
            "straight-insert-by-plan",
            "the tasks of a plan are not found",
            "put_in(K.by_plan(ARGV[model + 5]), '0', id)",
            "",
        ),
        (
            "straight-insert-by-day",
            "the tasks of a day are not found",
            "follow('SADD', K.by_day(ARGV[4]), unpack(ids))",
            "",
        ),
        (
            "straight-insert-counts",
            "those in a line are counted as ready",
            "queue.ready, queue.line = queue.ready - 1, queue.line + 1",
            "",
        ),
        (
            "straight-insert-writes",
            "the writes of a batch count as one",
            "call('HINCRBY', K.meta, 'writes', tasks)",
            "call('HINCRBY', K.meta, 'writes', 1)",
        ),
        (
            "straight-insert-queues",
            "a new queue is not listed",
            "local first = by > 0 and call('HINCRBY', K.counts, queue .. ' ' .. place, by) == by",
            "local first = by > 0 and call('HINCRBY', K.counts, queue .. ' ' .. place, by) == 0",
        ),
        (
            "straight-insert-bell",
            "nobody is told",
            "if of.ready > 0 then rings.ready = '1' end",
            "",
        ),
        (
            "straight-insert-bell-of-lines",
            "the bell rings for tasks in lines",
            "if of.ready > 0 then rings.ready = '1' end",
            "rings.ready = '1'",
        ),
        (
            "straight-insert-notices",
            "a key of another program is not named",
            "'written', tonumber(tasks), 'notices', strange_keys()}",
            "'written', tonumber(tasks), 'notices', {}}",
        ),
        (
            "straight-insert-kept-entry",
            "an entry of a task that was taken back stays",
            "if type(entry) == 'string' then try('XDEL'",
            "if false then try('XDEL'",
        ),
        (
            "straight-insert-kept-records",
            "tasks stay that were taken back",
            "  try('DEL', unpack(names))\n",
            "",
        ),
        (
            "straight-insert-kept-payloads",
            "payloads stay of tasks that were taken back",
            "for n = 1, #texts, 2 do names[#names + 1] = texts[n] end",
            "",
        ),
        (
            "straight-insert-kept-order",
            "numbers of tasks that were taken back are lost",
            "  try('DEL', unpack(names))\n  call('HINCRBY', K.meta, 'order', '-' .. tasks)\n",
            "  try('DEL', unpack(names))\n",
        ),
    )
]
