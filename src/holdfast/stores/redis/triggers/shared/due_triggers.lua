-- Triggers that are due, and the time until the next one is.
-- uses: numbers server time
-- keys: trigger triggers_due triggers_leased

-- Returns what a lease needs of a trigger, or nil and what is wrong: nil (there is none) or a text.
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

-- Returns the triggers that are due or were left behind by a lapsed lease, the earliest first, and
-- those of them that cannot be read.
local function free_triggers(upto, limit, waits)
  local found, wrong = {}, {}
  local function look(ids)
    for _, id in ipairs(ids) do
      local r, message = trigger_at_hand(id, waits)
      if r and r.waits then
        found[#found + 1] = r
      else
        wrong[#wrong + 1] = {id, message or r and 'has no fire time' or ''}
      end
    end
  end
  look(call('ZRANGEBYSCORE', K.triggers_due, '-inf', upto, 'LIMIT', 0, limit))
  look(call('ZRANGEBYSCORE', K.triggers_leased, '-inf', decimal(now), 'LIMIT', 0, limit))
  table.sort(found, function(a, b) return a.at < b.at or a.at == b.at and a.id < b.id end)
  return found, wrong
end

-- Returns the seconds until the next trigger is due, by either clock.
local function next_trigger()
  local due = call('ZRANGE', K.triggers_due, 0, 0, 'WITHSCORES')[2]
  local ends = call('ZRANGE', K.triggers_leased, 0, 0, 'WITHSCORES')[2]
  local wait = due and tonumber(due) / 1000 - wall
  if ends then wait = math.min(wait or math.huge, tonumber(ends) - now) end
  return wait and decimal(math.max(0, wait)) or ''
end
