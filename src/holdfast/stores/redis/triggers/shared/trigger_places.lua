-- The lists that a trigger is in.
-- uses: numbers server time write_batch
-- keys: trigger trigger_lease triggers triggers_declared triggers_due triggers_ended
--   triggers_leased

-- Puts a trigger into the lists that its record names. `due`: its time, if nobody has it; `leased`:
-- until when somebody has; `ended`: the end of its retention. At most one of them is there.
local function place_trigger(t)
  local id = t.id
  put_in(K.triggers, id)
  if t.due then put_in(K.triggers_due, id, t.due) else take_from(K.triggers_due, id) end
  if t.ended then put_in(K.triggers_ended, id, t.ended) else take_from(K.triggers_ended, id) end
  local left = t.leased and math.floor((tonumber(t.leased) - now) * 1000) or 0
  if t.leased then put_in(K.triggers_leased, id, t.leased) else take_from(K.triggers_leased, id) end
  if left >= 1 then
    call('SET', K.trigger_lease(id), t.owner, 'PX', whole(left))
  else
    call('DEL', K.trigger_lease(id))
  end
end

local function forget_trigger(id)
  call('DEL', K.trigger(id), K.trigger_lease(id))
  local lists = {K.triggers, K.triggers_declared, K.triggers_due, K.triggers_leased, K.triggers_ended}
  for _, list in ipairs(lists) do take_from(list, id) end
end

-- Takes a trigger out of the lists of what is due. Its record stays, for the doctor.
local function set_trigger_aside(id)
  take_from(K.triggers_due, id)
  take_from(K.triggers_leased, id)
end
