-- name: doctor_tasks
SELECT n, id, tenant, plan, queue, type, hold, status, place, version, error,
    ready, line, due, lease_id, lease_until, settled_at, keep_until, suspended_at, record
FROM tasks WHERE n > ? ORDER BY n LIMIT ?;

-- name: doctor_task
SELECT n, id, tenant, plan, queue, type, hold, status, place, version, error,
    ready, line, due, lease_id, lease_until, settled_at, keep_until, suspended_at, record
FROM tasks WHERE n = ?;

-- name: doctor_tenants
SELECT tenant, active, fence, waiting FROM tenants WHERE tenant > ? ORDER BY tenant LIMIT ?;

-- name: doctor_stages
SELECT count(*) FROM stages WHERE n = ? AND position <= ?;

-- name: line_count
SELECT count(*) FROM tasks WHERE tenant = ? AND line IS NOT NULL;

-- name: task_rewrite
UPDATE tasks
SET id = ?, tenant = ?, plan = ?, queue = ?, type = ?, hold = ?, status = ?, place = ?,
    version = ?, error = ?, ready = ?, line = ?, due = ?, lease_id = ?, lease_boot = ?,
    lease_until = ?, settled_at = ?, keep_until = ?, suspended_at = ?, record = ?
WHERE n = ?;
