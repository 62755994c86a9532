-- The way through a server whose memory is full.
-- uses: server
-- keys: meta

-- With the memory full, a script may write if its first write takes none. What finishes or keeps
-- work must get through, or nothing would ever be freed; submits must not.
local function get_through() call('DEL', K.meta .. ':none') end
