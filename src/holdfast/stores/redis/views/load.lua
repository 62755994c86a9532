-- load: Reads records of tasks.
-- ARGV 2… ids. Answers for each nothing, its `fields` and the end of its lease (`lease_until`), or
-- what is `wrong`.
-- uses: answers server
-- keys: leases task

local function look(id)
  local fields = try('HGETALL', K.task(id))
  if fields.err then return {'wrong', fields.err} end
  return #fields > 0 and {'fields', fields, 'lease_until', call('ZSCORE', K.leases, id)}
end

return answer_each(2, look)
