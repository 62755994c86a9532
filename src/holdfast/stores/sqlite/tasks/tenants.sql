-- name: tenants_get
SELECT v.tenant, v.active, v.fence, v.waiting, s.place, s.hold, l.fence
FROM json_each(?) AS e JOIN tenants AS v ON v.tenant = e.value
    LEFT JOIN states AS s ON s.n = v.active LEFT JOIN leases AS l ON l.n = v.active;

-- name: tenant_put
INSERT INTO tenants (tenant, active, fence, waiting)
SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3 FROM jsonb_each(?) WHERE true
ON CONFLICT (tenant) DO UPDATE
SET active = excluded.active, fence = excluded.fence, waiting = excluded.waiting;

-- name: tenant_forget
DELETE FROM tenants
WHERE tenant = ?1 AND NOT EXISTS (SELECT 1 FROM states WHERE tenant = ?1);

-- name: tenant_views
SELECT v.tenant, s.id, l.n IS NOT NULL, max(v.fence, coalesce(l.fence, 0)), v.waiting
FROM json_each(?) AS e JOIN tenants AS v ON v.tenant = e.value LEFT JOIN leases AS l ON l.n = v.active
    LEFT JOIN states AS s ON s.n = coalesce(v.active, (
        SELECT n FROM states
        WHERE tenant = v.tenant AND hold = 0 AND place IN ({resting})
        ORDER BY n DESC LIMIT 1
    ));

-- name: line_heads
SELECT e.value, s.n, s.queue, s.status
FROM json_each(?) AS e JOIN states AS s ON s.n = (
    SELECT n FROM states WHERE tenant = e.value AND line IS NOT NULL ORDER BY line LIMIT 1
);

-- name: line_ids
SELECT id FROM states WHERE tenant = ? AND line IS NOT NULL ORDER BY line LIMIT ?;
