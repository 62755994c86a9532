-- name: key_owner
SELECT task_id FROM keys WHERE tenant = ? AND key = ?;

-- name: key_put
INSERT OR REPLACE INTO keys (tenant, key, task_id) VALUES (?, ?, ?);

-- name: key_delete
DELETE FROM keys WHERE tenant = ? AND key = ? AND task_id = ?;

-- name: digest_of_task
SELECT digest FROM tasks WHERE id = ?;

-- name: digest_of_tombstone
SELECT digest, until FROM tombstones WHERE task_id = ?;

-- name: tombstone_put
INSERT OR REPLACE INTO tombstones
    (n, task_id, tenant, key, digest, request, until, result, record)
SELECT n, id, tenant, ?2, digest, ?3, ?4, ?5, ?6 FROM tasks WHERE n = ?1;

-- name: tombstone_request
SELECT request FROM tombstones WHERE task_id = ?;

-- name: tombstone_get
SELECT record, result FROM tombstones WHERE task_id = ?;
