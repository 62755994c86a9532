-- Writes that follow from many tasks are gathered and sent once, by finish(): counts, members of sorted
-- sets (the last word about a member is what counts), and entries that leave their streams.
-- uses: numbers server foreign_keys
-- keys: bell counts meta moves queues
-- constants: GROUP RINGS

local counts, moves, members, entries = {}, {}, {}, {}
local rings = {}
local written, writes = 0, 0  -- versions of records: by this script, and ever

local function within(table, name)
  local of = table[name]
  if not of then
    of = {}
    table[name] = of
  end
  return of
end

local function count(queue, place, by)
  local of = within(counts, queue)
  of[place] = (of[place] or 0) + by
end

local function put_in(key, id, score) within(members, key)[id] = score or 0 end
local function take_from(key, id) within(members, key)[id] = false end

local function write_members(key, of)
  local gone, come = {}, {}
  for id, score in pairs(of) do
    if score then
      come[#come + 1] = score
      come[#come + 1] = id
    else
      gone[#gone + 1] = id
    end
  end
  if #gone > 0 then follow('ZREM', key, unpack(gone)) end
  if #come > 0 then follow('ZADD', key, unpack(come)) end
end

local function finish()
  for key, of in pairs(members) do write_members(key, of) end
  for stream, of in pairs(entries) do
    local acked, dropped = try('XACK', stream, GROUP, unpack(of)), try('XDEL', stream, unpack(of))
    if type(acked) == 'table' then note_denied(acked) end
    if type(dropped) == 'table' then note_denied(dropped) end
  end
  if written > 0 then writes = call('HINCRBY', K.meta, 'writes', written) end
  for queue, places in pairs(counts) do
    for place, by in pairs(places) do
      local first = by ~= 0 and call('HINCRBY', K.counts, queue .. ' ' .. place, by) == by
      if first then call('SADD', K.queues, queue) end
    end
  end
  for field, so_far in pairs(moves) do
    call('HINCRBY', K.moves, field, so_far.times)
    call('HINCRBY', K.moves, field .. ' us', whole(so_far.seconds * 1000000))
  end
  local bell = {}
  for topic in pairs(rings) do
    bell[#bell + 1] = topic
    bell[#bell + 1] = '1'
  end
  if #bell > 0 then call('XADD', K.bell, 'MAXLEN', '~', RINGS, '*', unpack(bell)) end
end

-- Returns an answer with what `Partition.write` compares; a script that wrote nothing leaves it out.
local function answered(answer)
  return {'answer', answer, 'writes', writes, 'written', written, 'notices', strange_keys()}
end
