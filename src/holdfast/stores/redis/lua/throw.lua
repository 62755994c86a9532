-- throw: ARGV 2 the switch and the name, 3 what is kept of it (empty: it is set back), 4 the entry to
-- write down (empty: another partition does). Answers 1 if it stood otherwise.

local switch, thrown, entry = ARGV[2], ARGV[3], ARGV[4]
local changed

-- The task that a claim has met while its tenant was held is in no queue: it comes first now.
local function let_go(tenant)
  local active = tenant and active_of(tenant)
  local r = active and read(active)
  if r and r.place == 'ready' and not r.entry then
    follow('ZADD', K.back(r.queue), whole(-call('HINCRBY', K.meta, 'lost', 1)), r.id)
  end
end

call('HLEN', K.switches)  -- of another type, they raise before anything is written
call('LINDEX', K.audit, 0)
get_through()  -- to shut a queue is what helps a server that is full
if thrown == '' then
  changed = call('HDEL', K.switches, switch)
else
  changed = call('HSETNX', K.switches, switch, thrown)
end
if thrown == '' then let_go(string.match(switch, '^hold:tenant (.+)$')) end
if entry ~= '' then call('RPUSH', K.audit, entry) end
if changed == 1 and thrown == '' then rings.ready = true end
finish()
return changed
