-- An answer for each argument.

-- Returns what `look` answers to each argument from a number on.
local function answer_each(from, look)
  local answers = {}
  for i = from, #ARGV do answers[i - from + 1] = look(ARGV[i]) end
  return answers
end
