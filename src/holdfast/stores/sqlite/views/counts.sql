-- name: sequences_get
SELECT task, ready, fence FROM sequences WHERE one = 1;

-- name: sequences_and_switches
SELECT task, ready, fence, EXISTS (SELECT 1 FROM switches),
    EXISTS (SELECT 1 FROM meta WHERE name >= 'hold:tenant:' AND name < 'hold:tenant;')
FROM sequences WHERE one = 1;

-- name: sequences_put
UPDATE sequences SET task = ?, ready = ?, fence = ? WHERE one = 1;

-- name: due_count
SELECT due FROM sequences WHERE one = 1;

-- name: due_count_raise
UPDATE sequences SET due = due + 1 WHERE one = 1 RETURNING due;

-- name: totals_of_queue
SELECT place, count FROM totals WHERE queue = ?;

-- name: totals_all
SELECT queue, place, status, count FROM totals WHERE count <> 0;

-- name: totals_add
INSERT INTO totals (queue, place, status, count) VALUES (?, ?, ?, ?)
ON CONFLICT (queue, place, status) DO UPDATE SET count = count + excluded.count;

-- name: moves_all
SELECT queue, type, before, after, count, dwell_seconds FROM moves;

-- name: moves_add
INSERT INTO moves (queue, type, before, after, count, dwell_seconds)
VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (queue, type, before, after) DO UPDATE
SET count = count + excluded.count, dwell_seconds = dwell_seconds + excluded.dwell_seconds;

-- name: refusals_all
SELECT says, count FROM refusals;

-- name: refusals_add
INSERT INTO refusals (says, count) VALUES (?, ?)
ON CONFLICT (says) DO UPDATE SET count = count + excluded.count;

-- name: timings_all
SELECT type, stage, outcome, counts, total_seconds FROM timings;

-- name: timings_of
SELECT counts, total_seconds FROM timings WHERE type = ? AND stage = ? AND outcome = ?;

-- name: timings_put
INSERT OR REPLACE INTO timings (type, stage, outcome, counts, total_seconds)
VALUES (?, ?, ?, ?, ?);

-- name: checkpoints_open
SELECT count(*) FROM checkpoints WHERE settled_at IS NULL;

-- name: locks_held
SELECT count(*) FROM leases AS l CROSS JOIN states AS s ON s.n = l.n WHERE s.tenant IS NOT NULL;

-- name: error_next
SELECT error FROM states WHERE error > ? ORDER BY error LIMIT 1;

-- name: error_count
SELECT count(*) FROM states WHERE error = ? AND status = ?;
