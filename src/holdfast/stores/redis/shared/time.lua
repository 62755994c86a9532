-- The time: the server's, or the one given by a test as "now wall". Leases and due times are judged
-- by `now`, everything else by `wall`.
--
-- A server that was frozen, or a way to it that was, carries out late what was sent before: its sender
-- has given up by then. Leases therefore run from `asked`, the latest time at which the script should
-- have been run ("by ..."): a call that comes too late gives nobody a lease that nobody keeps.
-- uses: server

local now, wall, asked
if ARGV[1] == '' or string.sub(ARGV[1], 1, 3) == 'by ' then
  local time = call('TIME')
  now = tonumber(time[1]) + tonumber(time[2]) / 1000000
  wall = now
  asked = math.min(now, tonumber(string.sub(ARGV[1], 4)) or now)
else
  local a, b = string.match(ARGV[1], '^(%S+) (%S+)$')
  now, wall = tonumber(a), tonumber(b)
  asked = now
end
