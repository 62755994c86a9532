-- insert: Inserts submitted tasks.
-- ARGV 2 the depth limit, 3 when the sender gives up (empty: nobody knows), 4… one submission
-- each. What comes later than that is not accepted: its sender has been told so.
-- uses: numbers time intake

local limit, gives_up = tonumber(ARGV[2]), tonumber(ARGV[3])

if gives_up and now > gives_up then return {'answer', {'late', decimal(now)}} end

return insert_all(#ARGV - 3, function()
  local answers = {}
  for i = 4, #ARGV do answers[#answers + 1] = insert(cmsgpack.unpack(ARGV[i]), limit) end
  return answers
end)
