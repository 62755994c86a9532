-- name: outdated_tasks
SELECT r.* FROM states AS s JOIN records AS r ON r.n = s.n
WHERE s.keep_until IS NOT NULL AND s.keep_until <= ? AND s.settled_at < ?
ORDER BY s.keep_until
LIMIT ?;

-- name: outdated_checkpoints
SELECT n, body FROM checkpoints
WHERE settled_at IS NOT NULL AND settled_at < ?
ORDER BY settled_at
LIMIT ?;

-- name: outdated_tombstones
SELECT n, task_id, tenant, key FROM tombstones WHERE until < ? ORDER BY until LIMIT ?;

-- name: tombstone_delete
DELETE FROM tombstones WHERE n = ?;

-- name: outdated_workers
SELECT worker FROM workers WHERE seen < ? ORDER BY seen LIMIT ?;
