-- peek: Reads the status and the result of tasks, also of those that are pruned.
-- ARGV 2… ids. Answers for each nothing, what is `wrong`, or its `status`, `result`, `failure` and
-- `reason`.
-- uses: answers server
-- keys: result task tombstone

local function peek(key, id)
  local found = try('HMGET', key, 'status', 'result', 'failure', 'reason')
  if found.err then return {'wrong', found.err} end
  if not found[1] then return call('EXISTS', key) == 1 and {'wrong', 'its status is gone'} end
  if not found[2] then
    local result = try('GET', K.result(id))
    found[2] = type(result) == 'string' and result
  end
  return {'status', found[1], 'result', found[2], 'failure', found[3], 'reason', found[4]}
end

return answer_each(2, function(id) return peek(K.task(id), id) or peek(K.tombstone(id), id) end)
