-- clock: the time that leases are judged by, and the time of everything else.
-- uses: numbers time

return {decimal(now), decimal(wall)}
