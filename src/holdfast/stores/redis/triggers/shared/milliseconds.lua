-- Times of triggers as the score of a sorted set.

local function ms(seconds) return string.format('%.3f', seconds * 1000) end
