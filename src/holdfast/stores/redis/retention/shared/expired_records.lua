-- Records that have ended and whose time is over, in pages.
-- uses: numbers server time write_batch

-- Members of `list` from `score` on, of which `passed` are to be passed over. `outdated` tells of
-- each whether it is; such a one is forgotten by `forget`. Nil instead: it does not belong there.
-- Answers how many were `seen` and how many are `outdated`, and where to go on (`score`, `passed`).
local function sweep_ended(list, all, score, passed, number, dry_run, outdated, forget)
  local gone = 0
  local upto = all and '+inf' or decimal(wall)
  local found = call('ZRANGEBYSCORE', list, score, upto, 'WITHSCORES', 'LIMIT', passed, number)
  for i = 1, #found, 2 do
    if found[i + 1] ~= score then score, passed = found[i + 1], 0 end
    local is = outdated(found[i])
    if is then gone = gone + 1 end
    if dry_run or is == false then
      passed = passed + 1
    elseif is then
      forget(found[i])
    else
      call('ZREM', list, found[i])
    end
  end
  finish()
  return {'seen', #found / 2, 'outdated', gone, 'score', score, 'passed', passed}
end
