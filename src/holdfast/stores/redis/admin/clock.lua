-- clock: the time that leases are judged by, and the time of everything else.

return {decimal(now), decimal(wall)}
