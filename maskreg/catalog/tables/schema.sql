-- What all migrations together make of an empty SQLite file; tests compare the two.
BEGIN IMMEDIATE;
CREATE TABLE maskreg_schema (
	version_num VARCHAR(32) NOT NULL,
	CONSTRAINT maskreg_schema_pkc PRIMARY KEY (version_num)
);
CREATE TABLE artifacts (
	digest TEXT NOT NULL,
	kind TEXT NOT NULL,
	rule TEXT NOT NULL,
	exact BOOLEAN NOT NULL,
	density DOUBLE NOT NULL,
	ffn_density DOUBLE,
	ffn_share DOUBLE,
	ffn_lift DOUBLE,
	nnz BIGINT NOT NULL,
	numel BIGINT NOT NULL,
	params BIGINT NOT NULL,
	size BIGINT NOT NULL,
	source_root TEXT NOT NULL,
	source_hub TEXT NOT NULL,
	target_root TEXT NOT NULL,
	rlvr_overlap DOUBLE,
	rlvr_against TEXT,
	seal TEXT,
	PRIMARY KEY (digest)
);
CREATE TABLE refs (
	project TEXT NOT NULL,
	name TEXT NOT NULL,
	tag TEXT NOT NULL,
	n BIGINT NOT NULL,
	digest TEXT,
	deleted BOOLEAN NOT NULL,
	family TEXT NOT NULL,
	method TEXT NOT NULL,
	license TEXT NOT NULL,
	description TEXT NOT NULL,
	meta JSON NOT NULL,
	"by" TEXT NOT NULL,
	at DATETIME NOT NULL,
	origin TEXT NOT NULL,
	words TEXT NOT NULL,
	seal TEXT,
	PRIMARY KEY (project, name, tag)
);
CREATE TABLE filled (
	source TEXT NOT NULL,
	at DATETIME NOT NULL,
	unread JSON,
	followed BIGINT,
	seal TEXT,
	PRIMARY KEY (source)
);
CREATE TABLE sums (
	"table" TEXT NOT NULL,
	rows BIGINT NOT NULL,
	sum TEXT NOT NULL,
	PRIMARY KEY ("table")
);
CREATE TABLE measurements (
	id INTEGER NOT NULL,
	digest TEXT NOT NULL,
	metric TEXT NOT NULL,
	against TEXT NOT NULL,
	by_group TEXT NOT NULL,
	value DOUBLE NOT NULL,
	detail JSON NOT NULL,
	at DATETIME NOT NULL,
	"by" TEXT NOT NULL,
	seal TEXT,
	PRIMARY KEY (id)
);
CREATE TABLE events (
	id INTEGER NOT NULL,
	at DATETIME NOT NULL,
	"by" TEXT NOT NULL,
	action TEXT NOT NULL,
	subject TEXT NOT NULL,
	detail JSON NOT NULL,
	seal TEXT,
	PRIMARY KEY (id)
);
CREATE TABLE seen_sources (
	id INTEGER NOT NULL,
	root TEXT NOT NULL,
	path TEXT NOT NULL,
	at DATETIME NOT NULL,
	PRIMARY KEY (id),
	CONSTRAINT uq_seen_sources_root_path UNIQUE (root, path)
);
CREATE INDEX ix_artifacts_kind ON artifacts (kind);
CREATE INDEX ix_artifacts_density ON artifacts (density);
CREATE INDEX ix_artifacts_ffn_density ON artifacts (ffn_density);
CREATE INDEX ix_artifacts_ffn_share ON artifacts (ffn_share);
CREATE INDEX ix_artifacts_ffn_lift ON artifacts (ffn_lift);
CREATE INDEX ix_artifacts_rlvr_overlap ON artifacts (rlvr_overlap);
CREATE INDEX ix_artifacts_nnz ON artifacts (nnz);
CREATE INDEX ix_artifacts_numel ON artifacts (numel);
CREATE INDEX ix_artifacts_params ON artifacts (params);
CREATE INDEX ix_artifacts_size ON artifacts (size);
CREATE INDEX ix_artifacts_source_root ON artifacts (source_root);
CREATE INDEX ix_artifacts_target_root ON artifacts (target_root);
CREATE INDEX ix_refs_name ON refs (name);
CREATE INDEX ix_refs_digest ON refs (digest);
CREATE INDEX ix_refs_family ON refs (family);
CREATE INDEX ix_refs_method ON refs (method);
CREATE INDEX ix_refs_license ON refs (license);
CREATE INDEX ix_refs_at ON refs (at);
CREATE INDEX ix_refs_by ON refs ("by");
CREATE INDEX ix_refs_project_at ON refs (project, at);
CREATE INDEX ix_measurements_metric ON measurements (metric);
CREATE INDEX ix_measurements_digest_metric ON measurements (digest, metric);
CREATE INDEX ix_events_at ON events (at);
CREATE INDEX ix_events_by ON events ("by");
CREATE INDEX ix_events_action ON events (action);
CREATE INDEX ix_events_subject ON events (subject);
INSERT INTO maskreg_schema VALUES ('0008');
INSERT INTO sums VALUES
	('artifacts', 0, '00000000000000000000000000000000'),
	('refs', 0, '00000000000000000000000000000000'),
	('measurements', 0, '00000000000000000000000000000000');
COMMIT;
