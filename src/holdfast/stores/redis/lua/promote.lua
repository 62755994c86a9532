-- promote: ARGV 2 limit, 3 the statuses of DUE, 4 its event.

local due, event = cmsgpack.unpack(ARGV[3]), ARGV[4]
local moved, unreadable = 0, {}

get_through()

local function promote(r)
  local changes = due[r.status] and move(r, due, event, {})
  if not changes then return false end
  take_out(r)
  call('HDEL', K.task(r.id), 'due')
  enter(r)
  add(changes, 'place', r.place, 'entry', r.entry or '')
  set(r, changes)
  return true
end

-- What is due in one moment goes in the order of the submits, as in every store.
local function in_order(ids)
  local found = {}
  for i = 1, #ids, 2 do
    local r, wrong = read(ids[i])
    local order = r and tonumber(r.order) or 0
    found[#found + 1] = {ids[i], r or false, wrong, due = tonumber(ids[i + 1]), order = order}
  end
  table.sort(found, function(a, b) return a.due < b.due or a.due == b.due and a.order < b.order end)
  return found
end

for _, found in ipairs(in_order(call('ZRANGEBYSCORE', K.retry, '-inf', decimal(now), 'WITHSCORES',
    'LIMIT', 0, ARGV[2]))) do
  local id, r, wrong = unpack(found, 1, 3)
  if not r and wrong or r and r.place == 'later' and not promote(r) then
    unreadable[#unreadable + 1] = id
  else
    call('ZREM', K.retry, id)
    moved = moved + 1
  end
end
finish()
local next = call('ZRANGE', K.retry, 0, 0, 'WITHSCORES')[2]
return {{moved, next and decimal(tonumber(next) - now) or '', unreadable}, writes, written}
