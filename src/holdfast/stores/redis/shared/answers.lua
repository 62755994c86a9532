-- An answer for each argument.

-- Returns what `answer` returns to each argument from a number on.
local function answer_each(from, answer)
  local answers = {}
  for i = from, #ARGV do answers[i - from + 1] = answer(ARGV[i]) end
  return answers
end
