-- examine_error_groups: Compares the counts of suspended tasks with their indexes.
-- ARGV 2 "1": repair, 3… fingerprints. Answers each `group` that is counted wrong, with the number
-- `counted` and the number of `tasks` there are.
-- uses: server error_index
-- keys: by_cause errors

local fix, wrong = ARGV[2] == '1', {}
for i = 3, #ARGV do
  local fingerprint = ARGV[i]
  local counted = tonumber(call('ZSCORE', K.errors, fingerprint) or '0')
  local tasks = call('ZCARD', K.by_cause(fingerprint))
  if counted ~= tasks then
    wrong[#wrong + 1] = {'group', fingerprint, 'counted', counted, 'tasks', tasks}
    error_groups[fingerprint] = true
  end
end
if fix then count_error_groups() end
return wrong
