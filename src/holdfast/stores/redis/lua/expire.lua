-- expire: ARGV 2 limit, 3 whether crashes count, 4 the statuses of LOSE, 5 its event.
-- One that comes too late counts nobody: the leases lapsed while the server stood still.
-- Lost tasks go to the head of their queue: they have waited once, and their tenants with them.
-- Their entries stay pending with the one who is gone, until the next claim takes them over.

local counted, lose, event = ARGV[3] == '1' and now <= asked, cmsgpack.unpack(ARGV[4]), ARGV[5]
local taken, unreadable = 0, {}

get_through()

local function in_order(ids)
  local found = {}
  for i, id in ipairs(ids) do
    local r, wrong = read(id)
    found[i] = {id, r or false, wrong, order = r and tonumber(r.order) or 0}
  end
  table.sort(found, function(a, b) return a.order < b.order end)
  return found
end

local function lost(r)
  local changes = move(r, lose, event, {r.leaseOwner or '', r.fence or '0', counted and '1' or '0'})
  if not changes then return false end
  unlock(r)
  if counted then
    add(changes, 'crashes', whole(tonumber(r.crashes or '0') + 1))
    r.optional = with_optional(r, 'crashes')
  end
  r.optional = with_optional(r, 'interrupted')
  add(changes, 'interrupted', 'true', 'optional', r.optional, 'place', 'ready')
  call('HDEL', K.task(r.id), 'leaseId', 'leaseOwner', 'progress')
  set(r, changes)
  call('ZADD', K.back(r.queue), whole(-call('HINCRBY', K.meta, 'lost', 1)), r.id)
  count(r.queue, 'leased', -1)
  count(r.queue, 'ready', 1)
  rings.ready = true
  return true
end

-- In the order of their submits, as in every store: leases of one claim lapse in one moment.
for _, found in ipairs(in_order(call('ZRANGEBYSCORE', K.leases, '-inf', decimal(now),
    'LIMIT', 0, ARGV[2]))) do
  local id, r, wrong = unpack(found, 1, 3)
  if not r and wrong or r and r.place == 'leased' and not (lose[r.status] and lost(r)) then
    unreadable[#unreadable + 1] = id
  else
    call('ZREM', K.leases, id)
    taken = taken + 1
  end
end
finish()
return {{taken, unreadable, decimal(now)}, writes, written}
