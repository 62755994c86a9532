-- Numbers as the text that is stored.

local function decimal(number) return string.format('%.6f', number) end
local function whole(number) return string.format('%.0f', number) end
