-- name: task_known
SELECT EXISTS (SELECT 1 FROM tasks WHERE id = ?1)
    OR EXISTS (SELECT 1 FROM tombstones WHERE task_id = ?1);

-- name: task_add
INSERT INTO tasks
    (n, id, tenant, plan, queue, type, hold, status, place, version, error,
    ready, line, digest, record)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: task_get
SELECT n, record, lease_until FROM tasks WHERE id = ?;

-- name: task_at
SELECT n, record, lease_until FROM tasks WHERE n = ?;

-- name: task_put
UPDATE tasks
SET status = ?, place = ?, version = ?, error = ?, ready = ?, line = ?, due = ?,
    lease_id = ?, lease_boot = ?, lease_until = ?, settled_at = ?, keep_until = ?,
    suspended_at = ?, progress = NULL, record = ?
WHERE n = ?;

-- name: task_lease
UPDATE tasks
SET status = ?, place = ?, version = ?, ready = NULL,
    lease_id = ?, lease_boot = ?, lease_until = ?, record = ?
WHERE n = ?;

-- name: task_stay
UPDATE tasks SET version = ?, record = ? WHERE n = ?;

-- name: task_stay_marked
UPDATE tasks
SET version = ?, status = ?, error = ?, settled_at = ?, keep_until = ?, suspended_at = ?,
    record = ?
WHERE n = ?;

-- name: task_set_aside
UPDATE tasks
SET place = ?, ready = NULL, line = NULL, due = NULL,
    lease_id = NULL, lease_boot = NULL, lease_until = NULL,
    settled_at = NULL, keep_until = NULL, suspended_at = NULL, progress = NULL
WHERE n = ?;

-- name: task_place
SELECT queue, place, status, line, tenant FROM tasks WHERE n = ?;

-- name: task_delete
DELETE FROM tasks WHERE n = ?;

-- name: ready_of_queue
SELECT t.n, t.record, p.body
FROM tasks AS t LEFT JOIN payloads AS p ON p.n = t.n
WHERE t.queue = ? AND t.ready IS NOT NULL
ORDER BY t.ready
LIMIT ?;

-- name: lease_renew
UPDATE tasks SET lease_until = ?, lease_boot = ?, progress = coalesce(?, progress)
WHERE id = ? AND lease_id = ?;

-- name: leases_lapsed
SELECT n, record, lease_until FROM tasks
WHERE lease_boot = ? AND lease_until <= ?
ORDER BY lease_until
LIMIT ?;

-- name: leases_of_other_boots
SELECT n, record, lease_until FROM tasks WHERE lease_boot < ? ORDER BY lease_boot LIMIT ?;

-- name: due_now
SELECT n, record FROM tasks WHERE due IS NOT NULL AND due <= ? ORDER BY due, n LIMIT ?;

-- name: due_next
SELECT due FROM tasks WHERE due IS NOT NULL ORDER BY due LIMIT 1;
