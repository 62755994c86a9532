-- examine_error_groups: Compares the counts of suspended tasks with their indexes.
-- ARGV 2 "1": mend, 3… fingerprints. Answers each `cause` that is counted wrong, with the number
-- `counted` and the number of `tasks` there are.
-- uses: server error_index
-- keys: by_cause errors

local fix, wrong = ARGV[2] == '1', {}
for i = 3, #ARGV do
  local cause = ARGV[i]
  local says = tonumber(call('ZSCORE', K.errors, cause) or '0')
  local tasks = call('ZCARD', K.by_cause(cause))
  if says ~= tasks then
    wrong[#wrong + 1] = {'cause', cause, 'counted', says, 'tasks', tasks}
    causes[cause] = true
  end
end
if fix then count_causes() end
return wrong
