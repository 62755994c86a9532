-- trigger_lease: Leases one trigger.
-- ARGV 2 the id, 3 the owner, 4 lease seconds, 5 the statuses of LEASE. Answers nothing, what is
-- wrong with the record, or its id and fields.
-- uses: full_memory due_triggers write_batch trigger_leases

local id, owner, waits = ARGV[2], ARGV[3], cmsgpack.unpack(ARGV[5])
local r, wrong = trigger_at_hand(id, waits)
if wrong then return {'answer', wrong} end
if not r or not r.waits then return {'answer', false} end
if r.owner and r.owner ~= owner and not has_lapsed(r) then return {'answer', false} end
get_through()
local leased = lease_trigger(r, waits, owner, tonumber(ARGV[4]))
finish()
return answered(leased)
