-- first_in_queue: Finds the task that the next claim of each queue would hand out.
-- ARGV 2… queues. Answers for each nothing, or the `id` and the `fields` of the task that the next
-- claim would hand out: lost tasks first, then those that nobody was handed yet.
-- uses: answers server record delivery
-- keys: back stream
-- constants: PLACE.ready

local LOOK = 10

local function first_in_queue(queue)
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

return answer_each(2, first_in_queue)
