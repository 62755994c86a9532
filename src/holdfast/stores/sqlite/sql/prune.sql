-- name: outdated_tasks
SELECT n, record FROM tasks
WHERE keep_until IS NOT NULL AND keep_until <= ? AND settled_at < ?
ORDER BY keep_until
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
