-- detail: ARGV 2 the id. Nothing, what is wrong with the record, or: its fields, the end of its
-- lease, payload, result, data, checkpoint, stages, events, and what is wrong with those.
-- uses: server
-- keys: ckpt data events leases payload result stages task

local id, wrong = ARGV[2], {}

local function part(...)
  local found = try(...)
  if type(found) ~= 'table' or not found.err then return found end
  wrong[#wrong + 1] = select(2, ...) .. ': ' .. found.err
  return false
end

local fields = try('HGETALL', K.task(id))
if fields.err then return {fields.err, false} end
if #fields == 0 then return false end
return {fields, call('ZSCORE', K.leases, id), part('GET', K.payload(id)),
  part('GET', K.result(id)), part('GET', K.data(id)), part('GET', K.ckpt(id)),
  part('HGETALL', K.stages(id)), part('LRANGE', K.events(id), 0, -1), wrong}
