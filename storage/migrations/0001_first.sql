-- Everything that holt keeps of environments, who may use them, and what is under way.
--
-- SQL that SQLite and PostgreSQL share: TEXT (also for JSON) and BIGINT. Times are microseconds since 1970, durations
-- milliseconds. Every row belongs to an org, directly or through its environment.

CREATE TABLE installation (
  name TEXT PRIMARY KEY,
  value TEXT NOT NULL
);

-- A deleted org stays as a row, so that its environments can still be swept.
CREATE TABLE orgs (
  id TEXT PRIMARY KEY,
  name TEXT NOT NULL,
  created_at BIGINT NOT NULL,
  deleted_at BIGINT
);
CREATE INDEX orgs_listed ON orgs (created_at, id) WHERE deleted_at IS NULL;

CREATE TABLE users (
  id TEXT PRIMARY KEY,
  org_id TEXT NOT NULL REFERENCES orgs (id),
  name TEXT NOT NULL,
  created_at BIGINT NOT NULL
);
CREATE INDEX users_listed ON users (org_id, created_at, id);

CREATE TABLE keys (
  id TEXT PRIMARY KEY,
  org_id TEXT NOT NULL REFERENCES orgs (id),
  principal TEXT NOT NULL,
  name TEXT NOT NULL,
  hash TEXT NOT NULL UNIQUE,
  scopes TEXT NOT NULL, -- JSON array of strings
  created_at BIGINT NOT NULL,
  expires_at BIGINT,
  last_used_at BIGINT
);
CREATE INDEX keys_listed ON keys (org_id, created_at, id);

CREATE TABLE environments (
  id TEXT PRIMARY KEY,
  org_id TEXT NOT NULL REFERENCES orgs (id),
  name TEXT NOT NULL,
  kind TEXT NOT NULL,
  provider TEXT NOT NULL,
  image TEXT,
  limits TEXT NOT NULL, -- JSON object
  network TEXT NOT NULL,
  suspend_after_ms BIGINT,
  destroy_after_ms BIGINT,
  labels TEXT NOT NULL, -- JSON object of strings, as it is answered; environment_labels is what is searched
  created_by TEXT NOT NULL,
  created_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL,
  deleted_at BIGINT
);
-- Holds the kind too, so that a list of one kind passes over the others without reading their rows.
CREATE INDEX environments_listed ON environments (org_id, created_at, id, kind) WHERE deleted_at IS NULL;
CREATE INDEX environments_deleted ON environments (id) WHERE deleted_at IS NOT NULL;

-- Labels of environments that aren't deleted. org_id and created_at stand here again, so that a list filtered by label
-- is one range of one index, in the list's own order.
CREATE TABLE environment_labels (
  environment_id TEXT NOT NULL REFERENCES environments (id),
  name TEXT NOT NULL,
  value TEXT NOT NULL,
  org_id TEXT NOT NULL,
  created_at BIGINT NOT NULL,
  PRIMARY KEY (environment_id, name)
);
CREATE INDEX environment_labels_listed ON environment_labels (org_id, name, value, created_at, environment_id);

-- One row an environment at most (spec 1). No index by status: sweeps walk the primary key in pages, which costs one
-- pass over the table and leaves every state write without a second index to change.
CREATE TABLE instances (
  environment_id TEXT PRIMARY KEY REFERENCES environments (id),
  provider TEXT NOT NULL,
  handle TEXT NOT NULL, -- JSON
  file_system_id TEXT NOT NULL,
  fs_status TEXT NOT NULL,
  status TEXT NOT NULL,
  host_id TEXT NOT NULL,
  boot_id TEXT NOT NULL,
  instance_created_at BIGINT NOT NULL,
  last_used_at BIGINT NOT NULL,
  generation BIGINT NOT NULL,
  epoch BIGINT NOT NULL,
  roots TEXT NOT NULL, -- JSON
  sweep_failed_at BIGINT
);

-- The instance identity that each holder used last (spec 18). `former` is the one before, so that one statement can
-- replace the identity and answer what it replaced.
CREATE TABLE seen (
  environment_id TEXT NOT NULL REFERENCES environments (id),
  holder TEXT NOT NULL,
  identity TEXT NOT NULL,
  former TEXT NOT NULL,
  expires_at BIGINT NOT NULL,
  PRIMARY KEY (environment_id, holder)
);
CREATE INDEX seen_expiry ON seen (expires_at);

-- Outlives its environment: a client polls it after the environment is gone.
CREATE TABLE operations (
  id TEXT PRIMARY KEY,
  org_id TEXT NOT NULL REFERENCES orgs (id),
  environment_id TEXT NOT NULL,
  kind TEXT NOT NULL,
  status TEXT NOT NULL,
  error TEXT NOT NULL,
  created_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL
);
