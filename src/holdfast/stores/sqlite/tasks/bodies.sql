-- Rows are written in sets: each statement takes a JSON list with a row or a number per element.

-- name: payload_get
SELECT payload FROM tasks WHERE n = ?;

-- name: checkpoint_put
INSERT INTO checkpoints (n, version, body)
SELECT value ->> 0, value ->> 1, value ->> 2 FROM jsonb_each(?) WHERE true
ON CONFLICT (n) DO UPDATE SET version = excluded.version, body = excluded.body;

-- name: checkpoint_get
SELECT body, version FROM checkpoints WHERE n = ?;

-- name: checkpoint_settled
UPDATE checkpoints SET settled_at = e.value ->> 1
FROM jsonb_each(?) AS e WHERE checkpoints.n = e.value ->> 0;

-- name: checkpoint_delete
DELETE FROM checkpoints WHERE n IN (SELECT value FROM json_each(?));

-- name: journal_add
INSERT INTO journal (n, version, request, started, events, stage, result, outcome, data)
SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value -> 4, value ->> 5, value ->> 6,
    value ->> 7, value ->> 8
FROM jsonb_each(?);

-- name: journal_request
SELECT request FROM journal WHERE n = ? AND version = ?;

-- name: journal_get
SELECT version, started, events FROM journal WHERE n = ? ORDER BY version;

-- name: events_first
SELECT events FROM tasks WHERE n = ?;

-- name: bodies_get
SELECT stage, result, outcome, data FROM journal
WHERE n = ? AND (stage IS NOT NULL OR outcome IS NOT NULL OR data IS NOT NULL) ORDER BY version;

-- name: outcome_get
SELECT outcome FROM journal WHERE n = ? AND outcome IS NOT NULL ORDER BY version DESC LIMIT 1;

-- name: stages_forget
UPDATE journal SET stage = NULL, result = NULL, data = NULL WHERE n = ?;

-- name: data_replaced
-- Clears the data of the last write before this one that left data, so that a task has one at most.
-- It is the nearest, so the whole history is not searched each time.
UPDATE journal SET data = NULL FROM jsonb_each(?) AS e
WHERE seq = (
    SELECT seq FROM journal AS older
    WHERE older.n = e.value ->> 0 AND older.version < e.value ->> 1 AND older.data IS NOT NULL
    ORDER BY older.version DESC LIMIT 1
);

-- name: data_keep
UPDATE journal SET data = ?2
WHERE seq = (SELECT seq FROM journal WHERE n = ?1 ORDER BY version DESC LIMIT 1)
    AND NOT EXISTS (SELECT 1 FROM journal WHERE n = ?1 AND data IS NOT NULL);

-- name: journal_delete
DELETE FROM journal WHERE n IN (SELECT value FROM json_each(?));
