-- peek: ARGV 2… ids. Of each: nothing, its fields and its result, or what is wrong.

local function buried(id)
  local fields, kept, result = try('HGETALL', K.tombstone(id)), {}, false
  if fields.err then return {fields.err, false} end
  for i = 1, #fields, 2 do
    if fields[i] == 'result' then result = fields[i + 1] else add(kept, fields[i], fields[i + 1]) end
  end
  return #kept > 0 and {kept, result}
end

local function look(id)
  local fields = try('HGETALL', K.task(id))
  if fields.err then return {fields.err, false} end
  if #fields == 0 then return buried(id) end
  local result = try('GET', K.result(id))
  return {fields, type(result) == 'string' and result}
end

local answers = {}
for i = 2, #ARGV do answers[i - 1] = look(ARGV[i]) end
return answers
