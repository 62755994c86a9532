-- name: tasks_known
SELECT e.value FROM json_each(?) AS e
WHERE EXISTS (SELECT 1 FROM states WHERE id = e.value)
    OR EXISTS (SELECT 1 FROM tombstones WHERE task_id = e.value);

-- name: task_add
INSERT INTO tasks (n, digest, head, events, payload)
SELECT value ->> 0, value ->> 1, value -> 2, value -> 3, value ->> 4 FROM jsonb_each(?);

-- name: task_head
UPDATE tasks SET head = e.value -> 1 FROM jsonb_each(?) AS e WHERE tasks.n = e.value ->> 0;

-- name: task_payload
UPDATE tasks SET payload = ? WHERE n = ?;

-- name: task_delete
DELETE FROM tasks WHERE n IN (SELECT value FROM json_each(?));

-- name: state_add
INSERT INTO states
    (n, id, tenant, plan, queue, type, hold, version, status, since, at, place, ready, line, fence,
    error)
SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5, value ->> 6,
    value ->> 7, value ->> 8, value ->> 9, value ->> 10, value ->> 11, value ->> 12, value ->> 13,
    0, value ->> 14
FROM jsonb_each(?);

-- name: state_put
UPDATE states
SET version = e.value ->> 1, status = e.value ->> 2, since = e.value ->> 3, at = e.value ->> 4,
    place = e.value ->> 5, ready = e.value ->> 6, line = e.value ->> 7, due = e.value ->> 8,
    fence = e.value ->> 9, settled_at = e.value ->> 10, keep_until = e.value ->> 11,
    suspended_at = e.value ->> 12, error = e.value ->> 13, rest = e.value -> 14
FROM jsonb_each(?) AS e
WHERE states.n = e.value ->> 0;

-- name: state_settle
UPDATE states
SET version = e.value ->> 1, status = e.value ->> 2, since = e.value ->> 3, at = e.value ->> 3,
    place = e.value ->> 4, ready = NULL, line = NULL, due = NULL, fence = e.value ->> 5,
    settled_at = e.value ->> 3, keep_until = e.value ->> 6, suspended_at = NULL, error = NULL,
    rest = e.value -> 7
FROM jsonb_each(?) AS e
WHERE states.n = e.value ->> 0;

-- name: state_stay
UPDATE states SET version = e.value ->> 1, at = e.value ->> 2, rest = e.value -> 3
FROM jsonb_each(?) AS e
WHERE states.n = e.value ->> 0;

-- name: state_stay_marked
UPDATE states
SET version = e.value ->> 1, status = e.value ->> 2, since = e.value ->> 3, at = e.value ->> 4,
    settled_at = e.value ->> 5, keep_until = e.value ->> 6, suspended_at = e.value ->> 7,
    error = e.value ->> 8, rest = e.value -> 9
FROM jsonb_each(?) AS e
WHERE states.n = e.value ->> 0;

-- name: state_place
UPDATE states SET place = e.value ->> 1, ready = e.value ->> 2, line = e.value ->> 3
FROM jsonb_each(?) AS e
WHERE states.n = e.value ->> 0;

-- name: state_set_aside
UPDATE states
SET place = ?, line = NULL, due = NULL, settled_at = NULL, keep_until = NULL, suspended_at = NULL
WHERE n = ?;

-- name: state_delete
DELETE FROM states WHERE n IN (SELECT value FROM json_each(?));

-- name: state_of
SELECT s.queue, s.place, s.status, s.ready, s.line, s.tenant, l.n IS NOT NULL
FROM states AS s LEFT JOIN leases AS l ON l.n = s.n
WHERE s.n = ?;

-- name: record_of
SELECT * FROM records WHERE id = ?;

-- name: records_of
SELECT r.* FROM json_each(?) AS e JOIN records AS r ON r.id = e.value;

-- name: record_at
SELECT * FROM records WHERE n = ?;

-- name: records_at
SELECT r.* FROM json_each(?) AS e JOIN records AS r ON r.n = e.value;

-- name: standings_of
SELECT s.id, s.n, s.queue, s.version, s.place, s.ready, s.due, s.fence, s.settled_at, l.version,
    l.at, l.id, l.owner, l.fence, l.until, c.version
FROM json_each(?) AS e JOIN states AS s ON s.id = e.value LEFT JOIN leases AS l ON l.n = s.n
    LEFT JOIN checkpoints AS c ON c.n = s.n;

-- name: ready_add
INSERT INTO ready (queue, number, n)
SELECT value ->> 0, value ->> 1, value ->> 2 FROM jsonb_each(?);

-- name: ready_delete
DELETE FROM ready
WHERE (queue, number) IN (SELECT value ->> 0, value ->> 1 FROM jsonb_each(?));

-- name: ready_take
DELETE FROM ready WHERE queue = ? AND number <= ?;

-- name: ready_of_queue
SELECT q.number, s.n, s.version, s.status, s.since, s.fence, s.rest, t.head, t.payload
FROM ready AS q JOIN states AS s ON s.n = q.n JOIN tasks AS t ON t.n = q.n
WHERE q.queue = ? AND NOT EXISTS (SELECT 1 FROM leases AS l WHERE l.n = q.n)
ORDER BY q.number
LIMIT ?;

-- name: ready_of_queue_unheld
SELECT q.number, s.n, s.version, s.status, s.since, s.fence, s.rest, t.head, t.payload
FROM ready AS q JOIN states AS s ON s.n = q.n JOIN tasks AS t ON t.n = q.n
WHERE q.queue = ? AND NOT EXISTS (SELECT 1 FROM leases AS l WHERE l.n = q.n)
    AND NOT EXISTS (
        SELECT 1 FROM meta AS h
        WHERE h.name = 'hold:tenant:' || s.tenant AND ifnull(  -- one that cannot be read has no end
            CASE WHEN json_valid(h.value) THEN json_extract(h.value, '$.until') END > ?, TRUE
        )
    )
ORDER BY q.number
LIMIT ?;

-- name: ready_head
SELECT r.* FROM ready AS q JOIN records AS r ON r.n = q.n
WHERE q.queue = ?
ORDER BY q.number
LIMIT 1;

-- name: lease_add
INSERT INTO leases (n, version, id, fence, at, owner, boot, until)
SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, ?2, ?3, ?4, ?5 FROM jsonb_each(?1);

-- name: lease_renew
UPDATE leases SET until = ?, boot = ?, progress = coalesce(?, progress)
WHERE n = (SELECT n FROM states WHERE id = ?) AND id = ?;

-- name: lease_delete
DELETE FROM leases WHERE n IN (SELECT value FROM json_each(?));

-- name: leases_lapsed
SELECT n FROM leases WHERE boot = ? AND until <= ? LIMIT ?;

-- name: leases_first
SELECT min(until) FROM leases;

-- name: leases_of_other_boots
SELECT n FROM leases WHERE boot < ? LIMIT ?;

-- name: progress_get
SELECT progress FROM leases WHERE n = ?;

-- name: due_now
SELECT * FROM records WHERE due IS NOT NULL AND due <= ? ORDER BY due, n LIMIT ?;

-- name: due_next
SELECT due FROM states WHERE due IS NOT NULL ORDER BY due LIMIT 1;
