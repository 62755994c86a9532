-- tenants: ARGV 2… names. Of each: its active task, that one's place, its fence, how many wait.
-- uses: server
-- keys: active fences line task

local answers = {}
for i = 2, #ARGV do
  local tenant = ARGV[i]
  local active = call('GET', K.active(tenant))
  local place = active and try('HGET', K.task(active), 'place')
  answers[i - 1] = {active, type(place) == 'string' and place, call('HGET', K.fences, tenant),
    call('ZCARD', K.line(tenant))}
end
return answers
