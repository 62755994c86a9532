-- A trigger's record, and what follows from it.
-- uses: server foreign_keys write_batch trigger_places
-- keys: trigger triggers_declared triggers_due

-- Rings if this time is the first of all: a scheduler sleeps until the first, and no later one
-- concerns it.
local function ring_if_first(due)
  local first = follow('ZRANGE', K.triggers_due, 0, 0, 'WITHSCORES')
  if not first or not first[2] or tonumber(due) < tonumber(first[2]) then rings.due = true end
end

local function write_trigger(t)
  call('HSET', K.trigger(t.id), unpack(t.fields))
  if #t.gone > 0 then call('HDEL', K.trigger(t.id), unpack(t.gone)) end
  written = written + 1
  place_trigger(t)
  local declared = K.triggers_declared
  if t.declared then put_in(declared, t.id) else take_from(declared, t.id) end
  if t.due then ring_if_first(t.due) end
end
