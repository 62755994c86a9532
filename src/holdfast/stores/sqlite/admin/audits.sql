-- name: audit_add
INSERT INTO audits (n, at, entry, hash)
SELECT value ->> 0, value ->> 1, CAST(value ->> 2 AS BLOB), value ->> 3 FROM jsonb_each(?);

-- name: audit_link
UPDATE audits SET hash = ? WHERE n = ?;

-- name: audits_newest
SELECT entry FROM audits WHERE n <= (SELECT max(n) FROM audits) - ? ORDER BY n DESC LIMIT ?;

-- name: audits_oldest
SELECT n, at, hash FROM audits WHERE n > 0 ORDER BY n LIMIT ?;

-- name: audits_after
SELECT n, at, entry, hash FROM audits WHERE n > ? ORDER BY n LIMIT ?;

-- name: audits_upto
SELECT count(*) FROM audits WHERE n <= ?;

-- name: audits_delete_upto
DELETE FROM audits WHERE n <= ?;

-- name: chain_base
SELECT base, base_hash FROM chain WHERE one = 1;

-- name: chain_base_put
UPDATE chain SET base = ?, base_hash = ? WHERE one = 1;

-- name: chain_head
SELECT head, head_hash FROM chain WHERE one = 1;

-- name: chain_head_put
UPDATE chain SET head = ?, head_hash = ? WHERE one = 1;
