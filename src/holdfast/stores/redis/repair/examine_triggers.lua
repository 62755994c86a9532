-- examine_triggers: Compares the records of triggers with the lists that they are in.
-- ARGV 2 "1": repair, 3 the statuses of LEASE, 4… ids. Answers for each the `type` of its key, its
-- `fields`, and `complaints`.
-- uses: answers milliseconds numbers server
-- keys: trigger triggers triggers_declared triggers_due triggers_ended triggers_leased

local fix, waits = ARGV[2] == '1', cmsgpack.unpack(ARGV[3])

-- Returns the milliseconds of a time that iso() wrote.
local function ms_of(text)
  local y, m, d, h, min, s = string.match(text or '', '^(%d+)-(%d+)-(%d+)T(%d+):(%d+):([%d.]+)Z$')
  if not y then return nil end
  y, m = tonumber(y), tonumber(m)
  if m <= 2 then y = y - 1 end
  local of_era = y % 400
  local of_year = math.floor((153 * (m > 2 and m - 3 or m + 9) + 2) / 5) + tonumber(d) - 1
  local days = math.floor(y / 400) * 146097 + of_era * 365 + math.floor(of_era / 4)
    - math.floor(of_era / 100) + of_year - 719468
  return ms(days * 86400 + tonumber(h) * 3600 + tonumber(min) * 60 + tonumber(s))
end

local function compared(id, list, name, wanted, complaints)
  local found = tonumber(call('ZSCORE', list, id) or nil)
  local score = tonumber(wanted or nil)
  if found == score or found and score and math.abs(found - score) < 0.002 then return end
  local message = not score and 'should not be in ' or found and 'has another time in ' or 'is not in '
  complaints[#complaints + 1] = message .. name
  if not fix then return end
  if score then call('ZADD', list, wanted, id) else call('ZREM', list, id) end
end

local function look(id)
  local kind = call('TYPE', K.trigger(id)).ok
  if kind ~= 'hash' then return {'type', kind} end
  local fields, r, complaints = call('HGETALL', K.trigger(id)), {}, {}
  for i = 1, #fields, 2 do r[fields[i]] = fields[i + 1] end
  local due = waits[r.status] and ms_of(r.triggerAt)
  local leased = due and r.owner and r.leaseUntil
  local ended = tonumber(r.endedAt or nil)
  ended = ended and decimal(ended + tonumber(r.keepSeconds or '0'))
  compared(id, K.triggers, 'the list of triggers', '0', complaints)
  local declared = r.declared == 'true' and '0'
  compared(id, K.triggers_declared, 'the list of declared triggers', declared, complaints)
  compared(id, K.triggers_due, 'the list of due triggers', not leased and due, complaints)
  compared(id, K.triggers_leased, 'the list of leased triggers', leased, complaints)
  compared(id, K.triggers_ended, 'the list of ended triggers', ended, complaints)
  return {'type', kind, 'fields', fields, 'complaints', complaints}
end

return answer_each(4, look)
