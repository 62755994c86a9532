-- The index of tasks by status.
-- uses: write_batch
-- keys: by_status

local status_keys = {}

local function with_status(status)
  local key = status_keys[status]
  if not key then
    key = K.by_status(status)
    status_keys[status] = key
  end
  return key
end

local function index_status(id, before, after)
  if before ~= after then
    if before then take_from(with_status(before), id) end
    if after then put_in(with_status(after), id) end
  end
end
