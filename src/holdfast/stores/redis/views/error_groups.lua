-- error_groups: Reads the groups of suspended tasks.
-- ARGV 2… fingerprints. Answers for each nothing, or how many tasks it has suspended (`count`),
-- and the `id` and the `fields` of the newest that can be read.
-- uses: answers server foreign_keys record
-- keys: by_cause

local LOOK = 10

local function error_group(fingerprint)
  local key = K.by_cause(fingerprint)
  for _, id in ipairs(follow('ZREVRANGEBYLEX', key, '+', '-', 'LIMIT', 0, LOOK) or {}) do
    local r, fields = read(id)
    if r then return {'count', call('ZCARD', key), 'id', id, 'fields', fields} end
  end
  return false
end

return answer_each(2, error_group)
