-- peek: ARGV 2… ids. Of each: nothing, what is wrong, or its status, result, failure and reason.
-- uses: server
-- keys: result task tombstone

local function told(key, id)
  local found = try('HMGET', key, 'status', 'result', 'failure', 'reason')
  if found.err then return found.err end
  if not found[1] then return call('EXISTS', key) == 1 and 'its status is gone' end
  if not found[2] then
    local result = try('GET', K.result(id))
    found[2] = type(result) == 'string' and result
  end
  return found
end

local answers = {}
for i = 2, #ARGV do
  local id = ARGV[i]
  answers[i - 1] = told(K.task(id), id) or told(K.tombstone(id), id)
end
return answers
