-- Moves that the store makes itself over many tasks, with their events.
-- uses: numbers record time event_log record_changes

-- Makes a step with its event. Nil: the event cannot be written, so nothing was.
local function move(r, to, event, facts)
  local version = whole(tonumber(r.version) + 1)
  local body = table.concat({event, decimal(wall), unpack(facts)}, '\n')
  if not log_event(r, version, '', body) then return nil end
  return step(r, to)
end

-- Returns the records of these ids in the order of their submits, as every store moves those of one
-- moment; with scores, in the order of these first. Each has an id, a record, and what is wrong.
local function in_order(ids, scored)
  local found = {}
  for i = 1, #ids, scored and 2 or 1 do
    local r, wrong = read(ids[i])
    local order = r and tonumber(r.order) or 0
    local score = scored and tonumber(ids[i + 1]) or 0
    found[#found + 1] = {id = ids[i], record = r, wrong = not r and wrong, score = score,
      order = order}
  end
  table.sort(found, function(a, b)
    return a.score < b.score or a.score == b.score and a.order < b.order
  end)
  return found
end
