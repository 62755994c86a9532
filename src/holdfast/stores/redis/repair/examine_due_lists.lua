-- examine_due_lists: Compares the lists of triggers and plans with their records.
-- ARGV 2 "1": take away, 3 what it is, 4 the kind of its records, 5… its members. Answers those
-- that have no record.
-- uses: server
-- keys: all plans_settled

local list, record, strays = K[ARGV[3]], K[ARGV[4]], {}
local swept = ARGV[3] == 'plans' and K.plans_settled  -- it has a record, or waits to be swept

for i = 5, #ARGV do
  local member = ARGV[i]
  local id = string.match(member, ' (.*)$') or member
  local has = call('EXISTS', record(id)) == 1 or swept and call('ZSCORE', swept, member)
  if not has and call('ZSCORE', list, member) then
    strays[#strays + 1] = member
    if ARGV[2] == '1' then call('ZREM', list, member) end
  end
end
return strays
