-- trigger_due: Finds the triggers that are due; nothing is handed out.
-- ARGV 2 up to which time (ms; empty: now), 3 limit, 4 the statuses of LEASE, 5 "1": with their
-- records. Answers what nobody works on (`due`: of each its id and its time, or its fields), and
-- the seconds until there is something to do (`wait`). With records those whose time has not come
-- are left out; without, a lapsed lease is enough.
-- uses: iso_time milliseconds server time due_triggers
-- keys: trigger

local LAST_MS = 253402300800000  -- there are no times behind it
local upto, limit = ARGV[2] ~= '' and ARGV[2] or ms(wall), tonumber(ARGV[3])
local waits, with_records, found = cmsgpack.unpack(ARGV[4]), ARGV[5] == '1', {}
local last = tonumber(upto) < LAST_MS and iso(tonumber(upto) / 1000)

for _, r in ipairs((free_triggers(upto, limit, waits))) do
  if #found < limit and (not with_records or not last or r.at <= last) then
    found[#found + 1] = {r.id, with_records and call('HGETALL', K.trigger(r.id)) or r.at}
  end
end
return {'due', found, 'wait', next_trigger()}
