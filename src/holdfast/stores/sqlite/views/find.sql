-- Tasks are found newest first, before the cursor, by one query for each index.

-- name: find_any
SELECT * FROM records WHERE id < ? ORDER BY id DESC LIMIT ?;

-- name: find_group
SELECT r.* FROM states AS s JOIN records AS r ON r.n = s.n
WHERE s.status = ? AND s.type = ? AND s.queue = ? AND s.id < ?
ORDER BY s.id DESC
LIMIT ?;

-- The last value is an id behind every id. Without it, SQLite would pass all tasks of the group one by
-- one, because it starts at the first row that is not less than the values.
-- name: find_next_group
SELECT status, type, queue FROM states
WHERE (status, type, queue, id) > (?, ?, ?, ?)
ORDER BY status, type, queue, id
LIMIT 1;

-- name: find_leased
SELECT r.* FROM leases AS l CROSS JOIN records AS r ON r.n = l.n
WHERE r.id < ?
ORDER BY r.id DESC
LIMIT ?;

-- name: find_error
SELECT r.* FROM states AS s JOIN records AS r ON r.n = s.n
WHERE s.error = ? AND s.status = ? AND s.id < ?
ORDER BY s.id DESC
LIMIT ?;

-- name: find_tenant
SELECT r.* FROM states AS s JOIN records AS r ON r.n = s.n
WHERE s.tenant = ? AND s.id < ?
ORDER BY s.id DESC
LIMIT ?;

-- name: find_suspended_tenant
SELECT r.* FROM states AS s JOIN records AS r ON r.n = s.n
WHERE s.tenant = ? AND s.status = ? AND s.suspended_at IS NOT NULL AND s.id < ?
ORDER BY s.id DESC
LIMIT ?;

-- name: find_suspended
SELECT r.* FROM records AS r
WHERE r.id IN (
    SELECT id FROM states
    WHERE status = ? AND suspended_at > ? AND suspended_at < ? AND id < ?
    ORDER BY id DESC
    LIMIT ?
)
ORDER BY r.id DESC;

-- name: find_many_suspended
SELECT 1 FROM states
WHERE status = ? AND suspended_at > ? AND suspended_at < ?
LIMIT 1 OFFSET ?;

-- name: find_plan
SELECT r.* FROM states AS s JOIN records AS r ON r.n = s.n
WHERE s.plan = ? AND s.id < ?
ORDER BY s.id DESC
LIMIT ?;
