-- name: doctor_tasks
SELECT s.tenant, s.plan, s.type, s.hold, s.line, s.error, s.keep_until, s.suspended_at,
    (SELECT n FROM ready WHERE queue = s.queue AND number = s.ready), r.*
FROM states AS s JOIN records AS r ON r.n = s.n
WHERE s.n > ?
ORDER BY s.n
LIMIT ?;

-- name: doctor_tenants
SELECT v.tenant, v.active, max(v.fence, coalesce(l.fence, 0)), v.waiting
FROM tenants AS v LEFT JOIN leases AS l ON l.n = v.active
WHERE v.tenant > ?
ORDER BY v.tenant
LIMIT ?;

-- name: doctor_leases
SELECT l.n FROM leases AS l LEFT JOIN states AS s ON s.n = l.n WHERE s.n IS NULL;

-- name: tenant_active
SELECT active FROM tenants WHERE tenant = ?;

-- name: doctor_ready
SELECT q.queue, q.number, q.n, s.ready
FROM ready AS q LEFT JOIN states AS s ON s.n = q.n AND s.queue = q.queue
WHERE (q.queue, q.number) > (?, ?)
ORDER BY q.queue, q.number
LIMIT ?;

-- name: line_count
SELECT count(*) FROM states WHERE tenant = ? AND line IS NOT NULL;

-- name: state_rewrite
UPDATE states
SET id = ?, tenant = ?, plan = ?, queue = ?, type = ?, hold = ?, place = ?, line = ?, due = ?,
    keep_until = ?, suspended_at = ?, error = ?
WHERE n = ?;
