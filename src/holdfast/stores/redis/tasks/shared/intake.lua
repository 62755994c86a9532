-- The intake of a queue: it may be full, or switched off.
-- uses: script_error server write_batch error_index submissions
-- keys: counts stream switches
-- constants: WAITING

local function depth(queue)
  if not depths[queue] then
    local fields, waiting = {}, 0
    for place in pairs(WAITING) do fields[#fields + 1] = queue .. ' ' .. place end
    for _, n in ipairs(call('HMGET', K.counts, unpack(fields))) do
      waiting = waiting + tonumber(n or '0')
    end
    depths[queue] = waiting
  end
  return depths[queue]
end

local shut = {}

local function is_shut(queue)
  if shut[queue] == nil then
    shut[queue] = call('HGET', K.switches, 'intake ' .. queue) ~= false
  end
  return shut[queue]
end

-- Returns the answer to a submission for which nothing is to be written, or nil.
local function answer_without(s, limit)
  local met = met_before(s)
  if met then return met end
  if not is_usable(K.stream(s.queue), 'XLEN') then return {'foreign', K.stream(s.queue)} end
  if is_shut(s.queue) then return {'shut', s.queue} end
  if depth(s.queue) >= limit then return {'full', s.queue} end
end

local function insert(s, limit)
  local known = answer_without(s, limit)
  if known then return known end
  accept(s)
  return {'inserted', s.id}
end

-- Answers with what `write` returns, which inserts at most `number` tasks. If it fails in the
-- middle, a repeat finds what was inserted before.
local function insert_all(number, write)
  submits = number
  local done, answers = pcall(write)
  end_submits()
  finish()
  count_error_groups()
  if not done then return failed(answers) end
  return answered(answers)
end
