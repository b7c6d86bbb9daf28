-- Written by python -m graphopt.store.schema.page
-- name: create
CREATE TABLE capabilities (
	jaxlib TEXT NOT NULL,
	name TEXT NOT NULL,
	probes INTEGER NOT NULL,
	holds INTEGER NOT NULL,
	seen REAL NOT NULL,
	PRIMARY KEY (jaxlib, name)
)
 WITHOUT ROWID;
CREATE TABLE deliveries (
	id TEXT NOT NULL,
	seen REAL NOT NULL,
	PRIMARY KEY (id)
)
 WITHOUT ROWID;
CREATE TABLE environments (
	id INTEGER NOT NULL,
	machine TEXT NOT NULL,
	jaxlib TEXT NOT NULL,
	options TEXT NOT NULL,
	revision INTEGER DEFAULT 0 NOT NULL,
	PRIMARY KEY (id),
	UNIQUE (machine, jaxlib, options)
);
CREATE TABLE machine_costs (
	vendor TEXT NOT NULL,
	name TEXT NOT NULL,
	simd_bits INTEGER NOT NULL,
	cores INTEGER NOT NULL,
	jaxlib TEXT NOT NULL,
	facts TEXT NOT NULL,
	measured INTEGER NOT NULL,
	seen REAL NOT NULL,
	PRIMARY KEY (vendor, name, simd_bits, cores, jaxlib)
)
 WITHOUT ROWID;
CREATE TABLE compile_options (
	program TEXT NOT NULL,
	environment INTEGER NOT NULL,
	options TEXT NOT NULL,
	speedup REAL NOT NULL,
	low REAL NOT NULL,
	high REAL NOT NULL,
	seen REAL NOT NULL,
	PRIMARY KEY (program, environment),
	FOREIGN KEY(environment) REFERENCES environments (id)
)
 WITHOUT ROWID;
CREATE TABLE evaluations (
	fingerprint TEXT NOT NULL,
	environment INTEGER NOT NULL,
	digest TEXT NOT NULL,
	decisions TEXT NOT NULL,
	ratio REAL,
	status TEXT NOT NULL,
	method TEXT NOT NULL,
	seen REAL NOT NULL,
	PRIMARY KEY (fingerprint, environment, digest),
	FOREIGN KEY(environment) REFERENCES environments (id)
)
 WITHOUT ROWID;
CREATE TABLE kernels (
	"key" TEXT NOT NULL,
	environment INTEGER NOT NULL,
	ns REAL NOT NULL,
	samples INTEGER NOT NULL,
	features TEXT NOT NULL,
	seen REAL NOT NULL,
	PRIMARY KEY ("key", environment),
	FOREIGN KEY(environment) REFERENCES environments (id)
)
 WITHOUT ROWID;
CREATE TABLE quarantine (
	fingerprint TEXT NOT NULL,
	environment INTEGER NOT NULL,
	digest TEXT NOT NULL,
	decisions TEXT NOT NULL,
	reason TEXT NOT NULL,
	seen REAL NOT NULL,
	PRIMARY KEY (fingerprint, environment, digest),
	FOREIGN KEY(environment) REFERENCES environments (id)
)
 WITHOUT ROWID;
CREATE TABLE queue (
	id TEXT NOT NULL,
	environment INTEGER NOT NULL,
	program TEXT NOT NULL,
	module BLOB NOT NULL,
	module_bytes INTEGER NOT NULL,
	inputs TEXT NOT NULL,
	recorded BLOB,
	compile_s REAL NOT NULL,
	processes INTEGER NOT NULL,
	calls REAL NOT NULL,
	first_seen REAL NOT NULL,
	last_seen REAL NOT NULL,
	state TEXT NOT NULL,
	reason TEXT NOT NULL,
	owner TEXT NOT NULL,
	lease_until REAL NOT NULL,
	attempts INTEGER NOT NULL,
	call_s REAL,
	gain REAL,
	speedup REAL,
	low REAL,
	high REAL,
	spent_s REAL NOT NULL,
	PRIMARY KEY (id, environment),
	FOREIGN KEY(environment) REFERENCES environments (id)
);
CREATE TABLE winners (
	fingerprint TEXT NOT NULL,
	environment INTEGER NOT NULL,
	decisions TEXT NOT NULL,
	program TEXT NOT NULL,
	nodes INTEGER NOT NULL,
	default_s REAL NOT NULL,
	tuned_s REAL NOT NULL,
	speedup REAL NOT NULL,
	low REAL NOT NULL,
	high REAL NOT NULL,
	evaluations INTEGER NOT NULL,
	verified INTEGER NOT NULL,
	origin TEXT NOT NULL,
	seen REAL NOT NULL,
	signature TEXT DEFAULT '' NOT NULL,
	PRIMARY KEY (fingerprint, environment),
	FOREIGN KEY(environment) REFERENCES environments (id)
)
 WITHOUT ROWID;
CREATE INDEX winners_by_age ON winners (environment, seen);
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL,
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO alembic_version VALUES ('5')
-- name: add_calls
UPDATE queue SET inputs=:new_inputs, recorded=coalesce(:new_recorded, queue.recorded), compile_s=coalesce(:new_compile_s, queue.compile_s), processes=(queue.processes + :new_processes), calls=(queue.calls + :new_calls), last_seen=:new_last_seen WHERE queue.environment = (SELECT environments.id
FROM environments
WHERE environments.machine = :env_machine AND environments.jaxlib = :env_jaxlib AND environments.options = :env_options) AND queue.id = :item
-- name: add_environment
INSERT INTO environments (machine, jaxlib, options) VALUES (:env_machine, :env_jaxlib, :env_options) ON CONFLICT DO NOTHING
-- name: add_item
INSERT INTO queue (id, environment, program, module, module_bytes, inputs, recorded, compile_s, processes, calls, first_seen, last_seen, state, reason, owner, lease_until, attempts, call_s, gain, speedup, low, high, spent_s) VALUES (:id, (SELECT environments.id
FROM environments
WHERE environments.machine = :env_machine AND environments.jaxlib = :env_jaxlib AND environments.options = :env_options), :program, :module, :module_bytes, :inputs, :recorded, :compile_s, :processes, :calls, :first_seen, :last_seen, :state, :reason, :owner, :lease_until, :attempts, :call_s, :gain, :speedup, :low, :high, :spent_s) ON CONFLICT DO NOTHING
-- name: all_kernels
SELECT kernels."key", kernels.ns, kernels.samples, kernels.features
FROM kernels
WHERE kernels.environment = (SELECT environments.id
FROM environments
WHERE environments.machine = :env_machine AND environments.jaxlib = :env_jaxlib AND environments.options = :env_options) ORDER BY kernels."key"
-- name: all_winners
SELECT CASE WHEN (length(CAST(winners.fingerprint AS BLOB)) <= :most_bytes) THEN winners.fingerprint END AS fingerprint, CASE WHEN (length(CAST(winners.decisions AS BLOB)) <= :most_bytes) THEN winners.decisions END AS decisions, CASE WHEN (length(CAST(winners.program AS BLOB)) <= :most_bytes) THEN winners.program END AS program, winners.nodes, winners.default_s, winners.tuned_s, winners.speedup, winners.low, winners.high, winners.evaluations, winners.verified, CASE WHEN (length(CAST(winners.origin AS BLOB)) <= :most_bytes) THEN winners.origin END AS origin, winners.seen, CASE WHEN (length(CAST(winners.signature AS BLOB)) <= :most_bytes) THEN winners.signature END AS signature
FROM winners
WHERE winners.environment = (SELECT environments.id
FROM environments
WHERE environments.machine = :env_machine AND environments.jaxlib = :env_jaxlib AND environments.options = :env_options) ORDER BY winners.seen DESC, winners.fingerprint
-- name: any_winner
SELECT EXISTS (SELECT *
FROM winners
WHERE winners.environment = (SELECT environments.id
FROM environments
WHERE environments.machine = :env_machine AND environments.jaxlib = :env_jaxlib AND environments.options = :env_options)) AS anon_1
-- name: capabilities
SELECT capabilities.name, capabilities.holds
FROM capabilities
WHERE capabilities.jaxlib = :jaxlib AND capabilities.probes = :probes
-- name: clear_queue
DELETE FROM queue
-- name: costs
SELECT machine_costs.facts, machine_costs.measured, machine_costs.seen
FROM machine_costs
WHERE machine_costs.vendor = :vendor AND machine_costs.name = :name AND machine_costs.simd_bits = :simd_bits AND machine_costs.cores = :cores AND machine_costs.jaxlib = :jaxlib
-- name: environment_id
SELECT environments.id
FROM environments
WHERE environments.machine = :env_machine AND environments.jaxlib = :env_jaxlib AND environments.options = :env_options
-- name: evaluations
SELECT evaluations.decisions, evaluations.ratio
FROM evaluations
WHERE evaluations.fingerprint = :fingerprint AND evaluations.environment = (SELECT environments.id
FROM environments
WHERE environments.machine = :env_machine AND environments.jaxlib = :env_jaxlib AND environments.options = :env_options) AND evaluations.status = 'ok' AND NOT (EXISTS (SELECT *
FROM quarantine
WHERE quarantine.digest = evaluations.digest AND quarantine.fingerprint = evaluations.fingerprint AND quarantine.environment = evaluations.environment)) ORDER BY evaluations.ratio DESC, evaluations.digest
-- name: forget_capabilities
DELETE FROM capabilities WHERE capabilities.jaxlib = :jaxlib
-- name: forget_item
DELETE FROM queue WHERE queue.id = :id AND queue.environment = (SELECT environments.id
FROM environments
WHERE environments.machine = :env_machine AND environments.jaxlib = :env_jaxlib AND environments.options = :env_options)
-- name: kernels_by_key
SELECT kernels."key", kernels.ns
FROM kernels
WHERE kernels.environment = (SELECT environments.id
FROM environments
WHERE environments.machine = :env_machine AND environments.jaxlib = :env_jaxlib AND environments.options = :env_options) AND kernels."key" IN (:key0, :key1, :key2, :key3, :key4, :key5, :key6, :key7, :key8, :key9, :key10, :key11, :key12, :key13, :key14, :key15, :key16, :key17, :key18, :key19, :key20, :key21, :key22, :key23, :key24, :key25, :key26, :key27, :key28, :key29, :key30, :key31, :key32, :key33, :key34, :key35, :key36, :key37, :key38, :key39, :key40, :key41, :key42, :key43, :key44, :key45, :key46, :key47, :key48, :key49, :key50, :key51, :key52, :key53, :key54, :key55, :key56, :key57, :key58, :key59, :key60, :key61, :key62, :key63, :key64, :key65, :key66, :key67, :key68, :key69, :key70, :key71, :key72, :key73, :key74, :key75, :key76, :key77, :key78, :key79, :key80, :key81, :key82, :key83, :key84, :key85, :key86, :key87, :key88, :key89, :key90, :key91, :key92, :key93, :key94, :key95, :key96, :key97, :key98, :key99)
-- name: kernels_state
SELECT count(*) AS count_1, coalesce(sum(kernels.samples), 0) AS coalesce_1, coalesce(max(kernels.seen), 0) AS coalesce_2
FROM kernels
WHERE kernels.environment = (SELECT environments.id
FROM environments
WHERE environments.machine = :env_machine AND environments.jaxlib = :env_jaxlib AND environments.options = :env_options)
-- name: mark_verified
UPDATE winners SET verified=1 WHERE winners.fingerprint = :module AND winners.environment = (SELECT environments.id
FROM environments
WHERE environments.machine = :env_machine AND environments.jaxlib = :env_jaxlib AND environments.options = :env_options)
-- name: options
SELECT CASE WHEN (length(CAST(compile_options.options AS BLOB)) <= :most_bytes) THEN compile_options.options END AS options
FROM compile_options
WHERE compile_options.program = :program AND compile_options.environment = (SELECT environments.id
FROM environments
WHERE environments.machine = :env_machine AND environments.jaxlib = :env_jaxlib AND environments.options = :env_options)
-- name: outcomes
SELECT evaluations.decisions, CASE WHEN (quarantine.digest IS NULL AND evaluations.status = 'ok') THEN evaluations.ratio END AS anon_1
FROM evaluations LEFT OUTER JOIN quarantine ON quarantine.digest = evaluations.digest AND quarantine.fingerprint = evaluations.fingerprint AND quarantine.environment = evaluations.environment
WHERE evaluations.fingerprint = :fingerprint AND evaluations.environment = (SELECT environments.id
FROM environments
WHERE environments.machine = :env_machine AND environments.jaxlib = :env_jaxlib AND environments.options = :env_options) ORDER BY evaluations.digest
-- name: outcomes_elsewhere
SELECT (SELECT here.machine
FROM environments AS here
WHERE here.id = evaluations.environment) AS machine, evaluations.decisions, CASE WHEN (quarantine.digest IS NULL AND evaluations.status = 'ok') THEN evaluations.ratio END AS anon_1
FROM evaluations LEFT OUTER JOIN quarantine ON quarantine.digest = evaluations.digest AND quarantine.fingerprint = evaluations.fingerprint AND quarantine.environment = evaluations.environment
WHERE evaluations.fingerprint = :fingerprint AND evaluations.environment IN (SELECT environments.id
FROM environments
WHERE environments.machine != :env_machine AND environments.jaxlib = :env_jaxlib AND environments.options = :env_options) ORDER BY machine, evaluations.digest
-- name: put_capability
INSERT INTO capabilities (jaxlib, name, probes, holds, seen) VALUES (:jaxlib, :name, :probes, :holds, :seen) ON CONFLICT (jaxlib, name) DO UPDATE SET probes = excluded.probes, holds = excluded.holds, seen = excluded.seen WHERE excluded.seen >= capabilities.seen
-- name: put_costs
INSERT INTO machine_costs (vendor, name, simd_bits, cores, jaxlib, facts, measured, seen) VALUES (:vendor, :name, :simd_bits, :cores, :jaxlib, :facts, :measured, :seen) ON CONFLICT (vendor, name, simd_bits, cores, jaxlib) DO UPDATE SET facts = excluded.facts, measured = excluded.measured, seen = excluded.seen WHERE excluded.seen >= machine_costs.seen
-- name: put_delivery
INSERT INTO deliveries (id, seen) VALUES (:id, :seen) ON CONFLICT DO NOTHING RETURNING id
-- name: put_evaluation
INSERT INTO evaluations (fingerprint, environment, digest, decisions, ratio, status, method, seen) VALUES (:fingerprint, (SELECT environments.id
FROM environments
WHERE environments.machine = :env_machine AND environments.jaxlib = :env_jaxlib AND environments.options = :env_options), :digest, :decisions, :ratio, :status, :method, :seen) ON CONFLICT (fingerprint, environment, digest) DO UPDATE SET decisions = excluded.decisions, ratio = excluded.ratio, status = excluded.status, method = excluded.method, seen = excluded.seen WHERE excluded.seen >= evaluations.seen
-- name: put_kernel
INSERT INTO kernels ("key", environment, ns, samples, features, seen) VALUES (:key, (SELECT environments.id
FROM environments
WHERE environments.machine = :env_machine AND environments.jaxlib = :env_jaxlib AND environments.options = :env_options), :ns, :samples, :features, :seen) ON CONFLICT ("key", environment) DO UPDATE SET ns = CASE WHEN (excluded.ns > 2 * kernels.ns) THEN kernels.ns WHEN (kernels.ns > 2 * excluded.ns) THEN excluded.ns ELSE (kernels.ns * CASE WHEN (kernels.samples < 4 * excluded.samples) THEN kernels.samples ELSE 4 * excluded.samples END + excluded.ns * excluded.samples) / ((CASE WHEN (kernels.samples < 4 * excluded.samples) THEN kernels.samples ELSE 4 * excluded.samples END + excluded.samples) + 0.0) END, samples = (kernels.samples + excluded.samples), features = excluded.features, seen = excluded.seen
-- name: put_options
INSERT INTO compile_options (program, environment, options, speedup, low, high, seen) VALUES (:program, (SELECT environments.id
FROM environments
WHERE environments.machine = :env_machine AND environments.jaxlib = :env_jaxlib AND environments.options = :env_options), :options, :speedup, :low, :high, :seen) ON CONFLICT (program, environment) DO UPDATE SET options = excluded.options, speedup = excluded.speedup, low = excluded.low, high = excluded.high, seen = excluded.seen WHERE excluded.seen >= compile_options.seen
-- name: put_quarantine
INSERT INTO quarantine (fingerprint, environment, digest, decisions, reason, seen) VALUES (:fingerprint, (SELECT environments.id
FROM environments
WHERE environments.machine = :env_machine AND environments.jaxlib = :env_jaxlib AND environments.options = :env_options), :digest, :decisions, :reason, :seen) ON CONFLICT (fingerprint, environment, digest) DO UPDATE SET decisions = excluded.decisions, reason = excluded.reason, seen = excluded.seen WHERE excluded.seen >= quarantine.seen
-- name: put_winner
INSERT INTO winners (fingerprint, environment, decisions, program, nodes, default_s, tuned_s, speedup, low, high, evaluations, verified, origin, seen, signature) VALUES (:fingerprint, (SELECT environments.id
FROM environments
WHERE environments.machine = :env_machine AND environments.jaxlib = :env_jaxlib AND environments.options = :env_options), :decisions, :program, :nodes, :default_s, :tuned_s, :speedup, :low, :high, :evaluations, :verified, :origin, :seen, :signature) ON CONFLICT (fingerprint, environment) DO UPDATE SET decisions = excluded.decisions, program = excluded.program, nodes = excluded.nodes, default_s = excluded.default_s, tuned_s = excluded.tuned_s, speedup = excluded.speedup, low = excluded.low, high = excluded.high, evaluations = excluded.evaluations, verified = excluded.verified, origin = excluded.origin, seen = excluded.seen, signature = excluded.signature WHERE excluded.seen >= winners.seen
-- name: quarantined
SELECT quarantine.digest, quarantine.reason
FROM quarantine
WHERE quarantine.fingerprint = :fingerprint AND quarantine.environment = (SELECT environments.id
FROM environments
WHERE environments.machine = :env_machine AND environments.jaxlib = :env_jaxlib AND environments.options = :env_options)
-- name: queue_ages
SELECT queue.id, length(queue.module) + coalesce(length(queue.recorded), 0) AS anon_1, queue.last_seen
FROM queue
WHERE queue.environment = (SELECT environments.id
FROM environments
WHERE environments.machine = :env_machine AND environments.jaxlib = :env_jaxlib AND environments.options = :env_options) AND queue.state != 'running' ORDER BY queue.last_seen DESC, queue.id
-- name: queue_bytes
SELECT queue.module, queue.recorded
FROM queue
WHERE queue.id = :id AND queue.environment = (SELECT environments.id
FROM environments
WHERE environments.machine = :env_machine AND environments.jaxlib = :env_jaxlib AND environments.options = :env_options)
-- name: queue_count
SELECT count(*) AS count_1
FROM queue
-- name: queue_ids
SELECT queue.id
FROM queue
WHERE queue.environment = (SELECT environments.id
FROM environments
WHERE environments.machine = :env_machine AND environments.jaxlib = :env_jaxlib AND environments.options = :env_options)
-- name: queue_inputs
SELECT CASE WHEN (length(CAST(queue.inputs AS BLOB)) <= :most_bytes) THEN queue.inputs END AS inputs
FROM queue
WHERE queue.id = :id AND queue.environment = (SELECT environments.id
FROM environments
WHERE environments.machine = :env_machine AND environments.jaxlib = :env_jaxlib AND environments.options = :env_options)
-- name: queue_item
SELECT CASE WHEN (length(CAST(queue.id AS BLOB)) <= :most_bytes) THEN queue.id END AS id, CASE WHEN (length(CAST(queue.program AS BLOB)) <= :most_bytes) THEN queue.program END AS program, queue.module_bytes, CASE WHEN (length(CAST(queue.inputs AS BLOB)) <= :most_bytes) THEN queue.inputs END AS inputs, queue.compile_s, queue.processes, queue.calls, queue.first_seen, queue.last_seen, CASE WHEN (length(CAST(queue.state AS BLOB)) <= :most_bytes) THEN queue.state END AS state, CASE WHEN (length(CAST(queue.reason AS BLOB)) <= :most_bytes) THEN queue.reason END AS reason, CASE WHEN (length(CAST(queue.owner AS BLOB)) <= :most_bytes) THEN queue.owner END AS owner, queue.lease_until, queue.attempts, queue.call_s, queue.gain, queue.speedup, queue.low, queue.high, queue.spent_s, CASE WHEN (queue.recorded IS NULL) THEN 0 ELSE 1 END AS anon_1
FROM queue
WHERE queue.id = :id AND queue.environment = (SELECT environments.id
FROM environments
WHERE environments.machine = :env_machine AND environments.jaxlib = :env_jaxlib AND environments.options = :env_options)
-- name: queue_items
SELECT CASE WHEN (length(CAST(queue.id AS BLOB)) <= :most_bytes) THEN queue.id END AS id, CASE WHEN (length(CAST(queue.program AS BLOB)) <= :most_bytes) THEN queue.program END AS program, queue.module_bytes, CASE WHEN (length(CAST(queue.inputs AS BLOB)) <= :most_bytes) THEN queue.inputs END AS inputs, queue.compile_s, queue.processes, queue.calls, queue.first_seen, queue.last_seen, CASE WHEN (length(CAST(queue.state AS BLOB)) <= :most_bytes) THEN queue.state END AS state, CASE WHEN (length(CAST(queue.reason AS BLOB)) <= :most_bytes) THEN queue.reason END AS reason, CASE WHEN (length(CAST(queue.owner AS BLOB)) <= :most_bytes) THEN queue.owner END AS owner, queue.lease_until, queue.attempts, queue.call_s, queue.gain, queue.speedup, queue.low, queue.high, queue.spent_s, CASE WHEN (queue.recorded IS NULL) THEN 0 ELSE 1 END AS anon_1
FROM queue
WHERE queue.environment = (SELECT environments.id
FROM environments
WHERE environments.machine = :env_machine AND environments.jaxlib = :env_jaxlib AND environments.options = :env_options)
-- name: queue_sizes
SELECT length(queue.module) AS length_1, coalesce(length(queue.recorded), 0) AS coalesce_1
FROM queue
WHERE queue.id = :id AND queue.environment = (SELECT environments.id
FROM environments
WHERE environments.machine = :env_machine AND environments.jaxlib = :env_jaxlib AND environments.options = :env_options)
-- name: remove_winner
DELETE FROM winners WHERE winners.fingerprint = :fingerprint AND winners.environment = (SELECT environments.id
FROM environments
WHERE environments.machine = :env_machine AND environments.jaxlib = :env_jaxlib AND environments.options = :env_options)
-- name: revision
SELECT environments.revision
FROM environments
WHERE environments.machine = :env_machine AND environments.jaxlib = :env_jaxlib AND environments.options = :env_options
-- name: set_revision
UPDATE environments SET revision=:number WHERE environments.machine = :env_machine AND environments.jaxlib = :env_jaxlib AND environments.options = :env_options
-- name: winner
SELECT CASE WHEN (length(CAST(winners.fingerprint AS BLOB)) <= :most_bytes) THEN winners.fingerprint END AS fingerprint, CASE WHEN (length(CAST(winners.decisions AS BLOB)) <= :most_bytes) THEN winners.decisions END AS decisions, CASE WHEN (length(CAST(winners.program AS BLOB)) <= :most_bytes) THEN winners.program END AS program, winners.nodes, winners.default_s, winners.tuned_s, winners.speedup, winners.low, winners.high, winners.evaluations, winners.verified, CASE WHEN (length(CAST(winners.origin AS BLOB)) <= :most_bytes) THEN winners.origin END AS origin, winners.seen, CASE WHEN (length(CAST(winners.signature AS BLOB)) <= :most_bytes) THEN winners.signature END AS signature
FROM winners
WHERE winners.fingerprint = :fingerprint AND winners.environment = (SELECT environments.id
FROM environments
WHERE environments.machine = :env_machine AND environments.jaxlib = :env_jaxlib AND environments.options = :env_options)
-- name: winners_changed
UPDATE environments SET revision=(environments.revision + 1) WHERE environments.machine = :env_machine AND environments.jaxlib = :env_jaxlib AND environments.options = :env_options
