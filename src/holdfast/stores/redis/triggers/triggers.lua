-- Triggers: where they are, and what a lease does to them. Over common.lua.

local function ms(seconds) return string.format('%.3f', seconds * 1000) end

-- Where its record says that it is. `due`: when to look at it, if nobody has it; `leased`: until when
-- somebody has; `ended`: the end of its retention. At most one of them is there.
local function place_trigger(t)
  local id = t.id
  put_in(K.triggers, id)
  if t.due then put_in(K.triggers_due, id, t.due) else take_from(K.triggers_due, id) end
  if t.ended then put_in(K.triggers_ended, id, t.ended) else take_from(K.triggers_ended, id) end
  local left = t.leased and math.floor((tonumber(t.leased) - now) * 1000) or 0
  if t.leased then put_in(K.triggers_leased, id, t.leased) else take_from(K.triggers_leased, id) end
  if left >= 1 then
    call('SET', K.trigger_lease(id), t.owner, 'PX', whole(left))
  else
    call('DEL', K.trigger_lease(id))
  end
end

-- Who sleeps, sleeps until the first time of all at most: a later one does not concern him.
local function ring_if_first(due)
  local first = follow('ZRANGE', K.triggers_due, 0, 0, 'WITHSCORES')
  if not first or not first[2] or tonumber(due) < tonumber(first[2]) then rings.due = true end
end

local function write_trigger(t)
  call('HSET', K.trigger(t.id), unpack(t.fields))
  if #t.gone > 0 then call('HDEL', K.trigger(t.id), unpack(t.gone)) end
  written = written + 1
  place_trigger(t)
  if t.declared then
    put_in(K.triggers_declared, t.id)
  else
    take_from(K.triggers_declared, t.id)
  end
  if t.due then ring_if_first(t.due) end
end

local function forget_trigger(id)
  call('DEL', K.trigger(id), K.trigger_lease(id))
  take_from(K.triggers, id)
  take_from(K.triggers_declared, id)
  take_from(K.triggers_due, id)
  take_from(K.triggers_leased, id)
  take_from(K.triggers_ended, id)
end

-- Out of the sight of those who look for what is due. Its record stays, for the doctor.
local function set_trigger_aside(id)
  take_from(K.triggers_due, id)
  take_from(K.triggers_leased, id)
end

-- What a lease must know of it, or nil and what is wrong: nil (there is none) or a text.
local function trigger_at_hand(id, waits)
  local found = try('HMGET', K.trigger(id), 'status', 'version', 'triggerAt', 'owner', 'leaseUntil',
    'retryCount')
  if found.err then return nil, found.err end
  if not found[1] and not found[2] and call('EXISTS', K.trigger(id)) == 0 then return nil end
  local r = {id = id, status = found[1], version = tonumber(found[2]), at = found[3],
    owner = found[4], till = tonumber(found[5]), retries = tonumber(found[6] or '0')}
  if not (r.status and r.version and r.retries) then return nil, 'incomplete' end
  r.waits = waits[r.status] and r.at
  return r
end

local function has_lapsed(r) return r.owner and not (r.till and r.till > now) end

-- To its new owner, in a new version: whoever had it before writes to one that is gone.
local function lease_trigger(r, waits, owner, seconds)
  local till = decimal(asked + seconds)
  local retries = r.retries + (has_lapsed(r) and 1 or 0)
  call('HSET', K.trigger(r.id), 'status', waits[r.status], 'version', whole(r.version + 1),
    'owner', owner, 'leaseUntil', till, 'retryCount', whole(retries), 'updatedAt', iso(wall))
  written = written + 1
  place_trigger({id = r.id, leased = till, owner = owner})
  return {r.id, call('HGETALL', K.trigger(r.id))}
end

-- Those that are due and those that a lapsed lease has left behind, the earliest first, and those of
-- them that cannot be read.
local function free_triggers(upto, limit, waits)
  local found, wrong = {}, {}
  local function look(ids)
    for _, id in ipairs(ids) do
      local r, says = trigger_at_hand(id, waits)
      if r and r.waits then
        found[#found + 1] = r
      else
        wrong[#wrong + 1] = {id, says or r and 'waits for no time' or ''}
      end
    end
  end
  look(call('ZRANGEBYSCORE', K.triggers_due, '-inf', upto, 'LIMIT', 0, limit))
  look(call('ZRANGEBYSCORE', K.triggers_leased, '-inf', decimal(now), 'LIMIT', 0, limit))
  table.sort(found, function(a, b) return a.at < b.at or a.at == b.at and a.id < b.id end)
  return found, wrong
end

-- The seconds until there is something to look at, by either clock.
local function next_trigger()
  local due = call('ZRANGE', K.triggers_due, 0, 0, 'WITHSCORES')[2]
  local ends = call('ZRANGE', K.triggers_leased, 0, 0, 'WITHSCORES')[2]
  local wait = due and tonumber(due) / 1000 - wall
  if ends then wait = math.min(wait or math.huge, tonumber(ends) - now) end
  return wait and decimal(math.max(0, wait)) or ''
end
