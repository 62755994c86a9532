-- First runs: tasks that have only waited, which are handed out a batch of entries at a time.
--
-- The law: a batch is looked at as a whole, before anything of it is written. What is as usual is
-- then handed out here, in the order of the entries and between the others. A first run is usual if
--
-- - its record is as its submit made it, ready under this very entry, and the entry names its type;
-- - its payload is a text that begins with the line of its submit;
-- - its tenant is met first in this batch, has no lock and is not held.
--
-- All else is left to `take` in claim.lua. Where nothing else is met the claim ends here, and the
-- server need not build the functions of the rest of the script.
-- uses: iso_time server foreign_keys time claim_state write_batch
-- keys: back by_status leases lock payload stream switches task
-- constants: GROUP PLACE.leased PLACE.ready

local goes_straight = ARGV[10] ~= ''
local queues, next_queue = {}, 1  -- those before the next are done with
local left_over  -- the batch of the next queue that was read and is still to be dealt with
local status_before, status_after  -- of all first runs that are usual
local first_runs, leases_begun, index_left, index_joined = 0, {}, {}, {}
local moved, counted_queue, counted_type, places  -- where the last one was counted
local waited, waited_since = 0, nil
local byte, format, ready, leased = string.byte, string.format, PLACE.ready, PLACE.leased
local middle, updated_at = ':' .. secret .. ':', iso(wall)
local now_us, task_keys, payload_keys = math.floor(now * 1000000), K.task(''), K.payload('')

-- Leaves to the general way the tasks of tenants that have a lock, or are held.
local function leave_unfree(facts, tenants, at)
  local locks, holds = {}, {}
  for n, tenant in ipairs(tenants) do
    locks[n], holds[n] = K.lock(tenant), 'hold:tenant ' .. tenant
  end
  if call('EXISTS', unpack(locks)) > 0 then
    for n, lock in ipairs(locks) do
      if call('EXISTS', lock) == 1 then facts[at[n]] = false end
    end
  end
  if any_switch_set then
    for n, hold in ipairs(call('HMGET', K.switches, unpack(holds))) do
      if hold then facts[at[n]] = false end
    end
  end
end

-- Returns whether first runs come from this status. The first of them decides it for all.
local function is_usual(status)
  if not status_before and (start[status] or status) ~= status then
    status_before, status_after = status, start[status]
  end
  return status and status == status_before
end

-- Looks at a batch. Its `facts` have what the record says for each usual first run, else false;
-- `usual` says how many these are.
local function look_at(queue, entries)
  local facts, keys, names = {}, {}, {}
  local batch = {queue = queue, entries = entries, facts = facts, keys = keys, usual = 0}
  for i = 1, #entries do
    local values = entries[i][2]
    names[i] = payload_keys .. (values and values[2] or '')
  end
  local payloads = try('MGET', unpack(names))  -- none, for a user from before it was needed
  batch.payloads = payloads
  local met, tenants, at = {}, {}, {}
  for i = 1, #entries do
    local entry, payload = entries[i], payloads[i]
    local values = entry[2]
    facts[i] = false
    if values and values[1] == 'taskId' then
      local key = task_keys .. values[2]
      local found = try('HMGET', key, 'tenantId', 'version', 'place', 'entry', 'status',
        'statusSince', 'order')
      local tenant, status = found[1], found[5]
      if tenant == '' then tenant = nil end
      if found[2] == '1' and found[3] == ready and found[4] == entry[1]
        and (status == status_before or is_usual(status)) and tonumber(found[7]) and values[4]
        and payload and byte(payload) ~= 10 and not (tenant and met[tenant]) then
        facts[i], keys[i] = found, key
        if tenant then tenants[#tenants + 1], at[#at + 1] = tenant, i end
      end
      if tenant then met[tenant] = true end
    end
  end
  if #tenants > 0 then leave_unfree(facts, tenants, at) end
  for i = 1, #entries do
    if facts[i] then batch.usual = batch.usual + 1 end
  end
  return batch
end

-- Prepares the counts for first runs of a queue and a type.
local function count_in(queue, its_type)
  counted_queue, counted_type, places = queue, its_type, within(counts, queue)
  places[ready], places[leased] = places[ready] or 0, places[leased] or 0
  moved = within(moves, status_before .. ' ' .. status_after .. ' ' .. queue .. ' ' .. its_type)
  moved.times, moved.seconds = moved.times or 0, moved.seconds or 0
end

-- Hands out a usual first run of a batch: its payload has all that is not in the answer.
local function hand_out_usual(batch, i)
  local queue, found, values = batch.queue, batch.facts[i], batch.entries[i][2]
  local id, its_type, tenant, since = values[2], values[4], found[1], found[6]
  fence = fence + 1
  if fence < now_us then fence = now_us end
  local lease_id = found[4] .. middle .. format('%x', fence) .. ':2'
  written = written + 1
  if its_type ~= counted_type or queue ~= counted_queue then count_in(queue, its_type) end
  if since ~= waited_since then
    waited, waited_since = math.max(0, wall - (tonumber(since) or wall)), since
  end
  moved.times, moved.seconds = moved.times + 1, moved.seconds + waited
  places[ready], places[leased] = places[ready] - 1, places[leased] + 1
  first_runs = first_runs + 1
  local n = 2 * first_runs
  index_left[first_runs] = id
  index_joined[n - 1], index_joined[n] = '0', id
  leases_begun[n - 1], leases_begun[n] = lease_until, id
  if tenant and tenant ~= '' then
    call('SET', K.lock(tenant), id, 'EX', lock_seconds)
    fences[tenant] = fence
    places.locks = (places.locks or 0) + 1
  end
  call('HSET', batch.keys[i], 'status', status_after, 'version', '2', 'statusSince', stamp, 'place',
    leased, 'updatedAt', updated_at, 'leaseOwner', worker, 'leaseId', lease_id, 'taskId', id,
    'pauseRequested', 'false', 'lastCompletedStageIndex', '-1')
  n = #handed_out
  handed_out[n + 1], handed_out[n + 2], handed_out[n + 3] = id, lease_id, '0'
  claimed[#claimed + 1] = {id, batch.payloads[i], lease_id, found[7]}
end

-- Writes what follows from all first runs; answer_claim() comes after it.
local function end_first_runs()
  if first_runs == 0 then return end
  follow('ZADD', K.leases, unpack(leases_begun))
  follow('ZREM', K.by_status(status_before), unpack(index_left))
  follow('ZADD', K.by_status(status_after), unpack(index_joined))
end

-- Takes from queue to queue, and returns whether nothing unusual was met.
local function take_usual()
  queues = open_queues()
  while next_queue <= #queues and #claimed < limit do
    local queue = queues[next_queue]
    local stream = K.stream(queue)
    local there = call('EXISTS', stream, K.back(queue))
    if there > 1 then return false end
    local got = there == 1 and try('XREADGROUP', 'GROUP', GROUP, worker, 'COUNT', limit - #claimed,
      'STREAMS', stream, '>')
    if got and got.err then return false end
    if got then
      local batch = look_at(queue, got[1][2])
      if batch.usual < #batch.entries then
        left_over = batch
        return false
      end
      for i = 1, batch.usual do hand_out_usual(batch, i) end
    end
    next_queue = next_queue + 1
  end
  return true
end

if goes_straight and not is_repeat then
  local done, answer = pcall(take_usual)
  if answer ~= false then
    end_first_runs()
    return answer_claim(done, answer)
  end
end
