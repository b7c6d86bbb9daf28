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
SELECT found."key", found.ns, found.samples, found.features, found.there
FROM (SELECT CASE WHEN (length(CAST(kernels."key" AS BLOB)) <= :most_bytes) THEN kernels."key" END AS "key", CASE WHEN (typeof(kernels.ns) = 'text') THEN substr(kernels.ns, 1, 40) WHEN (typeof(kernels.ns) = 'blob') THEN 'no number' ELSE kernels.ns END AS ns, CASE WHEN (typeof(kernels.samples) = 'text') THEN substr(kernels.samples, 1, 40) WHEN (typeof(kernels.samples) = 'blob') THEN 'no number' ELSE kernels.samples END AS samples, CASE WHEN (length(CAST(kernels.features AS BLOB)) <= :most_bytes) THEN kernels.features END AS features, row_number() OVER (ORDER BY kernels."key") AS number, sum(0 + coalesce(length(CAST(CASE WHEN (length(CAST(kernels."key" AS BLOB)) <= :most_bytes) THEN kernels."key" END AS BLOB)), 0) + coalesce(length(CAST(CASE WHEN (length(CAST(kernels.features AS BLOB)) <= :most_bytes) THEN kernels.features END AS BLOB)), 0)) OVER (ORDER BY kernels."key" ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS upto, count(*) OVER () AS there
FROM kernels
WHERE kernels.environment = (SELECT environments.id
FROM environments
WHERE environments.machine = :env_machine AND environments.jaxlib = :env_jaxlib AND environments.options = :env_options)) AS found
WHERE found.upto <= :most_total AND found.number <= :most_rows ORDER BY found.number
-- name: all_winners
SELECT found.fingerprint, found.decisions, found.program, found.nodes, found.default_s, found.tuned_s, found.speedup, found.low, found.high, found.evaluations, found.verified, found.origin, found.seen, found.signature, found.there
FROM (SELECT CASE WHEN (length(CAST(winners.fingerprint AS BLOB)) <= :most_bytes) THEN winners.fingerprint END AS fingerprint, CASE WHEN (length(CAST(winners.decisions AS BLOB)) <= :most_bytes) THEN winners.decisions END AS decisions, CASE WHEN (length(CAST(winners.program AS BLOB)) <= :most_bytes) THEN winners.program END AS program, CASE WHEN (typeof(winners.nodes) = 'text') THEN substr(winners.nodes, 1, 40) WHEN (typeof(winners.nodes) = 'blob') THEN 'no number' ELSE winners.nodes END AS nodes, CASE WHEN (typeof(winners.default_s) = 'text') THEN substr(winners.default_s, 1, 40) WHEN (typeof(winners.default_s) = 'blob') THEN 'no number' ELSE winners.default_s END AS default_s, CASE WHEN (typeof(winners.tuned_s) = 'text') THEN substr(winners.tuned_s, 1, 40) WHEN (typeof(winners.tuned_s) = 'blob') THEN 'no number' ELSE winners.tuned_s END AS tuned_s, CASE WHEN (typeof(winners.speedup) = 'text') THEN substr(winners.speedup, 1, 40) WHEN (typeof(winners.speedup) = 'blob') THEN 'no number' ELSE winners.speedup END AS speedup, CASE WHEN (typeof(winners.low) = 'text') THEN substr(winners.low, 1, 40) WHEN (typeof(winners.low) = 'blob') THEN 'no number' ELSE winners.low END AS low, CASE WHEN (typeof(winners.high) = 'text') THEN substr(winners.high, 1, 40) WHEN (typeof(winners.high) = 'blob') THEN 'no number' ELSE winners.high END AS high, CASE WHEN (typeof(winners.evaluations) = 'text') THEN substr(winners.evaluations, 1, 40) WHEN (typeof(winners.evaluations) = 'blob') THEN 'no number' ELSE winners.evaluations END AS evaluations, CASE WHEN (typeof(winners.verified) = 'text') THEN substr(winners.verified, 1, 40) WHEN (typeof(winners.verified) = 'blob') THEN 'no number' ELSE winners.verified END AS verified, CASE WHEN (length(CAST(winners.origin AS BLOB)) <= :most_bytes) THEN winners.origin END AS origin, CASE WHEN (typeof(winners.seen) = 'text') THEN substr(winners.seen, 1, 40) WHEN (typeof(winners.seen) = 'blob') THEN 'no number' ELSE winners.seen END AS seen, CASE WHEN (length(CAST(winners.signature AS BLOB)) <= :most_bytes) THEN winners.signature END AS signature, row_number() OVER (ORDER BY winners.seen DESC, winners.fingerprint) AS number, sum(0 + coalesce(length(CAST(CASE WHEN (length(CAST(winners.fingerprint AS BLOB)) <= :most_bytes) THEN winners.fingerprint END AS BLOB)), 0) + coalesce(length(CAST(CASE WHEN (length(CAST(winners.decisions AS BLOB)) <= :most_bytes) THEN winners.decisions END AS BLOB)), 0) + coalesce(length(CAST(CASE WHEN (length(CAST(winners.program AS BLOB)) <= :most_bytes) THEN winners.program END AS BLOB)), 0) + coalesce(length(CAST(CASE WHEN (length(CAST(winners.origin AS BLOB)) <= :most_bytes) THEN winners.origin END AS BLOB)), 0) + coalesce(length(CAST(CASE WHEN (length(CAST(winners.signature AS BLOB)) <= :most_bytes) THEN winners.signature END AS BLOB)), 0)) OVER (ORDER BY winners.seen DESC, winners.fingerprint ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS upto, count(*) OVER () AS there
FROM winners
WHERE winners.environment = (SELECT environments.id
FROM environments
WHERE environments.machine = :env_machine AND environments.jaxlib = :env_jaxlib AND environments.options = :env_options)) AS found
WHERE found.upto <= :most_total AND found.number <= :most_rows ORDER BY found.number
-- name: any_winner
SELECT EXISTS (SELECT *
FROM winners
WHERE winners.environment = (SELECT environments.id
FROM environments
WHERE environments.machine = :env_machine AND environments.jaxlib = :env_jaxlib AND environments.options = :env_options)) AS anon_1
-- name: capabilities
SELECT found.name, found.holds, found.there
FROM (SELECT CASE WHEN (length(CAST(capabilities.name AS BLOB)) <= :most_bytes) THEN capabilities.name END AS name, CASE WHEN (typeof(capabilities.holds) = 'text') THEN substr(capabilities.holds, 1, 40) WHEN (typeof(capabilities.holds) = 'blob') THEN 'no number' ELSE capabilities.holds END AS holds, row_number() OVER (ORDER BY capabilities.name) AS number, sum(0 + coalesce(length(CAST(CASE WHEN (length(CAST(capabilities.name AS BLOB)) <= :most_bytes) THEN capabilities.name END AS BLOB)), 0)) OVER (ORDER BY capabilities.name ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS upto, count(*) OVER () AS there
FROM capabilities
WHERE capabilities.jaxlib = :jaxlib AND capabilities.probes = :probes) AS found
WHERE found.upto <= :most_total AND found.number <= :most_rows ORDER BY found.number
-- name: clear_queue
DELETE FROM queue
-- name: costs
SELECT CASE WHEN (length(CAST(machine_costs.facts AS BLOB)) <= :most_bytes) THEN machine_costs.facts END AS facts, CASE WHEN (typeof(machine_costs.measured) = 'text') THEN substr(machine_costs.measured, 1, 40) WHEN (typeof(machine_costs.measured) = 'blob') THEN 'no number' ELSE machine_costs.measured END AS measured, CASE WHEN (typeof(machine_costs.seen) = 'text') THEN substr(machine_costs.seen, 1, 40) WHEN (typeof(machine_costs.seen) = 'blob') THEN 'no number' ELSE machine_costs.seen END AS seen
FROM machine_costs
WHERE machine_costs.vendor = :vendor AND machine_costs.name = :name AND machine_costs.simd_bits = :simd_bits AND machine_costs.cores = :cores AND machine_costs.jaxlib = :jaxlib
-- name: environment_id
SELECT environments.id
FROM environments
WHERE environments.machine = :env_machine AND environments.jaxlib = :env_jaxlib AND environments.options = :env_options
-- name: evaluations
SELECT found.decisions, found.ratio, found.there
FROM (SELECT CASE WHEN (length(CAST(evaluations.decisions AS BLOB)) <= :most_bytes) THEN evaluations.decisions END AS decisions, CASE WHEN (typeof(evaluations.ratio) = 'text') THEN substr(evaluations.ratio, 1, 40) WHEN (typeof(evaluations.ratio) = 'blob') THEN 'no number' ELSE evaluations.ratio END AS ratio, row_number() OVER (ORDER BY evaluations.ratio DESC, evaluations.digest) AS number, sum(0 + coalesce(length(CAST(CASE WHEN (length(CAST(evaluations.decisions AS BLOB)) <= :most_bytes) THEN evaluations.decisions END AS BLOB)), 0)) OVER (ORDER BY evaluations.ratio DESC, evaluations.digest ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS upto, count(*) OVER () AS there
FROM evaluations
WHERE evaluations.fingerprint = :fingerprint AND evaluations.environment = (SELECT environments.id
FROM environments
WHERE environments.machine = :env_machine AND environments.jaxlib = :env_jaxlib AND environments.options = :env_options) AND evaluations.status = 'ok' AND NOT (EXISTS (SELECT *
FROM quarantine
WHERE quarantine.digest = evaluations.digest AND quarantine.fingerprint = evaluations.fingerprint AND quarantine.environment = evaluations.environment))) AS found
WHERE found.upto <= :most_total AND found.number <= :most_rows ORDER BY found.number
-- name: forget_capabilities
DELETE FROM capabilities WHERE capabilities.jaxlib = :jaxlib
-- name: forget_item
DELETE FROM queue WHERE queue.id = :id AND queue.environment = (SELECT environments.id
FROM environments
WHERE environments.machine = :env_machine AND environments.jaxlib = :env_jaxlib AND environments.options = :env_options)
-- name: kernels_by_key
SELECT CASE WHEN (length(CAST(kernels."key" AS BLOB)) <= :most_bytes) THEN kernels."key" END AS "key", CASE WHEN (typeof(kernels.ns) = 'text') THEN substr(kernels.ns, 1, 40) WHEN (typeof(kernels.ns) = 'blob') THEN 'no number' ELSE kernels.ns END AS ns
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
SELECT found.decisions, found.ratio, found.there
FROM (SELECT CASE WHEN (length(CAST(evaluations.decisions AS BLOB)) <= :most_bytes) THEN evaluations.decisions END AS decisions, CASE WHEN (quarantine.digest IS NULL AND evaluations.status = 'ok') THEN CASE WHEN (typeof(evaluations.ratio) = 'text') THEN substr(evaluations.ratio, 1, 40) WHEN (typeof(evaluations.ratio) = 'blob') THEN 'no number' ELSE evaluations.ratio END END AS ratio, row_number() OVER (ORDER BY evaluations.digest) AS number, sum(0 + coalesce(length(CAST(CASE WHEN (length(CAST(evaluations.decisions AS BLOB)) <= :most_bytes) THEN evaluations.decisions END AS BLOB)), 0)) OVER (ORDER BY evaluations.digest ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS upto, count(*) OVER () AS there
FROM evaluations LEFT OUTER JOIN quarantine ON quarantine.digest = evaluations.digest AND quarantine.fingerprint = evaluations.fingerprint AND quarantine.environment = evaluations.environment
WHERE evaluations.fingerprint = :fingerprint AND evaluations.environment = (SELECT environments.id
FROM environments
WHERE environments.machine = :env_machine AND environments.jaxlib = :env_jaxlib AND environments.options = :env_options)) AS found
WHERE found.upto <= :most_total AND found.number <= :most_rows ORDER BY found.number
-- name: outcomes_elsewhere
SELECT found.machine, found.decisions, found.ratio, found.there
FROM (SELECT CASE WHEN (length(CAST((SELECT here.machine
FROM environments AS here
WHERE here.id = evaluations.environment) AS BLOB)) <= :most_bytes) THEN (SELECT here.machine
FROM environments AS here
WHERE here.id = evaluations.environment) END AS machine, CASE WHEN (length(CAST(evaluations.decisions AS BLOB)) <= :most_bytes) THEN evaluations.decisions END AS decisions, CASE WHEN (quarantine.digest IS NULL AND evaluations.status = 'ok') THEN CASE WHEN (typeof(evaluations.ratio) = 'text') THEN substr(evaluations.ratio, 1, 40) WHEN (typeof(evaluations.ratio) = 'blob') THEN 'no number' ELSE evaluations.ratio END END AS ratio, row_number() OVER (ORDER BY CASE WHEN (length(CAST((SELECT here.machine
FROM environments AS here
WHERE here.id = evaluations.environment) AS BLOB)) <= :most_bytes) THEN (SELECT here.machine
FROM environments AS here
WHERE here.id = evaluations.environment) END, evaluations.digest) AS number, sum(0 + coalesce(length(CAST(CASE WHEN (length(CAST((SELECT here.machine
FROM environments AS here
WHERE here.id = evaluations.environment) AS BLOB)) <= :most_bytes) THEN (SELECT here.machine
FROM environments AS here
WHERE here.id = evaluations.environment) END AS BLOB)), 0) + coalesce(length(CAST(CASE WHEN (length(CAST(evaluations.decisions AS BLOB)) <= :most_bytes) THEN evaluations.decisions END AS BLOB)), 0)) OVER (ORDER BY CASE WHEN (length(CAST((SELECT here.machine
FROM environments AS here
WHERE here.id = evaluations.environment) AS BLOB)) <= :most_bytes) THEN (SELECT here.machine
FROM environments AS here
WHERE here.id = evaluations.environment) END, evaluations.digest ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS upto, count(*) OVER () AS there
FROM evaluations LEFT OUTER JOIN quarantine ON quarantine.digest = evaluations.digest AND quarantine.fingerprint = evaluations.fingerprint AND quarantine.environment = evaluations.environment
WHERE evaluations.fingerprint = :fingerprint AND evaluations.environment IN (SELECT environments.id
FROM environments
WHERE environments.machine != :env_machine AND environments.jaxlib = :env_jaxlib AND environments.options = :env_options)) AS found
WHERE found.upto <= :most_total AND found.number <= :most_rows ORDER BY found.number
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
SELECT found.digest, found.reason, found.there
FROM (SELECT CASE WHEN (length(CAST(quarantine.digest AS BLOB)) <= :most_bytes) THEN quarantine.digest END AS digest, CASE WHEN (length(CAST(quarantine.reason AS BLOB)) <= :most_bytes) THEN quarantine.reason END AS reason, row_number() OVER (ORDER BY quarantine.seen DESC, quarantine.digest) AS number, sum(0 + coalesce(length(CAST(CASE WHEN (length(CAST(quarantine.digest AS BLOB)) <= :most_bytes) THEN quarantine.digest END AS BLOB)), 0) + coalesce(length(CAST(CASE WHEN (length(CAST(quarantine.reason AS BLOB)) <= :most_bytes) THEN quarantine.reason END AS BLOB)), 0)) OVER (ORDER BY quarantine.seen DESC, quarantine.digest ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS upto, count(*) OVER () AS there
FROM quarantine
WHERE quarantine.fingerprint = :fingerprint AND quarantine.environment = (SELECT environments.id
FROM environments
WHERE environments.machine = :env_machine AND environments.jaxlib = :env_jaxlib AND environments.options = :env_options)) AS found
WHERE found.upto <= :most_total AND found.number <= :most_rows ORDER BY found.number
-- name: queue_ages
SELECT found.id, found.bytes, found.last_seen, found.there
FROM (SELECT CASE WHEN (length(CAST(queue.id AS BLOB)) <= :most_bytes) THEN queue.id END AS id, length(CAST(queue.module AS BLOB)) + coalesce(length(CAST(queue.recorded AS BLOB)), 0) AS bytes, CASE WHEN (typeof(queue.last_seen) = 'text') THEN substr(queue.last_seen, 1, 40) WHEN (typeof(queue.last_seen) = 'blob') THEN 'no number' ELSE queue.last_seen END AS last_seen, row_number() OVER (ORDER BY queue.last_seen DESC, queue.id) AS number, sum(0 + coalesce(length(CAST(CASE WHEN (length(CAST(queue.id AS BLOB)) <= :most_bytes) THEN queue.id END AS BLOB)), 0)) OVER (ORDER BY queue.last_seen DESC, queue.id ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS upto, count(*) OVER () AS there
FROM queue
WHERE queue.environment = (SELECT environments.id
FROM environments
WHERE environments.machine = :env_machine AND environments.jaxlib = :env_jaxlib AND environments.options = :env_options) AND queue.state != 'running') AS found
WHERE found.upto <= :most_total AND found.number <= :most_rows ORDER BY found.number
-- name: queue_bytes
SELECT CASE WHEN (length(CAST(queue.module AS BLOB)) <= :most_module) THEN queue.module END AS anon_1, CASE WHEN (length(CAST(queue.recorded AS BLOB)) <= :most_recorded) THEN queue.recorded END AS anon_2
FROM queue
WHERE queue.id = :id AND queue.environment = (SELECT environments.id
FROM environments
WHERE environments.machine = :env_machine AND environments.jaxlib = :env_jaxlib AND environments.options = :env_options)
-- name: queue_count
SELECT count(*) AS count_1
FROM queue
-- name: queue_ids
SELECT found.id, found.there
FROM (SELECT CASE WHEN (length(CAST(queue.id AS BLOB)) <= :most_bytes) THEN queue.id END AS id, row_number() OVER (ORDER BY queue.last_seen DESC, queue.id) AS number, sum(0 + coalesce(length(CAST(CASE WHEN (length(CAST(queue.id AS BLOB)) <= :most_bytes) THEN queue.id END AS BLOB)), 0)) OVER (ORDER BY queue.last_seen DESC, queue.id ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS upto, count(*) OVER () AS there
FROM queue
WHERE queue.environment = (SELECT environments.id
FROM environments
WHERE environments.machine = :env_machine AND environments.jaxlib = :env_jaxlib AND environments.options = :env_options)) AS found
WHERE found.upto <= :most_total AND found.number <= :most_rows ORDER BY found.number
-- name: queue_inputs
SELECT CASE WHEN (length(CAST(queue.inputs AS BLOB)) <= :most_bytes) THEN queue.inputs END AS inputs
FROM queue
WHERE queue.id = :id AND queue.environment = (SELECT environments.id
FROM environments
WHERE environments.machine = :env_machine AND environments.jaxlib = :env_jaxlib AND environments.options = :env_options)
-- name: queue_item
SELECT CASE WHEN (length(CAST(queue.id AS BLOB)) <= :most_bytes) THEN queue.id END AS id, CASE WHEN (length(CAST(queue.program AS BLOB)) <= :most_bytes) THEN queue.program END AS program, CASE WHEN (typeof(queue.module_bytes) = 'text') THEN substr(queue.module_bytes, 1, 40) WHEN (typeof(queue.module_bytes) = 'blob') THEN 'no number' ELSE queue.module_bytes END AS module_bytes, CASE WHEN (length(CAST(queue.inputs AS BLOB)) <= :most_bytes) THEN queue.inputs END AS inputs, CASE WHEN (typeof(queue.compile_s) = 'text') THEN substr(queue.compile_s, 1, 40) WHEN (typeof(queue.compile_s) = 'blob') THEN 'no number' ELSE queue.compile_s END AS compile_s, CASE WHEN (typeof(queue.processes) = 'text') THEN substr(queue.processes, 1, 40) WHEN (typeof(queue.processes) = 'blob') THEN 'no number' ELSE queue.processes END AS processes, CASE WHEN (typeof(queue.calls) = 'text') THEN substr(queue.calls, 1, 40) WHEN (typeof(queue.calls) = 'blob') THEN 'no number' ELSE queue.calls END AS calls, CASE WHEN (typeof(queue.first_seen) = 'text') THEN substr(queue.first_seen, 1, 40) WHEN (typeof(queue.first_seen) = 'blob') THEN 'no number' ELSE queue.first_seen END AS first_seen, CASE WHEN (typeof(queue.last_seen) = 'text') THEN substr(queue.last_seen, 1, 40) WHEN (typeof(queue.last_seen) = 'blob') THEN 'no number' ELSE queue.last_seen END AS last_seen, CASE WHEN (length(CAST(queue.state AS BLOB)) <= :most_bytes) THEN queue.state END AS state, CASE WHEN (length(CAST(queue.reason AS BLOB)) <= :most_bytes) THEN queue.reason END AS reason, CASE WHEN (length(CAST(queue.owner AS BLOB)) <= :most_bytes) THEN queue.owner END AS owner, CASE WHEN (typeof(queue.lease_until) = 'text') THEN substr(queue.lease_until, 1, 40) WHEN (typeof(queue.lease_until) = 'blob') THEN 'no number' ELSE queue.lease_until END AS lease_until, CASE WHEN (typeof(queue.attempts) = 'text') THEN substr(queue.attempts, 1, 40) WHEN (typeof(queue.attempts) = 'blob') THEN 'no number' ELSE queue.attempts END AS attempts, CASE WHEN (typeof(queue.call_s) = 'text') THEN substr(queue.call_s, 1, 40) WHEN (typeof(queue.call_s) = 'blob') THEN 'no number' ELSE queue.call_s END AS call_s, CASE WHEN (typeof(queue.gain) = 'text') THEN substr(queue.gain, 1, 40) WHEN (typeof(queue.gain) = 'blob') THEN 'no number' ELSE queue.gain END AS gain, CASE WHEN (typeof(queue.speedup) = 'text') THEN substr(queue.speedup, 1, 40) WHEN (typeof(queue.speedup) = 'blob') THEN 'no number' ELSE queue.speedup END AS speedup, CASE WHEN (typeof(queue.low) = 'text') THEN substr(queue.low, 1, 40) WHEN (typeof(queue.low) = 'blob') THEN 'no number' ELSE queue.low END AS low, CASE WHEN (typeof(queue.high) = 'text') THEN substr(queue.high, 1, 40) WHEN (typeof(queue.high) = 'blob') THEN 'no number' ELSE queue.high END AS high, CASE WHEN (typeof(queue.spent_s) = 'text') THEN substr(queue.spent_s, 1, 40) WHEN (typeof(queue.spent_s) = 'blob') THEN 'no number' ELSE queue.spent_s END AS spent_s, CASE WHEN (queue.recorded IS NULL) THEN 0 ELSE 1 END AS has_values
FROM queue
WHERE queue.id = :id AND queue.environment = (SELECT environments.id
FROM environments
WHERE environments.machine = :env_machine AND environments.jaxlib = :env_jaxlib AND environments.options = :env_options)
-- name: queue_items
SELECT found.id, found.program, found.module_bytes, found.inputs, found.compile_s, found.processes, found.calls, found.first_seen, found.last_seen, found.state, found.reason, found.owner, found.lease_until, found.attempts, found.call_s, found.gain, found.speedup, found.low, found.high, found.spent_s, found.has_values, found.there
FROM (SELECT CASE WHEN (length(CAST(queue.id AS BLOB)) <= :most_bytes) THEN queue.id END AS id, CASE WHEN (length(CAST(queue.program AS BLOB)) <= :most_bytes) THEN queue.program END AS program, CASE WHEN (typeof(queue.module_bytes) = 'text') THEN substr(queue.module_bytes, 1, 40) WHEN (typeof(queue.module_bytes) = 'blob') THEN 'no number' ELSE queue.module_bytes END AS module_bytes, CASE WHEN (length(CAST(queue.inputs AS BLOB)) <= :most_bytes) THEN queue.inputs END AS inputs, CASE WHEN (typeof(queue.compile_s) = 'text') THEN substr(queue.compile_s, 1, 40) WHEN (typeof(queue.compile_s) = 'blob') THEN 'no number' ELSE queue.compile_s END AS compile_s, CASE WHEN (typeof(queue.processes) = 'text') THEN substr(queue.processes, 1, 40) WHEN (typeof(queue.processes) = 'blob') THEN 'no number' ELSE queue.processes END AS processes, CASE WHEN (typeof(queue.calls) = 'text') THEN substr(queue.calls, 1, 40) WHEN (typeof(queue.calls) = 'blob') THEN 'no number' ELSE queue.calls END AS calls, CASE WHEN (typeof(queue.first_seen) = 'text') THEN substr(queue.first_seen, 1, 40) WHEN (typeof(queue.first_seen) = 'blob') THEN 'no number' ELSE queue.first_seen END AS first_seen, CASE WHEN (typeof(queue.last_seen) = 'text') THEN substr(queue.last_seen, 1, 40) WHEN (typeof(queue.last_seen) = 'blob') THEN 'no number' ELSE queue.last_seen END AS last_seen, CASE WHEN (length(CAST(queue.state AS BLOB)) <= :most_bytes) THEN queue.state END AS state, CASE WHEN (length(CAST(queue.reason AS BLOB)) <= :most_bytes) THEN queue.reason END AS reason, CASE WHEN (length(CAST(queue.owner AS BLOB)) <= :most_bytes) THEN queue.owner END AS owner, CASE WHEN (typeof(queue.lease_until) = 'text') THEN substr(queue.lease_until, 1, 40) WHEN (typeof(queue.lease_until) = 'blob') THEN 'no number' ELSE queue.lease_until END AS lease_until, CASE WHEN (typeof(queue.attempts) = 'text') THEN substr(queue.attempts, 1, 40) WHEN (typeof(queue.attempts) = 'blob') THEN 'no number' ELSE queue.attempts END AS attempts, CASE WHEN (typeof(queue.call_s) = 'text') THEN substr(queue.call_s, 1, 40) WHEN (typeof(queue.call_s) = 'blob') THEN 'no number' ELSE queue.call_s END AS call_s, CASE WHEN (typeof(queue.gain) = 'text') THEN substr(queue.gain, 1, 40) WHEN (typeof(queue.gain) = 'blob') THEN 'no number' ELSE queue.gain END AS gain, CASE WHEN (typeof(queue.speedup) = 'text') THEN substr(queue.speedup, 1, 40) WHEN (typeof(queue.speedup) = 'blob') THEN 'no number' ELSE queue.speedup END AS speedup, CASE WHEN (typeof(queue.low) = 'text') THEN substr(queue.low, 1, 40) WHEN (typeof(queue.low) = 'blob') THEN 'no number' ELSE queue.low END AS low, CASE WHEN (typeof(queue.high) = 'text') THEN substr(queue.high, 1, 40) WHEN (typeof(queue.high) = 'blob') THEN 'no number' ELSE queue.high END AS high, CASE WHEN (typeof(queue.spent_s) = 'text') THEN substr(queue.spent_s, 1, 40) WHEN (typeof(queue.spent_s) = 'blob') THEN 'no number' ELSE queue.spent_s END AS spent_s, CASE WHEN (queue.recorded IS NULL) THEN 0 ELSE 1 END AS has_values, row_number() OVER (ORDER BY queue.last_seen DESC, queue.id) AS number, sum(0 + coalesce(length(CAST(CASE WHEN (length(CAST(queue.id AS BLOB)) <= :most_bytes) THEN queue.id END AS BLOB)), 0) + coalesce(length(CAST(CASE WHEN (length(CAST(queue.program AS BLOB)) <= :most_bytes) THEN queue.program END AS BLOB)), 0) + coalesce(length(CAST(CASE WHEN (length(CAST(queue.inputs AS BLOB)) <= :most_bytes) THEN queue.inputs END AS BLOB)), 0) + coalesce(length(CAST(CASE WHEN (length(CAST(queue.state AS BLOB)) <= :most_bytes) THEN queue.state END AS BLOB)), 0) + coalesce(length(CAST(CASE WHEN (length(CAST(queue.reason AS BLOB)) <= :most_bytes) THEN queue.reason END AS BLOB)), 0) + coalesce(length(CAST(CASE WHEN (length(CAST(queue.owner AS BLOB)) <= :most_bytes) THEN queue.owner END AS BLOB)), 0)) OVER (ORDER BY queue.last_seen DESC, queue.id ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS upto, count(*) OVER () AS there
FROM queue
WHERE queue.environment = (SELECT environments.id
FROM environments
WHERE environments.machine = :env_machine AND environments.jaxlib = :env_jaxlib AND environments.options = :env_options)) AS found
WHERE found.upto <= :most_total AND found.number <= :most_rows ORDER BY found.number
-- name: queue_sizes
SELECT length(CAST(queue.module AS BLOB)) AS length_1, coalesce(length(CAST(queue.recorded AS BLOB)), 0) AS coalesce_1
FROM queue
WHERE queue.id = :id AND queue.environment = (SELECT environments.id
FROM environments
WHERE environments.machine = :env_machine AND environments.jaxlib = :env_jaxlib AND environments.options = :env_options)
-- name: remove_winner
DELETE FROM winners WHERE winners.fingerprint = :fingerprint AND winners.environment = (SELECT environments.id
FROM environments
WHERE environments.machine = :env_machine AND environments.jaxlib = :env_jaxlib AND environments.options = :env_options)
-- name: revision
SELECT CASE WHEN (typeof(environments.revision) = 'text') THEN substr(environments.revision, 1, 40) WHEN (typeof(environments.revision) = 'blob') THEN 'no number' ELSE environments.revision END AS revision
FROM environments
WHERE environments.machine = :env_machine AND environments.jaxlib = :env_jaxlib AND environments.options = :env_options
-- name: set_revision
UPDATE environments SET revision=:number WHERE environments.machine = :env_machine AND environments.jaxlib = :env_jaxlib AND environments.options = :env_options
-- name: winner
SELECT CASE WHEN (length(CAST(winners.fingerprint AS BLOB)) <= :most_bytes) THEN winners.fingerprint END AS fingerprint, CASE WHEN (length(CAST(winners.decisions AS BLOB)) <= :most_bytes) THEN winners.decisions END AS decisions, CASE WHEN (length(CAST(winners.program AS BLOB)) <= :most_bytes) THEN winners.program END AS program, CASE WHEN (typeof(winners.nodes) = 'text') THEN substr(winners.nodes, 1, 40) WHEN (typeof(winners.nodes) = 'blob') THEN 'no number' ELSE winners.nodes END AS nodes, CASE WHEN (typeof(winners.default_s) = 'text') THEN substr(winners.default_s, 1, 40) WHEN (typeof(winners.default_s) = 'blob') THEN 'no number' ELSE winners.default_s END AS default_s, CASE WHEN (typeof(winners.tuned_s) = 'text') THEN substr(winners.tuned_s, 1, 40) WHEN (typeof(winners.tuned_s) = 'blob') THEN 'no number' ELSE winners.tuned_s END AS tuned_s, CASE WHEN (typeof(winners.speedup) = 'text') THEN substr(winners.speedup, 1, 40) WHEN (typeof(winners.speedup) = 'blob') THEN 'no number' ELSE winners.speedup END AS speedup, CASE WHEN (typeof(winners.low) = 'text') THEN substr(winners.low, 1, 40) WHEN (typeof(winners.low) = 'blob') THEN 'no number' ELSE winners.low END AS low, CASE WHEN (typeof(winners.high) = 'text') THEN substr(winners.high, 1, 40) WHEN (typeof(winners.high) = 'blob') THEN 'no number' ELSE winners.high END AS high, CASE WHEN (typeof(winners.evaluations) = 'text') THEN substr(winners.evaluations, 1, 40) WHEN (typeof(winners.evaluations) = 'blob') THEN 'no number' ELSE winners.evaluations END AS evaluations, CASE WHEN (typeof(winners.verified) = 'text') THEN substr(winners.verified, 1, 40) WHEN (typeof(winners.verified) = 'blob') THEN 'no number' ELSE winners.verified END AS verified, CASE WHEN (length(CAST(winners.origin AS BLOB)) <= :most_bytes) THEN winners.origin END AS origin, CASE WHEN (typeof(winners.seen) = 'text') THEN substr(winners.seen, 1, 40) WHEN (typeof(winners.seen) = 'blob') THEN 'no number' ELSE winners.seen END AS seen, CASE WHEN (length(CAST(winners.signature AS BLOB)) <= :most_bytes) THEN winners.signature END AS signature
FROM winners
WHERE winners.fingerprint = :fingerprint AND winners.environment = (SELECT environments.id
FROM environments
WHERE environments.machine = :env_machine AND environments.jaxlib = :env_jaxlib AND environments.options = :env_options)
-- name: winners_changed
UPDATE environments SET revision=(environments.revision + 1) WHERE environments.machine = :env_machine AND environments.jaxlib = :env_jaxlib AND environments.options = :env_options
