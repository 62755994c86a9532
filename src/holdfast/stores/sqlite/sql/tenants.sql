-- name: tenant_get
SELECT active, fence, waiting FROM tenants WHERE tenant = ?;

-- name: tenant_put
INSERT INTO tenants (tenant, active, fence, waiting) VALUES (?, ?, ?, ?)
ON CONFLICT (tenant) DO UPDATE
SET active = excluded.active, fence = excluded.fence, waiting = excluded.waiting;

-- name: tenant_forget
DELETE FROM tenants
WHERE tenant = ?1 AND NOT EXISTS (SELECT 1 FROM tasks WHERE tenant = ?1);

-- name: tenant_view
SELECT t.id, t.place, v.fence, v.waiting
FROM tenants AS v LEFT JOIN tasks AS t ON t.n = v.active
WHERE v.tenant = ?;

-- name: active_rests
SELECT place, hold FROM tasks WHERE n = ?;

-- name: line_head
SELECT n, record FROM tasks WHERE tenant = ? AND line IS NOT NULL ORDER BY line LIMIT 1;

-- name: line_ids
SELECT id FROM tasks WHERE tenant = ? AND line IS NOT NULL ORDER BY line LIMIT ?;

-- name: newest_resting
SELECT n FROM tasks
WHERE tenant = ? AND hold = 0 AND place IN ('parked', 'later')
ORDER BY n DESC LIMIT 1;
