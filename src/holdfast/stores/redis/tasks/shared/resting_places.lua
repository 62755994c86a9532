-- Places in which a task is not settled and not runnable.

local function rests(place) return place == 'later' or place == 'parked' end
