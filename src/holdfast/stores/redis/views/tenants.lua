-- tenants: Reads how tenants stand.
-- ARGV 2… names. Answers for each its `active` task, the `place` of that, its `fence`, and how
-- many are `waiting`.
-- uses: answers server
-- keys: active fences line task

return answer_each(2, function(tenant)
  local active = call('GET', K.active(tenant))
  local place = active and try('HGET', K.task(active), 'place')
  return {'active', active, 'place', type(place) == 'string' and place,
    'fence', call('HGET', K.fences, tenant), 'waiting', call('ZCARD', K.line(tenant))}
end)
