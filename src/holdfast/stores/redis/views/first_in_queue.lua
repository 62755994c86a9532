-- first_in_queue: Finds the task that the next claim of each queue would hand out.
-- ARGV 2… queues. Answers for each nothing, or the `id` and the `fields` of the task that the next
-- claim would hand out: lost tasks first, then those that nobody was handed yet.
-- uses: server record
-- keys: back stream
-- constants: GROUP PLACE.ready

local LOOK = 10

local function last_delivered(stream)
  local groups = try('XINFO', 'GROUPS', stream)
  if groups.err then return nil end
  for _, group in ipairs(groups) do
    local said = {}
    for i = 1, #group, 2 do said[group[i]] = group[i + 1] end
    if said.name == GROUP then return said['last-delivered-id'] end
  end
end

local function head(queue)
  for _, id in ipairs(call('ZRANGE', K.back(queue), 0, LOOK - 1)) do
    local r, fields = read(id)
    if r and r.place == PLACE.ready then return {'id', id, 'fields', fields} end
  end
  local stream = K.stream(queue)
  local last = last_delivered(stream)
  local from = last and '(' .. last or '-'
  for _, found in ipairs(call('XRANGE', stream, from, '+', 'COUNT', LOOK)) do
    local entry, id = found[1], found[2][2]
    local r, fields = read(id)
    if r and r.place == PLACE.ready and r.entry == entry then return {'id', id, 'fields', fields} end
  end
  return false
end

local answers = {}
for i = 2, #ARGV do answers[i - 1] = head(ARGV[i]) end
return answers
