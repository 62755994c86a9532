-- The error of a script that had more to write before it could fail.

-- What went wrong, to be returned as the server would have told it.
local function failed(wrong)
  local text = type(wrong) == 'table' and wrong.err or tostring(wrong)
  if not string.find(text, '^[A-Z]+ ') then text = 'ERR Error running script: ' .. text end
  return redis.error_reply(text)
end
