-- Lists that grow.

local function add(list, ...)
  local more, n = {...}, #list
  for i = 1, #more do list[n + i] = more[i] end
end
