-- apply: ARGV 2 the seconds that a tombstone stays, 3 the checkpoint's time to live, 4… one
-- transition each. Everything is compared before the first write.

local tombstone_seconds, ckpt_seconds = tonumber(ARGV[2]), ARGV[3]

get_through()

local function answer(word, id) return {word, shown(id)} end

local function refuse(t, r, wrong)
  if wrong then return {'unreadable', wrong} end
  if not r then
    if call('HGET', K.tombstone(t.id), 'request') == t.request then return {'gone'} end
    return {'stale', false}
  end
  if r.version ~= t.expects then
    local known = request_of(r, t.version) == t.request
    return answer(known and 'repeated' or 'stale', t.id)
  end
  if t.lease then
    if r.leaseId ~= t.lease or r.place ~= 'leased' then return answer('stale', t.id) end
  elseif r.place == 'leased' and t.next ~= 'stay' then
    return answer('stale', t.id)
  end
  if t.not_if_moved_on and moved_on(r) then return answer('moved-on', t.id) end
  if t.stage and type(try('HLEN', K.stages(t.id))) ~= 'number' then
    return {'unreadable', K.stages(t.id) .. ' is of another type'}
  end
  if t.checkpoint and not t.drop_checkpoint then
    local version = try('HGET', K.ckpt_meta(t.id), 'version')
    if type(version) == 'table' then return {'unreadable', version.err} end
    version = tonumber(version or '0')
    if version >= tonumber(t.checkpoint_version) then return answer('stale', t.id) end
  end
end

local function write_bodies(t)
  local id = t.id
  if t.drop_checkpoint then call('DEL', K.ckpt(id), K.ckpt_meta(id), K.kept(id)) end
  if t.drop_stages then call('DEL', K.stages(id), K.data(id)) end
  if t.checkpoint then
    call('SET', K.ckpt(id), t.checkpoint)
    call('HSET', K.ckpt_meta(id), unpack(t.checkpoint_meta))
  end
  if t.stage then call('HSET', K.stages(id), t.stage[1], t.stage[2]) end
  if t.result then call('SET', K.result(id), t.result) end
  if t.data then call('SET', K.data(id), t.data) end
  if t.audit then call('RPUSH', K.audit, t.audit) end
end

local function index(t, r)
  index_status(t.id, r.status, t.status)
  if r.error ~= t.error then
    if r.error then follow('ZREM', K.by_error(r.error), t.id) end
    if t.error then follow('ZADD', K.by_error(t.error), 0, t.id) end
  end
  if t.suspended_at then
    call('ZADD', K.suspended, t.suspended_at, t.id)
  elseif r.suspendedAt then
    call('ZREM', K.suspended, t.id)
  end
  if r.status ~= t.status then
    count_move(r.status, t.status, tonumber(t.at) - (tonumber(r.statusSince) or tonumber(t.at)))
  end
end

local function settle(t, r)
  local ends = whole(math.ceil(math.max(tonumber(t.keep), tombstone_seconds)))
  call('ZADD', K.settled, decimal(tonumber(t.settled_at) + tonumber(t.keep)), grave(r))
  call('EXPIRE', K.task(t.id), ends)
  if r.key then call('EXPIRE', K.key_of(r.tenantId or '', r.key), ends) end
  if call('EXPIRE', K.ckpt(t.id), ckpt_seconds) == 1 then
    call('EXPIRE', K.ckpt_meta(t.id), ckpt_seconds)
    call('SET', K.kept(t.id), call('GET', K.ckpt(t.id)))
    call('ZADD', K.saved, t.settled_at, t.id)
  end
end

-- The record, in its place.
local function put(t, r)
  local fields, before = t.fields, r.place
  local gone = {}
  for name in string.gmatch(r.optional or '', '%S+') do gone[#gone + 1] = name end
  if r.optional then gone[#gone + 1] = 'optional' end
  if t.next ~= 'stay' then
    take_out(r)
    if before == 'leased' then add(gone, 'leaseId', 'leaseOwner', 'progress') end
    if before == 'later' then
      add(gone, 'due')
      r.due = nil
    end
  end
  if #gone > 0 then call('HDEL', K.task(t.id), unpack(gone)) end
  r.status, r.error = t.status, t.error
  if t.next == 'ready' then
    enter(r)
  elseif t.next ~= 'stay' then
    r.place = t.next == 'gone' and 'settled' or t.next
    count(r.queue, r.place, 1)
  end
  if t.next ~= 'stay' then add(fields, 'place', r.place, 'entry', r.entry or '') end
  if t.next == 'later' then
    r.due = decimal(now + tonumber(t.delay))
    add(fields, 'due', r.due)
    call('ZADD', K.retry, r.due, t.id)
    rings.ready = true
  end
  set(r, fields)
  if t.next == 'settled' then settle(t, r) end
  if t.next ~= 'stay' and t.next ~= 'ready' then rest(r) end
  if t.next == 'gone' then bury(r, t.request, tonumber(t.settled_at), tombstone_seconds) end
end

local function apply(t)
  local r, wrong = read(t.id)
  if not r then return refuse(t, nil, wrong) end
  local refused = refuse(t, r)
  if refused then return refused end
  if not log_event(t.id, t.version, t.request, t.events) then
    return {'unreadable', 'its events are of another type'}
  end
  write_bodies(t)
  index(t, r)
  put(t, r)
  if t.next == 'gone' then return {'gone'} end
  if t.next ~= 'stay' then return {'applied', r.place, r.order, r.due or '', r.fence or '0'} end
  return {'stayed', shown(t.id)}
end

local answers = {}
for i = 4, #ARGV do
  local done, answer = pcall(apply, cmsgpack.unpack(ARGV[i]))
  if not done then
    answer = {'unreadable', type(answer) == 'table' and answer.err or tostring(answer)}
  end
  answers[#answers + 1] = answer
end
finish()
return {answers, writes, written, told()}
