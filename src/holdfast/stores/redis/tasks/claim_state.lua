-- A claim: its terms, what it has handed out so far, and its answer. The arguments: see claim.lua.
-- uses: lists numbers script_error server foreign_keys time write_batch
-- keys: claims fences meta switches

local worker, request, got, limit = ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
local lease_until, secret, lock_seconds = decimal(asked + tonumber(ARGV[6])), ARGV[7], ARGV[8]
local start, stamp = cmsgpack.unpack(ARGV[9]), decimal(wall)
local claimed, handed_out, unreadable = {}, {}, {}
local fences = {}
local fence = tonumber(call('HGET', K.meta, 'fence') or '0')
local last_claim = call('HGET', K.claims, worker) or ''
local is_repeat = string.sub(last_claim, 1, #request + 1) == request .. '\n'
local any_switch_set = call('HLEN', K.switches) > 0

-- Returns the queues whose claiming is not switched off.
local function open_queues()
  if not any_switch_set then return {unpack(ARGV, 11)} end
  local names, open = {}, {}
  for i = 11, #ARGV do names[i - 10] = 'claiming ' .. ARGV[i] end
  if #names == 0 then return open end
  for i, off in ipairs(call('HMGET', K.switches, unpack(names))) do
    if not off then open[#open + 1] = ARGV[i + 10] end
  end
  return open
end

-- What was handed out must have its lease, and be answered, whatever went wrong behind it.
local function answer_claim(done, wrong)
  if not done then note_denied(wrong) end
  finish()
  if not done and #claimed == 0 then return failed(wrong) end
  local given = {}
  for tenant, number in pairs(fences) do add(given, tenant, whole(number)) end
  if #given > 0 then follow('HSET', K.fences, unpack(given)) end
  if #claimed > 0 then
    call('HSET', K.meta, 'fence', whole(fence))
    call('HSET', K.claims, worker, request .. '\n' .. table.concat(handed_out, '\n') .. '\n')
  end
  return answered({'handed_out', claimed, 'unreadable', unreadable, 'upto', #handed_out / 3,
    'lease_until', lease_until, 'wall', stamp})
end
