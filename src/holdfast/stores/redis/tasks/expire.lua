-- expire: Takes back tasks whose lease has lapsed.
-- ARGV 2 limit, 3 from how many crashes on one counts only if it ran alone (empty: none counts), 4
-- the statuses of LOSE, 5 its event. Answers how many leases were `taken`, which tasks are
-- `unreadable`, the time (`now`), and whether the store is still ours (`is_ours`: 0 if it was
-- emptied).
-- uses: numbers server foreign_keys full_memory time write_batch store_moves lost_lease
-- keys: leases meta
-- constants: PLACE.leased TORN

local alone_from, lose, event = tonumber(ARGV[3]), cmsgpack.unpack(ARGV[4]), ARGV[5]
local taken, unreadable = 0, {}

local function nothing_taken()
  return {'answer', {'taken', 0, 'unreadable', {}, 'now', decimal(now), 'is_ours', 1}}
end

-- One that comes too late takes nothing: the server stood still, or its clock was set forward. The
-- holders could not keep their leases, and get as long as that to do it now.
local GRACE_SECONDS_MAX = 11  -- every holder beats within 10
if now > asked then
  local grace = now + math.min(GRACE_SECONDS_MAX, now - asked)
  call('HSET', K.meta, 'grace', decimal(grace))
  return nothing_taken()
end
local meta = call('HMGET', K.meta, 'grace', 'format', 'tornAt', 'mendedAt')
local grace, is_ours = tonumber(meta[1] or '0'), meta[2] and 1 or 0
if now < grace and grace - now <= GRACE_SECONDS_MAX then return nothing_taken() end

local function take(id, r, wrong)
  if wrong then return false end
  if r and r.place == PLACE.leased then return lose_lease(r, lose, event, alone_from) end
  call('ZREM', K.leases, id)
  return true
end

if tonumber(meta[3] or '0') > tonumber(meta[4] or '0') then strangers[TORN] = true end
get_through()
local lapsed = call('ZRANGEBYSCORE', K.leases, '-inf', decimal(now), 'LIMIT', 0, ARGV[2])
for _, found in ipairs(in_order(lapsed)) do
  local done, taken_back = pcall(take, found.id, found.record, found.wrong)
  if not done then note_denied(taken_back) end
  if done and taken_back then taken = taken + 1 else unreadable[#unreadable + 1] = found.id end
end
finish()
return answered({'taken', taken, 'unreadable', unreadable, 'now', decimal(now), 'is_ours', is_ours})
