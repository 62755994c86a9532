-- detail: Reads a task with all that belongs to it.
-- ARGV 2 the id. Answers nothing, what is `wrong` with the record, or its `fields`, the end of its
-- lease (`lease_until`), its bodies by name, and what is wrong with these (`damaged`).
-- uses: server
-- keys: ckpt data events leases payload result stages task

local id, damaged = ARGV[2], {}

local function part(...)
  local found = try(...)
  if type(found) ~= 'table' or not found.err then return found end
  damaged[#damaged + 1] = select(2, ...) .. ': ' .. found.err
  return false
end

local fields = try('HGETALL', K.task(id))
if fields.err then return {'wrong', fields.err} end
if #fields == 0 then return false end
return {'fields', fields, 'lease_until', call('ZSCORE', K.leases, id),
  'payload', part('GET', K.payload(id)), 'result', part('GET', K.result(id)),
  'data', part('GET', K.data(id)), 'checkpoint', part('GET', K.ckpt(id)),
  'stages', part('HGETALL', K.stages(id)), 'events', part('LRANGE', K.events(id), 0, -1),
  'damaged', damaged}
