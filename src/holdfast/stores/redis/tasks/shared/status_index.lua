-- The index of tasks by status.
-- uses: write_batch
-- keys: by_status

local function index_status(id, before, after)
  if before ~= after then
    if before then take_from(K.by_status(before), id) end
    if after then put_in(K.by_status(after), id) end
  end
end
