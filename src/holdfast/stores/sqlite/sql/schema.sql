-- What the file holds. Each step takes it from the version before to its own; a step is never
-- changed once it was released. A task is `tasks.n` everywhere inside: short, and in order.

-- name: v1
PRAGMA application_id = 1215261796;  -- "Hold"
PRAGMA user_version = 1;

CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;

-- The present start of the machine, and what to add to its steady clock (see boot.py).
CREATE TABLE boots (
    n INTEGER PRIMARY KEY,
    boot_id TEXT NOT NULL,
    offset_seconds REAL NOT NULL,
    steady_seconds REAL NOT NULL
) STRICT;

-- The last number of each kind that was given out.
CREATE TABLE sequences (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    task INTEGER NOT NULL,
    ready INTEGER NOT NULL,
    fence INTEGER NOT NULL
) STRICT;
INSERT INTO sequences VALUES (1, 0, 0, 0);

-- `record` is the whole task as JSON; the other columns are what queries look for.
-- Only `lease_until` is newer than the record: renewing a lease leaves the record alone.
CREATE TABLE tasks (
    n INTEGER PRIMARY KEY,
    id TEXT NOT NULL,
    tenant TEXT,
    plan TEXT,
    queue TEXT NOT NULL,
    type TEXT NOT NULL,
    hold INTEGER NOT NULL,
    status TEXT NOT NULL,
    place TEXT NOT NULL,
    version INTEGER NOT NULL,
    error TEXT,
    ready INTEGER,  -- its number in the queue, while it is there
    line INTEGER,  -- its number in its tenant's line, while it is there
    due REAL,
    lease_id TEXT,
    lease_boot INTEGER,
    lease_until REAL,
    settled_at REAL,
    keep_until REAL,
    suspended_at REAL,  -- its last change, while it is suspended
    digest TEXT NOT NULL,
    progress BLOB,
    record BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX tasks_id ON tasks (id);
CREATE INDEX tasks_ready ON tasks (queue, ready) WHERE ready IS NOT NULL;
CREATE INDEX tasks_line ON tasks (tenant, line) WHERE line IS NOT NULL;
CREATE INDEX tasks_resting ON tasks (tenant, n) WHERE hold = 0 AND place IN ('parked', 'later');
CREATE INDEX tasks_due ON tasks (due, n) WHERE due IS NOT NULL;
CREATE INDEX tasks_leased ON tasks (lease_boot, lease_until) WHERE lease_boot IS NOT NULL;
CREATE INDEX tasks_kept ON tasks (keep_until, settled_at) WHERE keep_until IS NOT NULL;
-- Statuses, types and queues are few: any of them is found in one index, group by group.
CREATE INDEX tasks_group ON tasks (status, type, queue, id);
CREATE INDEX tasks_tenant ON tasks (tenant, id) WHERE tenant IS NOT NULL;
CREATE INDEX tasks_plan ON tasks (plan, id) WHERE plan IS NOT NULL;
CREATE INDEX tasks_error ON tasks (error, status, id) WHERE error IS NOT NULL;
-- For those who look after what is suspended; a task that runs well is never in these.
CREATE INDEX tasks_suspended ON tasks (status, suspended_at, id) WHERE suspended_at IS NOT NULL;
CREATE INDEX tasks_suspended_tenant ON tasks (tenant, status, id) WHERE suspended_at IS NOT NULL;

CREATE TABLE payloads (n INTEGER PRIMARY KEY, body BLOB NOT NULL) STRICT;

CREATE TABLE outcomes (n INTEGER PRIMARY KEY, result BLOB, data BLOB) STRICT;

CREATE TABLE checkpoints (
    n INTEGER PRIMARY KEY,
    version INTEGER NOT NULL,
    settled_at REAL,  -- its task's
    body BLOB NOT NULL
) STRICT;
CREATE INDEX checkpoints_settled ON checkpoints (settled_at) WHERE settled_at IS NOT NULL;

CREATE TABLE stages (
    n INTEGER NOT NULL,
    position INTEGER NOT NULL,
    name TEXT NOT NULL,
    result BLOB NOT NULL,
    duration_seconds REAL NOT NULL,
    run INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    PRIMARY KEY (n, position)
) STRICT, WITHOUT ROWID;

-- One row for each version of a record: the request that made it, and its events as a JSON list.
-- In the order of commits: written at the end only, which is half the cost of writing by task.
CREATE TABLE events (
    seq INTEGER PRIMARY KEY,
    n INTEGER NOT NULL,
    version INTEGER NOT NULL,
    request TEXT NOT NULL,
    body BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX events_version ON events (n, version);

-- No tenant is the empty name, which no tenant can have.
CREATE TABLE keys (
    tenant TEXT NOT NULL,
    key TEXT NOT NULL,
    task_id TEXT NOT NULL,
    PRIMARY KEY (tenant, key)
) STRICT, WITHOUT ROWID;

CREATE TABLE tombstones (
    n INTEGER PRIMARY KEY,
    task_id TEXT NOT NULL UNIQUE,
    tenant TEXT,
    key TEXT,
    digest TEXT NOT NULL,
    request TEXT NOT NULL,
    until REAL NOT NULL,
    result BLOB,
    record BLOB NOT NULL
) STRICT;
CREATE INDEX tombstones_until ON tombstones (until);

CREATE TABLE tenants (
    tenant TEXT PRIMARY KEY,
    active INTEGER,
    fence INTEGER NOT NULL,
    waiting INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE workers (
    n INTEGER PRIMARY KEY,
    worker TEXT NOT NULL UNIQUE,
    seen REAL NOT NULL,
    beat BLOB NOT NULL
) STRICT;
CREATE INDEX workers_seen ON workers (seen);

-- The last claim of each worker, to answer a repeat: numbers, fences, whether newer work had run.
CREATE TABLE claims (
    worker TEXT PRIMARY KEY,
    request TEXT NOT NULL,
    handed_out BLOB NOT NULL
) STRICT, WITHOUT ROWID;

-- Numbered without gaps, and cleaned up from the old end only: so a page is found by its number.
CREATE TABLE audits (n INTEGER PRIMARY KEY, at REAL NOT NULL, body BLOB NOT NULL) STRICT;

CREATE TABLE totals (
    queue TEXT NOT NULL,
    place TEXT NOT NULL,
    status TEXT NOT NULL,
    count INTEGER NOT NULL,
    PRIMARY KEY (queue, place, status)
) STRICT, WITHOUT ROWID;

CREATE TABLE moves (
    before TEXT NOT NULL,
    after TEXT NOT NULL,
    count INTEGER NOT NULL,
    dwell_seconds REAL NOT NULL,
    PRIMARY KEY (before, after)
) STRICT, WITHOUT ROWID;

CREATE TABLE refusals (says TEXT PRIMARY KEY, count INTEGER NOT NULL) STRICT, WITHOUT ROWID;
