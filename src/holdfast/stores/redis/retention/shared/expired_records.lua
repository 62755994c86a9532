-- Records that have ended and whose time is over, in pages.
-- uses: numbers script_error server time write_batch

-- Members of `list` from `score` on, of which `passed` are to be passed over. `outdated` tells of
-- each whether it is; such a one is forgotten by `forget`, which is given what else `outdated`
-- returned. Nil instead: it does not belong there. Answers how many were `seen` and how many are
-- `outdated`, and where to go on (`score`, `passed`).
local function sweep_ended(list, all, score, passed, number, dry_run, outdated, forget)
  local gone = 0
  local upto = all and '+inf' or decimal(wall)
  local found = call('ZRANGEBYSCORE', list, score, upto, 'WITHSCORES', 'LIMIT', passed, number)
  local done, wrong = pcall(function()
    for i = 1, #found, 2 do
      if found[i + 1] ~= score then score, passed = found[i + 1], 0 end
      local is, record = outdated(found[i])
      if is then gone = gone + 1 end
      if dry_run or is == false then
        passed = passed + 1
      elseif is then
        forget(found[i], record)
      else
        call('ZREM', list, found[i])
      end
    end
  end)
  finish()
  if not done then return failed(wrong) end
  return {'seen', #found / 2, 'outdated', gone, 'score', score, 'passed', passed}
end
