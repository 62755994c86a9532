-- plan_apply: Writes a change of a plan, with the tasks that follow from it, in one step.
-- ARGV 2 the change, 3 lease seconds, 4 the names to answer with. Everything is compared before
-- the first write; tasks that follow from it go in with it. Answers applied, repeated or stale
-- with the record; or foreign, with the key that is in the way.
-- uses: numbers server foreign_keys full_memory time plan_record write_batch error_index
--   submissions follow_ups
-- keys: audit plan plan_admitted plan_events plan_members plans_due plans_settled
-- constants: PLAN_NEXT.drive PLAN_NEXT.look PLAN_NEXT.settled

local t, names = cmsgpack.unpack(ARGV[2]), cmsgpack.unpack(ARGV[4])
local id, plan = t.id, K.plan(t.id)

local function in_the_way()
  local looks = {[K.plan_members(id)] = 'HLEN', [K.plan_admitted(id)] = 'ZCARD'}
  for name, command in pairs(looks) do
    if is_strange(try(command, name)) then return name end
  end
  if is_strange(try('LINDEX', K.plan_events(id), 0)) then return K.plan_events(id) end
  return t.follows and in_way_of(t.follows)
end

local function refuse()
  local found = try('HMGET', plan, 'version', 'request', 'leaseId', 'woken')
  if found.err then return {'foreign', plan} end
  if found[1] ~= t.expects then
    local same = found[1] == t.version and (found[2] or '') == t.request
    return {same and 'repeated' or 'stale', shown_plan(id, names)}
  end
  if t.lease and found[3] ~= t.lease then return {'stale', shown_plan(id, names)} end
  local name = in_the_way()
  if name then return {'foreign', name} end
  t.leased, t.woken = found[3], found[4]
end

local function write()
  call('HSET', plan, unpack(t.fields))
  if #t.gone > 0 then call('HDEL', plan, unpack(t.gone)) end
  call('RPUSH', K.plan_events(id), t.element)
  if t.audit then call('RPUSH', K.audit, t.audit) end
  written = written + 1
end

local AT_ONCE = 1000  -- arguments of one command

local function in_pieces(command, key, words)
  for i = 1, #words, AT_ONCE do
    call(command, key, unpack(words, i, math.min(#words, i + AT_ONCE - 1)))
  end
end

-- Moves members. Each move has the number of the task, how the plan sees it (nothing: it waits), its
-- id, and whether it has a slot.
local function move()
  local seen, unseen, slots, no_slots = {}, {}, {}, {}
  for _, m in ipairs(t.moves) do
    local n, k = #seen, #slots
    if m[2] ~= '' then seen[n + 1], seen[n + 2] = m[1], m[2] else unseen[#unseen + 1] = m[1] end
    if m[4] then slots[k + 1], slots[k + 2] = m[1], m[3] else no_slots[#no_slots + 1] = m[3] end
  end
  in_pieces('HSET', K.plan_members(id), seen)
  in_pieces('HDEL', K.plan_members(id), unseen)
  in_pieces('ZADD', K.plan_admitted(id), slots)
  in_pieces('ZREM', K.plan_admitted(id), no_slots)
end

local function drop_lease()
  call('HDEL', plan, 'leaseOwner', 'leaseId', 'leaseUntil', 'dueAt', 'woken')
end

-- Decides who drives the plan next. A person's write leaves it to the driver that has it.
local function place()
  if t.next == PLAN_NEXT.settled then
    drop_lease()
    take_from(K.plans_due, id)
  elseif t.next == PLAN_NEXT.drive then
    if not t.leased then return end
    local till = decimal(asked + tonumber(ARGV[3]))
    call('HSET', plan, 'leaseUntil', till)
    put_in(K.plans_due, id, till)
  elseif t.lease or t.next == PLAN_NEXT.look and not t.leased then
    drop_lease()
    if t.next == PLAN_NEXT.look or t.woken then
      local due = decimal(t.woken and now or now + tonumber(t.delay))
      call('HSET', plan, 'dueAt', due)
      put_in(K.plans_due, id, due)
    else
      take_from(K.plans_due, id)
    end
  end
end

-- Only what has settled ever expires.
local function keep()
  local is_settled, list = t.next == PLAN_NEXT.settled, K.plans_settled
  for _, name in ipairs(plan_key_names(id)) do
    if is_settled then call('EXPIRE', name, t.seconds) else call('PERSIST', name) end
  end
  if is_settled then put_in(list, t.listed, t.till) else take_from(list, t.listed) end
end

get_through()
local refused = refuse()
if refused then return {'answer', refused} end
write()
move()
place()
if t.next == PLAN_NEXT.settled or t.was_settled then keep() end
if not t.quiet then rings.due = true end
if t.follows then accept_all(t.follows) end
end_submits()
finish()
count_error_groups()
return answered({'applied', shown_plan(id, names)})
