-- name: keys_owned
SELECT k.tenant, k.key, k.task_id, coalesce(t.digest, b.digest)
FROM jsonb_each(?1) AS e
    JOIN keys AS k ON k.tenant = e.value ->> 0 AND k.key = e.value ->> 1
    LEFT JOIN states AS s ON s.id = k.task_id LEFT JOIN tasks AS t ON t.n = s.n
    LEFT JOIN tombstones AS b ON b.task_id = k.task_id AND b.until > ?2
WHERE s.id IS NOT NULL OR b.task_id IS NOT NULL;

-- name: key_owner
SELECT task_id FROM keys WHERE tenant = ? AND key = ?;

-- name: key_put
INSERT OR REPLACE INTO keys (tenant, key, task_id)
SELECT value ->> 0, value ->> 1, value ->> 2 FROM jsonb_each(?);

-- name: key_delete
DELETE FROM keys WHERE tenant = ? AND key = ? AND task_id = ?;

-- name: tombstone_put
INSERT OR REPLACE INTO tombstones
    (n, task_id, tenant, key, digest, request, until, result, record)
SELECT s.n, s.id, s.tenant, e.value ->> 1, t.digest,
    coalesce((SELECT request FROM journal WHERE n = s.n ORDER BY version DESC LIMIT 1), ''),
    e.value ->> 2,
    (SELECT outcome FROM journal
        WHERE n = s.n AND outcome IS NOT NULL ORDER BY version DESC LIMIT 1),
    e.value -> 3
FROM jsonb_each(?) AS e
    JOIN states AS s ON s.n = e.value ->> 0 JOIN tasks AS t ON t.n = s.n;

-- name: tombstone_request
SELECT request FROM tombstones WHERE task_id = ?;

-- name: tombstone_get
SELECT record, result FROM tombstones WHERE task_id = ?;
