-- name: worker_seen
INSERT INTO workers (worker, seen, beat) VALUES (?, ?, ?)
ON CONFLICT (worker) DO UPDATE SET seen = excluded.seen, beat = excluded.beat;

-- name: worker_delete
DELETE FROM workers WHERE worker = ?;

-- name: workers_all
SELECT beat, seen FROM workers ORDER BY n;

-- name: claim_last
SELECT request, handed_out FROM claims WHERE worker = ?;

-- name: claim_put
INSERT OR REPLACE INTO claims (worker, request, handed_out) VALUES (?, ?, ?);

-- name: claim_forget
DELETE FROM claims WHERE worker = ?;

-- name: switch_set
INSERT INTO switches (switch, name, at, by) VALUES (?, ?, ?, ?)
ON CONFLICT (switch, name) DO NOTHING;

-- name: switch_set_back
DELETE FROM switches WHERE switch = ? AND name = ?;

-- name: switches_of_strangers
DELETE FROM switches WHERE switch = ? AND name NOT IN (SELECT worker FROM workers);

-- name: switches_of
SELECT name FROM switches WHERE switch = ?;

-- name: switches_all
SELECT switch, name, at, by FROM switches;
