-- Transitions from one status to another, counted by queue and type with the time before them.
-- uses: write_batch

-- `r` is any of the records that have a queue and a type; `times`: how many such records, if many.
local function count_move(before, after, r, seconds, times)
  local so_far = within(moves, before .. ' ' .. after .. ' ' .. r.queue .. ' ' .. (r.type or ''))
  so_far.times = (so_far.times or 0) + (times or 1)
  so_far.seconds = (so_far.seconds or 0) + math.max(0, seconds)
end
