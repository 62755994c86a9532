-- name: trigger_of
SELECT version, boot, until, body FROM triggers WHERE id = ?;

-- name: triggers_of
SELECT t.id, t.version, t.body FROM json_each(?) AS e JOIN triggers AS t ON t.id = e.value;

-- name: trigger_put
INSERT INTO triggers
(id, tenant, version, status, at, boot, until, ended_at, keep_until, declared, body)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE
SET tenant = excluded.tenant, version = excluded.version, status = excluded.status,
    at = excluded.at, boot = excluded.boot, until = excluded.until, ended_at = excluded.ended_at,
    keep_until = excluded.keep_until, declared = excluded.declared, body = excluded.body;

-- name: trigger_remove
DELETE FROM triggers WHERE id = ?;

-- name: triggers_due
SELECT id, at, body FROM triggers
WHERE at <= ? AND at IS NOT NULL AND until IS NULL
ORDER BY at, id
LIMIT ?;

-- name: triggers_lapsed
SELECT id, at, boot, body FROM triggers
WHERE until IS NOT NULL AND (boot, until) <= (?, ?) AND at <= ?
ORDER BY boot, until
LIMIT ?;

-- name: triggers_lease
UPDATE triggers
SET version = e.value ->> 1, status = e.value ->> 2, body = e.value ->> 3, boot = ?2, until = ?3
FROM jsonb_each(?1) AS e
WHERE triggers.id = e.value ->> 0;

-- name: triggers_first
SELECT at FROM triggers WHERE at IS NOT NULL AND until IS NULL ORDER BY at LIMIT 1;

-- name: triggers_first_lease
SELECT boot, until FROM triggers WHERE until IS NOT NULL AND boot > 0 ORDER BY boot, until LIMIT 1;

-- name: trigger_set_aside
UPDATE triggers
SET at = NULL, boot = NULL, until = NULL, ended_at = NULL, keep_until = NULL
WHERE id = ?;

-- name: triggers_any
SELECT id, body FROM triggers WHERE id > ? ORDER BY id LIMIT ?;

-- name: triggers_of_status
SELECT id, body FROM triggers WHERE status = ? AND id > ? ORDER BY id LIMIT ?;

-- name: triggers_of_tenant
SELECT id, body FROM triggers WHERE tenant = ? AND id > ? ORDER BY id LIMIT ?;

-- name: triggers_declared
SELECT id, body FROM triggers WHERE declared AND id > ? ORDER BY id LIMIT ?;

-- name: outdated_triggers
SELECT id, body FROM triggers
WHERE keep_until IS NOT NULL AND keep_until <= ? AND ended_at < ?
ORDER BY keep_until
LIMIT ?;

-- name: unfinished_among
SELECT s.id FROM json_each(?1) AS e JOIN states AS s ON s.id = e.value
WHERE s.place IN (SELECT value FROM json_each(?2));

-- name: doctor_triggers
SELECT id, tenant, version, status, at, boot, until, ended_at, keep_until, declared, body
FROM triggers
WHERE id > ?
ORDER BY id
LIMIT ?;
