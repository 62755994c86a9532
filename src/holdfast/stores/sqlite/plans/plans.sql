-- name: plan_of
SELECT n, version, fence, lease_id, owner, boot, until, due, body FROM plans WHERE id = ?;

-- name: plan_add
INSERT INTO plans
    (id, created_at, version, status, fence, settled_at, keep_until, body)
VALUES (?, ?, ?, ?, 0, ?, ?, ?)
RETURNING n;

-- name: plan_put
UPDATE plans
SET version = ?2, status = ?3, settled_at = ?4, keep_until = ?5, body = ?6
WHERE n = ?1;

-- name: plan_place
UPDATE plans SET due = ?2, lease_id = ?3, owner = ?4, boot = ?5, until = ?6 WHERE n = ?1;

-- name: plan_renew
UPDATE plans SET boot = ?, until = ? WHERE id = ? AND lease_id = ?;

-- While a plan is leased, its `due` only records that it was woken meanwhile. A plan of version 1 is
-- still being created.
-- name: plans_wake
UPDATE plans SET due = min(ifnull(due, ?1), ?1)
WHERE id IN (SELECT value FROM json_each(?2)) AND settled_at IS NULL AND version > 1;

-- name: plans_due
SELECT due, n, fence, body FROM plans
WHERE due <= ? AND due IS NOT NULL AND until IS NULL
ORDER BY due, n
LIMIT ?;

-- name: plans_lapsed
SELECT until, n, fence, body FROM plans
WHERE until IS NOT NULL AND (boot, until) <= (?, ?)
ORDER BY boot, until
LIMIT ?;

-- name: plans_lease
UPDATE plans
SET due = NULL, fence = e.value ->> 1, lease_id = e.value ->> 2, owner = ?2, boot = ?3, until = ?4
FROM jsonb_each(?1) AS e
WHERE plans.n = e.value ->> 0;

-- name: plans_first
SELECT due FROM plans WHERE due IS NOT NULL AND until IS NULL ORDER BY due LIMIT 1;

-- name: plans_first_lease
SELECT boot, until FROM plans WHERE until IS NOT NULL AND boot > 0 ORDER BY boot, until LIMIT 1;

-- name: plan_set_aside
UPDATE plans
SET due = NULL, lease_id = NULL, owner = NULL, boot = NULL, until = NULL, settled_at = NULL,
    keep_until = NULL
WHERE n = ?;

-- name: plan_tasks_add
INSERT INTO plan_tasks (n, body) VALUES (?, ?);

-- name: plan_tasks_of
SELECT t.body FROM plans AS p JOIN plan_tasks AS t ON t.n = p.n WHERE p.id = ?;

-- name: plan_members_put
INSERT INTO plan_members (n, number, state, version)
SELECT ?1, value ->> 0, value ->> 1, value ->> 2 FROM jsonb_each(?2) WHERE true
ON CONFLICT (n, number) DO UPDATE SET state = excluded.state, version = excluded.version;

-- name: plan_members_wait
DELETE FROM plan_members WHERE n = ?1 AND number IN (SELECT value FROM json_each(?2));

-- name: plan_members_of
SELECT m.number, m.state, m.version FROM plans AS p JOIN plan_members AS m ON m.n = p.n
WHERE p.id = ?;

-- name: plan_events_add
INSERT INTO plan_events (n, version, events) VALUES (?, ?, ?);

-- name: plan_events_of
SELECT v.events FROM plans AS p JOIN plan_events AS v ON v.n = p.n
WHERE p.id = ? AND v.version > ?
ORDER BY v.version;

-- name: plans_any
SELECT created_at, id, fence, lease_id, owner, until, body FROM plans
WHERE (created_at, id) < (?, ?)
ORDER BY created_at DESC, id DESC
LIMIT ?;

-- name: plans_of_status
SELECT created_at, id, fence, lease_id, owner, until, body FROM plans
WHERE status = ? AND (created_at, id) < (?, ?)
ORDER BY created_at DESC, id DESC
LIMIT ?;

-- name: outdated_plans
SELECT n, body FROM plans
WHERE keep_until IS NOT NULL AND keep_until <= ? AND settled_at < ?
ORDER BY keep_until
LIMIT ?;

-- name: plan_delete
DELETE FROM plans WHERE n = ?;

-- name: plan_tasks_delete
DELETE FROM plan_tasks WHERE n = ?;

-- name: plan_members_delete
DELETE FROM plan_members WHERE n = ?;

-- name: plan_events_delete
DELETE FROM plan_events WHERE n = ?;

-- name: doctor_plans
SELECT id, n, created_at, version, status, settled_at, keep_until, body FROM plans
WHERE id > ?
ORDER BY id
LIMIT ?;
