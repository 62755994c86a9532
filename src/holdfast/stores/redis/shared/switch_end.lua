-- The end of a switch that was set for a time.

-- Returns when a switch ends; nil: it stays until somebody sets it back.
local function end_of(setting)
  local read, found = pcall(cjson.decode, setting)
  return read and type(found) == 'table' and tonumber(found['until']) or nil
end
