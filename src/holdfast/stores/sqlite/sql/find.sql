-- Newest first, before the cursor. One for each kind of filter, so that each has its index.

-- name: find_any
SELECT id, record, lease_until FROM tasks WHERE id < ? ORDER BY id DESC LIMIT ?;

-- name: find_group
SELECT id, record, lease_until FROM tasks
WHERE status = ? AND type = ? AND queue = ? AND id < ?
ORDER BY id DESC
LIMIT ?;

-- name: find_next_group
SELECT status, type, queue FROM tasks
WHERE (status, type, queue) > (?, ?, ?)
ORDER BY status, type, queue
LIMIT 1;

-- name: find_error
SELECT id, record, lease_until FROM tasks
WHERE error = ? AND status = ? AND id < ?
ORDER BY id DESC
LIMIT ?;

-- name: find_tenant
SELECT id, record, lease_until FROM tasks WHERE tenant = ? AND id < ? ORDER BY id DESC LIMIT ?;

-- name: find_suspended_tenant
SELECT id, record, lease_until FROM tasks
WHERE tenant = ? AND status = ? AND suspended_at IS NOT NULL AND id < ?
ORDER BY id DESC
LIMIT ?;

-- name: find_suspended
SELECT id, record, lease_until FROM tasks
WHERE id IN (
    SELECT id FROM tasks
    WHERE status = ? AND suspended_at > ? AND suspended_at < ? AND id < ?
    ORDER BY id DESC
    LIMIT ?
)
ORDER BY id DESC;

-- name: find_many_suspended
SELECT 1 FROM tasks
WHERE status = ? AND suspended_at > ? AND suspended_at < ?
LIMIT 1 OFFSET ?;

-- name: find_plan
SELECT id, record, lease_until FROM tasks WHERE plan = ? AND id < ? ORDER BY id DESC LIMIT ?;

-- name: peek_task
SELECT t.record, t.lease_until, o.result
FROM tasks AS t LEFT JOIN outcomes AS o ON o.n = t.n
WHERE t.id = ?;

-- name: task_whole
SELECT n, record, lease_until, progress FROM tasks WHERE id = ?;
