-- insert: Inserts submitted tasks.
-- ARGV 2 the depth limit, 3 when the sender gives up (empty: nobody knows), 4… one submission
-- each. What comes later than that is not accepted: its sender has been told so.
-- uses: numbers script_error foreign_keys time write_batch error_index submissions intake

local limit, gives_up = tonumber(ARGV[2]), tonumber(ARGV[3])
local answers = {}

if gives_up and now > gives_up then return {{'late', decimal(now)}, 0, 0} end

submits = #ARGV - 3
local done, wrong = pcall(function()
  for i = 4, #ARGV do answers[#answers + 1] = insert(cmsgpack.unpack(ARGV[i]), limit) end
end)
end_submits()
finish()
count_causes()
if not done then return failed(wrong) end  -- what was inserted before is found by a repeat
return {answers, writes, written, strange_keys()}
