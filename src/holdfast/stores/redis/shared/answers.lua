-- An answer for each argument.

-- The answers of `look` to all arguments from a number on.
local function answer_each(from, look)
  local answers = {}
  for i = from, #ARGV do answers[i - from + 1] = look(ARGV[i]) end
  return answers
end
