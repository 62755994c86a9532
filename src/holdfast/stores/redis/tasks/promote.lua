-- promote: Moves tasks whose time has come to their queues.
-- ARGV 2 limit, 3 the statuses of DUE, 4 its event. Answers how many were `moved`, the seconds
-- until the next is due (`wait`), and which are `unreadable`.
-- uses: lists numbers server foreign_keys full_memory time write_batch queue_entry departure
--   record_changes store_moves
-- keys: retry task
-- constants: PLACE.later

local due, event = cmsgpack.unpack(ARGV[3]), ARGV[4]
local moved, unreadable = 0, {}

local function promote(id, r, wrong)
  if wrong then return false end
  if not r or r.place ~= PLACE.later then
    call('ZREM', K.retry, id)
    return true
  end
  local changes = due[r.status] and move(r, due, event, {})
  if not changes then return false end
  take_out(r)
  call('HDEL', K.task(id), 'due')
  enter(r)
  add(changes, 'place', r.place, 'entry', r.entry or '')
  set(r, changes)
  return true
end

get_through()
local ids = call('ZRANGEBYSCORE', K.retry, '-inf', decimal(now), 'WITHSCORES', 'LIMIT', 0, ARGV[2])
for _, found in ipairs(in_order(ids, true)) do
  local done, is_moved = pcall(promote, found.id, found.record, found.wrong)
  if not done then note_denied(is_moved) end
  if done and is_moved then moved = moved + 1 else unreadable[#unreadable + 1] = found.id end
end
finish()
local next = call('ZRANGE', K.retry, 0, 0, 'WITHSCORES')[2]
local wait = next and decimal(tonumber(next) - now) or ''
return answered({'moved', moved, 'wait', wait, 'unreadable', unreadable})
