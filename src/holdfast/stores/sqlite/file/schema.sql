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

-- What a task was submitted with. Not written again, unless a deploy has changed its stages.
CREATE TABLE tasks (
    n INTEGER PRIMARY KEY,
    digest TEXT,  -- if it has a key
    head TEXT NOT NULL,  -- the record as it was submitted
    events TEXT NOT NULL,  -- of its first version
    payload TEXT NOT NULL
) STRICT;

-- How it stands, as of its last write. Handing it out writes a lease and leaves this row alone:
-- while there is a lease, the task is one version on, and its status is the one that follows.
CREATE TABLE states (
    n INTEGER PRIMARY KEY,
    id TEXT NOT NULL,
    tenant TEXT,
    plan TEXT,
    queue TEXT NOT NULL,
    type TEXT NOT NULL,
    hold INTEGER NOT NULL,
    version INTEGER NOT NULL,
    status TEXT NOT NULL,
    since REAL NOT NULL,
    at REAL NOT NULL,
    place TEXT NOT NULL,
    ready INTEGER,  -- its number in the queue, when it was last there
    line INTEGER,  -- its number in its tenant's line, while it is there
    due REAL,
    fence INTEGER NOT NULL,
    settled_at REAL,
    keep_until REAL,
    suspended_at REAL,  -- its last change, while it is suspended
    error TEXT,
    rest TEXT  -- the other fields that decisions change; NULL: as it was submitted
) STRICT;
CREATE UNIQUE INDEX states_id ON states (id);
CREATE INDEX states_tenant ON states (tenant, id) WHERE tenant IS NOT NULL;
CREATE INDEX states_plan ON states (plan, id) WHERE plan IS NOT NULL;
-- Statuses, types and queues are few: any of them is found in one index, group by group.
CREATE INDEX states_group ON states (status, type, queue, id);
CREATE INDEX states_line ON states (tenant, line) WHERE line IS NOT NULL;
CREATE INDEX states_resting ON states (tenant) WHERE hold = 0 AND place IN ('parked', 'later');
CREATE INDEX states_due ON states (due) WHERE due IS NOT NULL;
CREATE INDEX states_kept ON states (keep_until, settled_at) WHERE keep_until IS NOT NULL;
CREATE INDEX states_error ON states (error, status, id) WHERE error IS NOT NULL;
-- For those who look after what is suspended; a task that runs well is never in these.
CREATE INDEX states_suspended ON states (status, suspended_at, id) WHERE suspended_at IS NOT NULL;
CREATE INDEX states_suspended_tenant ON states (tenant, status, id) WHERE suspended_at IS NOT NULL;

CREATE TABLE ready (
    queue TEXT NOT NULL,
    number INTEGER NOT NULL,
    n INTEGER NOT NULL,
    PRIMARY KEY (queue, number)
) STRICT, WITHOUT ROWID;

-- A row per task that runs: there are never more of them than workers have slots.
CREATE TABLE leases (
    n INTEGER PRIMARY KEY,
    version INTEGER NOT NULL,  -- that the task had when it was handed out
    at REAL NOT NULL,
    id TEXT NOT NULL,
    owner TEXT NOT NULL,
    fence INTEGER NOT NULL,
    boot INTEGER NOT NULL,
    until REAL NOT NULL,
    progress TEXT
) STRICT;

CREATE TABLE checkpoints (
    n INTEGER PRIMARY KEY,
    version INTEGER NOT NULL,
    settled_at REAL,  -- its task's
    body TEXT NOT NULL
) STRICT;
CREATE INDEX checkpoints_settled ON checkpoints (settled_at) WHERE settled_at IS NOT NULL;

CREATE VIEW records AS
SELECT s.id, s.n, s.queue, s.version, s.place, s.ready, s.due, s.fence, s.settled_at,
    l.version AS lease_version, l.at AS lease_at, l.id AS lease_id, l.owner, l.fence AS lease_fence,
    l.until, t.head, s.status, s.since, s.at, s.rest
FROM states AS s JOIN tasks AS t ON t.n = s.n LEFT JOIN leases AS l ON l.n = s.n;

-- One row for each write after the first: its request, events, and what a stage left behind.
-- In the order of commits: written at the end only, which is half the cost of writing by task.
CREATE TABLE journal (
    seq INTEGER PRIMARY KEY,
    n INTEGER NOT NULL,
    version INTEGER NOT NULL,
    request TEXT NOT NULL,
    started TEXT,  -- facts of the version before, when that was the task's being handed out
    events TEXT NOT NULL,
    stage TEXT,
    result TEXT,  -- of the stage
    outcome TEXT,  -- the task's result
    data TEXT
) STRICT;
CREATE UNIQUE INDEX journal_version ON journal (n, version);

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
    digest TEXT,
    request TEXT NOT NULL,
    until REAL NOT NULL,
    result TEXT,
    record TEXT NOT NULL
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

-- name: v2
PRAGMA user_version = 2;

-- How often a time was written that somebody may have to wake up for (see writer.py).
ALTER TABLE sequences ADD COLUMN due INTEGER NOT NULL DEFAULT 0;

-- A trigger is in one of two indexes: by its time (the wall's) while nobody has it, else by the end
-- of its lease (the store's clock). One that waits for no time is in neither.
CREATE TABLE triggers (
    id TEXT PRIMARY KEY,
    tenant TEXT,
    version INTEGER NOT NULL,
    status TEXT NOT NULL,
    at REAL,
    boot INTEGER,
    until REAL,
    ended_at REAL,
    keep_until REAL,
    declared INTEGER NOT NULL,
    body TEXT NOT NULL  -- the record
) STRICT;
CREATE INDEX triggers_status ON triggers (status, id);
CREATE INDEX triggers_tenant ON triggers (tenant, id) WHERE tenant IS NOT NULL;
CREATE INDEX triggers_declared ON triggers (id) WHERE declared;
CREATE INDEX triggers_due ON triggers (at, id) WHERE at IS NOT NULL AND until IS NULL;
CREATE INDEX triggers_leased ON triggers (boot, until) WHERE until IS NOT NULL;
CREATE INDEX triggers_kept ON triggers (keep_until, ended_at) WHERE keep_until IS NOT NULL;

-- A plan's lease is in columns alone: to hand it out is no change of the plan.
CREATE TABLE plans (
    n INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    created_at REAL NOT NULL,
    version INTEGER NOT NULL,
    status TEXT NOT NULL,
    due REAL,  -- when to look at it, unless it is leased
    fence INTEGER NOT NULL,
    lease_id TEXT,
    owner TEXT,
    boot INTEGER,
    until REAL,
    settled_at REAL,
    keep_until REAL,
    body TEXT NOT NULL  -- the record
) STRICT;
CREATE INDEX plans_created ON plans (created_at, id);
CREATE INDEX plans_status ON plans (status, created_at, id);
CREATE INDEX plans_due ON plans (due, n) WHERE due IS NOT NULL AND until IS NULL;
CREATE INDEX plans_leased ON plans (boot, until) WHERE until IS NOT NULL;
CREATE INDEX plans_kept ON plans (keep_until, settled_at) WHERE keep_until IS NOT NULL;

-- Away from the record, which is written often, and this once.
CREATE TABLE plan_tasks (n INTEGER PRIMARY KEY, body TEXT NOT NULL) STRICT;

-- Those that do not wait.
CREATE TABLE plan_members (
    n INTEGER NOT NULL,
    number INTEGER NOT NULL,
    state TEXT NOT NULL,
    version INTEGER NOT NULL,
    PRIMARY KEY (n, number)
) STRICT, WITHOUT ROWID;

CREATE TABLE plan_events (
    seq INTEGER PRIMARY KEY,
    n INTEGER NOT NULL,
    version INTEGER NOT NULL,
    events TEXT NOT NULL
) STRICT;
CREATE UNIQUE INDEX plan_events_version ON plan_events (n, version);

-- name: v3
PRAGMA user_version = 3;

-- What is switched off.
CREATE TABLE switches (
    switch TEXT NOT NULL,
    name TEXT NOT NULL,
    at REAL NOT NULL,
    by TEXT NOT NULL,  -- who asked, from where and why
    PRIMARY KEY (switch, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE timings (
    type TEXT NOT NULL,
    stage TEXT NOT NULL,
    outcome TEXT NOT NULL,
    counts TEXT NOT NULL,  -- a number for each span
    total_seconds REAL NOT NULL,
    PRIMARY KEY (type, stage, outcome)
) STRICT, WITHOUT ROWID;

-- By queue and type. What was counted before has neither.
ALTER TABLE moves RENAME TO moves_before;
CREATE TABLE moves (
    queue TEXT NOT NULL,
    type TEXT NOT NULL,
    before TEXT NOT NULL,
    after TEXT NOT NULL,
    count INTEGER NOT NULL,
    dwell_seconds REAL NOT NULL,
    PRIMARY KEY (queue, type, before, after)
) STRICT, WITHOUT ROWID;
INSERT INTO moves SELECT '', '', before, after, count, dwell_seconds FROM moves_before;
DROP TABLE moves_before;

-- Its number and hash make an audit a link of the chain (see `migrating.py` for those that are
-- there). The body has a new name: a process of an older release would not link, and cannot write.
ALTER TABLE audits RENAME COLUMN body TO entry;
ALTER TABLE audits ADD COLUMN hash TEXT NOT NULL DEFAULT '';

-- The head is kept apart from the last link: so it shows when links were cut off at the end.
CREATE TABLE chain (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    base INTEGER NOT NULL,
    base_hash TEXT NOT NULL,
    head INTEGER NOT NULL,
    head_hash TEXT NOT NULL
) STRICT;
INSERT INTO chain VALUES (1, 0, hex(zeroblob(32)), 0, hex(zeroblob(32)));

-- Of tasks that have not settled: they are counted.
CREATE INDEX checkpoints_open ON checkpoints (settled_at) WHERE settled_at IS NULL;
