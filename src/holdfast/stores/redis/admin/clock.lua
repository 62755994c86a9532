-- clock: Reads the server's time.
-- Answers the time that leases are judged by (`now`), and that of everything else (`wall`).
-- uses: numbers time

return {'now', decimal(now), 'wall', decimal(wall)}
