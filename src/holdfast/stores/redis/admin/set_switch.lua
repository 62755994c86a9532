-- set_switch: Sets a switch, or sets it back.
-- ARGV 2 the switch and the name, 3 what is kept of it (empty: it is set back), 4 the entry to
-- write down (empty: another partition does), 5 the end that it must have passed to be set back
-- (empty: any). Answers 1 if it stood otherwise; one that is over stood for nothing.
-- uses: server switch_end foreign_keys full_memory record time active_task write_batch
-- keys: audit back switches
-- constants: PLACE.ready

local switch, setting, entry, only = ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local changed

-- The task that a claim has met while its tenant was held is in no queue: it comes first now.
local function let_go(tenant)
  local active = tenant and active_of(tenant)
  local r = active and read(active)
  if r and r.place == PLACE.ready and not r.entry then
    follow('ZADD', K.back(r.queue), '-' .. r.order, r.id)
  end
end

call('HLEN', K.switches)  -- of another type, they raise before anything is written
call('LINDEX', K.audit, 0)
local stored = call('HGET', K.switches, switch)
local ends = stored and end_of(stored) or nil
if only ~= '' and (ends ~= tonumber(only) or ends > wall) then return 0 end
get_through()  -- to shut a queue is what helps a server that is full
local stood = stored and not (ends and ends <= wall)
if setting == '' then
  call('HDEL', K.switches, switch)
  changed = stood and 1 or 0
  let_go(string.match(switch, '^hold:tenant (.+)$'))
else
  if not stood then call('HSET', K.switches, switch, setting) end
  changed = stood and 0 or 1
end
if entry ~= '' then call('RPUSH', K.audit, entry) end
if stored and setting == '' then rings.ready = true end
finish()
return changed
