"""Tables of the store. A change of any of them raises `VERSION` and adds a migration."""

from __future__ import annotations

from typing import Final

VERSION: Final = 4
"""``PRAGMA user_version`` of a store that this code writes."""

APPLICATION_ID: Final = 0x47724F70
"""``PRAGMA application_id``: tells our files from other SQLite files."""

_MACHINE_COSTS: Final = """
CREATE TABLE machine_costs (
  vendor TEXT NOT NULL,         -- these five: MachineKind
  name TEXT NOT NULL,
  simd_bits INTEGER NOT NULL,
  cores INTEGER NOT NULL,
  jaxlib TEXT NOT NULL,
  facts TEXT NOT NULL,          -- JSON object: name of a fact -> measured value, where it differs
  measured INTEGER NOT NULL,    -- facts that were measured, those that do not differ too
  seen REAL NOT NULL,           -- Unix time of the measurement
  PRIMARY KEY (vendor, name, simd_bits, cores, jaxlib)
) WITHOUT ROWID;
"""

_CAPABILITIES: Final = """
CREATE TABLE capabilities (
  jaxlib TEXT NOT NULL,         -- version that was tried
  name TEXT NOT NULL,           -- see graphopt.measure.capabilities.table
  probes INTEGER NOT NULL,      -- version of the probes that tried it
  holds INTEGER NOT NULL,       -- 1: it holds there
  seen REAL NOT NULL,
  PRIMARY KEY (jaxlib, name)
) WITHOUT ROWID;
"""

_QUEUE: Final = """
CREATE TABLE queue (
  id TEXT NOT NULL,             -- digest of the module without labels, see graphopt.store.queue_items
  environment INTEGER NOT NULL REFERENCES environments (id),
  program TEXT NOT NULL,        -- name of the module, for people
  module BLOB NOT NULL,         -- zlib, without labels
  module_bytes INTEGER NOT NULL,
  inputs TEXT NOT NULL,         -- JSON list of [shape, dtype, low, high]
  recorded BLOB,                -- values of the inputs, where the user asked for that
  compile_s REAL NOT NULL,
  processes INTEGER NOT NULL,   -- that compiled it
  calls REAL NOT NULL,          -- in all of them
  first_seen REAL NOT NULL,
  last_seen REAL NOT NULL,
  state TEXT NOT NULL,          -- waiting, running, done, failed
  reason TEXT NOT NULL,
  owner TEXT NOT NULL,          -- of the lease
  lease_until REAL NOT NULL,    -- Unix time
  attempts INTEGER NOT NULL,    -- leases
  call_s REAL,                  -- of XLA's default, estimated until it is tuned
  gain REAL,                    -- share of a call that is saved, estimated until it is tuned
  speedup REAL,
  low REAL,
  high REAL,
  spent_s REAL NOT NULL,        -- of tuning
  PRIMARY KEY (id, environment)
);
"""

_TABLES: Final = """
CREATE TABLE environments (
  id INTEGER PRIMARY KEY,
  machine TEXT NOT NULL,        -- machine_key()
  jaxlib TEXT NOT NULL,         -- version
  options TEXT NOT NULL,        -- XLA flags that change generated code, sorted, one string
  UNIQUE (machine, jaxlib, options)
);
CREATE TABLE kernels (
  key TEXT NOT NULL,            -- digest of the canonical cluster body and its unit
  environment INTEGER NOT NULL REFERENCES environments (id),
  ns REAL NOT NULL,             -- median nanoseconds of one execution
  samples INTEGER NOT NULL,     -- measurements behind it
  features TEXT NOT NULL,       -- JSON list, see graphopt.measure.bank.kernels
  seen REAL NOT NULL,           -- Unix time of the last measurement
  PRIMARY KEY (key, environment)
) WITHOUT ROWID;
CREATE TABLE winners (
  fingerprint TEXT NOT NULL,    -- Graph.fingerprint of the default module
  environment INTEGER NOT NULL REFERENCES environments (id),
  decisions TEXT NOT NULL,      -- JSON, see graphopt.store.encoding; "{}" keeps XLA's default
  program TEXT NOT NULL,        -- what was tuned, for people
  nodes INTEGER NOT NULL,
  default_s REAL NOT NULL,      -- median seconds of XLA's default
  tuned_s REAL NOT NULL,        -- median seconds of the winner, in turn with the default
  speedup REAL NOT NULL,        -- median of paired ratios, with its 95 % interval
  low REAL NOT NULL,
  high REAL NOT NULL,
  evaluations INTEGER NOT NULL, -- candidates measured to find it
  verified INTEGER NOT NULL,    -- 1: results compared with the default's on this machine
  origin TEXT NOT NULL,         -- "tuned here" or "imported"
  seen REAL NOT NULL,
  PRIMARY KEY (fingerprint, environment)
) WITHOUT ROWID;
CREATE TABLE quarantine (
  fingerprint TEXT NOT NULL,
  environment INTEGER NOT NULL REFERENCES environments (id),
  digest TEXT NOT NULL,         -- decisions_digest()
  decisions TEXT NOT NULL,
  reason TEXT NOT NULL,         -- "abort: SIGSEGV", "wrong result", "hang", "memory" ...
  seen REAL NOT NULL,
  PRIMARY KEY (fingerprint, environment, digest)
) WITHOUT ROWID;
CREATE TABLE evaluations (
  fingerprint TEXT NOT NULL,
  environment INTEGER NOT NULL REFERENCES environments (id),
  digest TEXT NOT NULL,
  decisions TEXT NOT NULL,
  ratio REAL,                   -- default time / candidate time; NULL where it failed
  status TEXT NOT NULL,         -- "ok" or why it failed
  method TEXT NOT NULL,         -- what proposed it
  seen REAL NOT NULL,
  PRIMARY KEY (fingerprint, environment, digest)
) WITHOUT ROWID;
CREATE TABLE compile_options (
  program TEXT NOT NULL,        -- digest of the lowered program
  environment INTEGER NOT NULL REFERENCES environments (id),
  options TEXT NOT NULL,        -- JSON object of XLA options; "{}" keeps the defaults
  speedup REAL NOT NULL,
  low REAL NOT NULL,
  high REAL NOT NULL,
  seen REAL NOT NULL,
  PRIMARY KEY (program, environment)
) WITHOUT ROWID;
"""

CREATE: Final = _TABLES + _MACHINE_COSTS + _CAPABILITIES + _QUEUE

MIGRATIONS: Final[dict[int, str]] = {1: _MACHINE_COSTS, 2: _CAPABILITIES, 3: _QUEUE}
"""Version -> statements that lead to the next one."""
