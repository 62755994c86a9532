-- Moves that the store makes itself, with their events.
-- uses: numbers time event_log record_changes

-- The same with its event. Nil: the event cannot be written, so nothing was.
local function move(r, to, event, facts)
  local version = whole(tonumber(r.version) + 1)
  local body = table.concat({event, decimal(wall), unpack(facts)}, '\n')
  if not log_event(r, version, '', body) then return nil end
  return step(r, to)
end
