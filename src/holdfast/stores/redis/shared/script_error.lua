-- The error of a script that had more to write before it could fail.

-- Returns the error as the server would have reported it.
local function failed(wrong)
  local text = type(wrong) == 'table' and wrong.err or tostring(wrong)
  if not string.find(text, '^[A-Z]+ ') then text = 'ERR Error running script: ' .. text end
  return redis.error_reply(text)
end
