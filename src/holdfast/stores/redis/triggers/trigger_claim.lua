-- trigger_claim: Hands out due triggers, each under a lease.
-- ARGV 2 owner, 3 up to which time (ms; empty: now), 4 limit, 5 lease seconds, 6 the statuses of
-- LEASE. Answers those `handed_out` (id and fields), those that cannot be read (`wrong`: id and
-- what is wrong; nothing: it is gone), and the seconds until there is more to do (`wait`).
-- uses: milliseconds full_memory time due_triggers write_batch trigger_places
--   trigger_leases

local owner, limit, seconds = ARGV[2], tonumber(ARGV[4]), tonumber(ARGV[5])
local upto, waits = ARGV[3] ~= '' and ARGV[3] or ms(wall), cmsgpack.unpack(ARGV[6])
local leased = {}

get_through()
local free, wrong = free_triggers(upto, limit, waits)
for _, one in ipairs(wrong) do set_trigger_aside(one[1]) end
for i = 1, math.min(limit, #free) do
  leased[i] = lease_trigger(free[i], waits, owner, seconds)
end
finish()
return answered({'handed_out', leased, 'wrong', wrong, 'wait', next_trigger()})
