-- name: new_file
PRAGMA auto_vacuum = INCREMENTAL;

-- name: writing
PRAGMA journal_mode = WAL;
PRAGMA synchronous = FULL;
PRAGMA cache_size = -32768;
PRAGMA journal_size_limit = 67108864;
PRAGMA wal_autocheckpoint = 4000;
PRAGMA temp_store = MEMORY;

-- name: reading
PRAGMA query_only = 1;
PRAGMA cache_size = -8192;

-- name: application_id
PRAGMA application_id;

-- name: user_version
PRAGMA user_version;

-- name: data_version
PRAGMA data_version;

-- name: first_table
SELECT name FROM sqlite_schema LIMIT 1;

-- name: name_value
SELECT value FROM meta WHERE name = ?;

-- name: name_set
INSERT INTO meta (name, value) VALUES (?, ?);

-- name: boot_last
SELECT n, boot_id, offset_seconds, steady_seconds FROM boots WHERE n > 0 ORDER BY n DESC LIMIT 1;

-- name: boot_add
INSERT INTO boots (n, boot_id, offset_seconds, steady_seconds) VALUES (?, ?, ?, ?);

-- name: boot_seen
UPDATE boots SET steady_seconds = ? WHERE n = ?;

-- name: boot_forget
DELETE FROM boots WHERE n < ?;

-- name: begin_writing
BEGIN IMMEDIATE;

-- name: begin_reading
BEGIN;

-- name: commit
COMMIT;

-- name: roll_back
ROLLBACK;

-- name: give_pages_back
PRAGMA incremental_vacuum(2000);

-- name: shrink_log
PRAGMA wal_checkpoint(TRUNCATE);
