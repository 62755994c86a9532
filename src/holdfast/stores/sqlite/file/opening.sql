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

-- name: copying
PRAGMA journal_mode = OFF;
PRAGMA synchronous = OFF;

-- name: quick_check
PRAGMA quick_check(1);

-- name: application_id
PRAGMA application_id;

-- name: user_version
PRAGMA user_version;

-- name: data_version
PRAGMA data_version;

-- name: first_table
SELECT name FROM sqlite_schema LIMIT 1;

-- name: columns
SELECT sqlite_schema.name, col.name, col.type, col."notnull", col.dflt_value, col.pk
FROM sqlite_schema, pragma_table_xinfo(sqlite_schema.name) AS col
WHERE sqlite_schema.type IN ('table', 'view')
    AND sqlite_schema.name NOT LIKE 'sqlite\_%' ESCAPE '\'
ORDER BY sqlite_schema.name, col.cid;

-- name: indexed_columns
SELECT sqlite_schema.name, idx.name, idx."unique", idx.partial, col.name
FROM sqlite_schema, pragma_index_list(sqlite_schema.name) AS idx,
    pragma_index_info(idx.name) AS col
WHERE sqlite_schema.type = 'table' AND idx.origin = 'c'
ORDER BY sqlite_schema.name, idx.name, col.seqno;

-- name: own_triggers
SELECT name, tbl_name FROM sqlite_schema WHERE type = 'trigger';

-- name: meta_get
SELECT value FROM meta WHERE name = ?;

-- name: holds_all
SELECT name, value FROM meta WHERE name >= 'hold:tenant:' AND name < 'hold:tenant;' ORDER BY name;

-- name: meta_add
INSERT INTO meta (name, value) VALUES (?, ?) ON CONFLICT (name) DO NOTHING;

-- name: meta_put
INSERT INTO meta (name, value) VALUES (?, ?)
ON CONFLICT (name) DO UPDATE SET value = excluded.value;

-- name: meta_remove
DELETE FROM meta WHERE name = ?;

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
