-- Newest first, before the cursor. One for each kind of filter, so that each has its index.

-- name: find_any
SELECT id, record, lease_until FROM tasks WHERE id < ? ORDER BY id DESC LIMIT ?;

-- name: find_status
SELECT id, record, lease_until FROM tasks WHERE status = ? AND id < ? ORDER BY id DESC LIMIT ?;

-- name: find_type
SELECT id, record, lease_until FROM tasks WHERE type = ? AND id < ? ORDER BY id DESC LIMIT ?;

-- name: find_queue
SELECT id, record, lease_until FROM tasks WHERE queue = ? AND id < ? ORDER BY id DESC LIMIT ?;

-- name: find_tenant
SELECT id, record, lease_until FROM tasks WHERE tenant = ? AND id < ? ORDER BY id DESC LIMIT ?;

-- name: find_plan
SELECT id, record, lease_until FROM tasks WHERE plan = ? AND id < ? ORDER BY id DESC LIMIT ?;

-- name: find_error
SELECT id, record, lease_until FROM tasks WHERE error = ? AND id < ? ORDER BY id DESC LIMIT ?;

-- name: peek_task
SELECT t.record, t.lease_until, o.result
FROM tasks AS t LEFT JOIN outcomes AS o ON o.n = t.n
WHERE t.id = ?;

-- name: task_whole
SELECT n, record, lease_until, progress FROM tasks WHERE id = ?;
