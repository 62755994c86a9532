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

-- name: audit_add
INSERT INTO audits (n, at, body) VALUES ((SELECT coalesce(max(n), 0) + 1 FROM audits), ?, ?);

-- name: audits_newest
SELECT body FROM audits WHERE n <= (SELECT max(n) FROM audits) - ? ORDER BY n DESC LIMIT ?;

-- name: audits_oldest
SELECT n, at FROM audits WHERE n > 0 ORDER BY n LIMIT ?;

-- name: audits_delete_upto
DELETE FROM audits WHERE n <= ?;
