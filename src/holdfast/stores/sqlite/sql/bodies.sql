-- name: payload_add
INSERT INTO payloads (n, body) VALUES (?, ?);

-- name: payload_get
SELECT body FROM payloads WHERE n = ?;

-- name: payload_delete
DELETE FROM payloads WHERE n = ?;

-- name: outcome_put
INSERT INTO outcomes (n, result, data) VALUES (?, ?, ?)
ON CONFLICT (n) DO UPDATE
SET result = coalesce(excluded.result, result), data = coalesce(excluded.data, data);

-- name: outcome_keep_data
INSERT INTO outcomes (n, data) VALUES (?, ?)
ON CONFLICT (n) DO UPDATE SET data = coalesce(data, excluded.data);

-- name: outcome_get
SELECT result, data FROM outcomes WHERE n = ?;

-- name: outcome_forget_data
UPDATE outcomes SET data = NULL WHERE n = ?;

-- name: outcome_delete
DELETE FROM outcomes WHERE n = ?;

-- name: checkpoint_put
INSERT INTO checkpoints (n, version, body) VALUES (?, ?, ?)
ON CONFLICT (n) DO UPDATE SET version = excluded.version, body = excluded.body
WHERE excluded.version > version;

-- name: checkpoint_get
SELECT body FROM checkpoints WHERE n = ?;

-- name: checkpoint_settled
UPDATE checkpoints SET settled_at = ? WHERE n = ?;

-- name: checkpoint_delete
DELETE FROM checkpoints WHERE n = ?;

-- name: stage_put
INSERT OR REPLACE INTO stages (n, position, name, result, duration_seconds, run, epoch)
VALUES (?, ?, ?, ?, ?, ?, ?);

-- name: stages_get
SELECT position, name, result, duration_seconds, run, epoch FROM stages
WHERE n = ?
ORDER BY position;

-- name: stages_delete
DELETE FROM stages WHERE n = ?;

-- name: event_add
INSERT INTO events (n, version, request, body) VALUES (?, ?, ?, ?);

-- name: event_request
SELECT request FROM events WHERE n = ? AND version = ?;

-- name: event_last_request
SELECT request FROM events WHERE n = ? ORDER BY version DESC LIMIT 1;

-- name: events_get
SELECT body FROM events WHERE n = ? ORDER BY version;

-- name: events_delete
DELETE FROM events WHERE n = ?;
