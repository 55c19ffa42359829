-- A database as the first release made it: a key, a job that waits, and one that is done and not reported yet.
CREATE TABLE tutti_keys (
    id VARCHAR NOT NULL,
    name VARCHAR NOT NULL,
    hash VARCHAR NOT NULL,
    old_hash VARCHAR,
    old_until FLOAT,
    signing_key VARCHAR NOT NULL,
    created FLOAT NOT NULL,
    expires FLOAT,
    withdrawn FLOAT,
    scopes VARCHAR NOT NULL,
    sessions INTEGER,
    minutes_per_day FLOAT,
    minutes_per_month FLOAT,
    jobs INTEGER,
    version INTEGER NOT NULL,
    PRIMARY KEY (id),
    UNIQUE (hash)
);
CREATE TABLE tutti_keys_version (
    id INTEGER NOT NULL,
    version INTEGER NOT NULL,
    PRIMARY KEY (id)
);
CREATE TABLE tutti_schema (
    version INTEGER NOT NULL,
    PRIMARY KEY (version)
);
CREATE TABLE tutti_usage (
    account VARCHAR NOT NULL,
    day DATE NOT NULL,
    kind VARCHAR NOT NULL,
    audio_s FLOAT NOT NULL,
    n INTEGER NOT NULL,
    PRIMARY KEY (account, day, kind)
);
CREATE TABLE tutti_usage_sources (
    id VARCHAR NOT NULL,
    audio_s FLOAT NOT NULL,
    day DATE NOT NULL,
    PRIMARY KEY (id)
);
CREATE TABLE tutti_jobs (
    id VARCHAR NOT NULL,
    owner VARCHAR NOT NULL,
    account VARCHAR NOT NULL,
    kind VARCHAR NOT NULL,
    options VARCHAR NOT NULL,
    url VARCHAR NOT NULL,
    callback_url VARCHAR NOT NULL,
    callback_method VARCHAR NOT NULL,
    idempotency_key VARCHAR,
    fingerprint VARCHAR NOT NULL,
    state VARCHAR NOT NULL,
    created FLOAT NOT NULL,
    started FLOAT,
    ended FLOAT,
    due FLOAT,
    lease VARCHAR,
    n_attempts INTEGER NOT NULL,
    audio_s FLOAT,
    error_code VARCHAR,
    error VARCHAR,
    has_audio BOOLEAN NOT NULL,
    PRIMARY KEY (id)
);
CREATE TABLE tutti_job_callbacks (
    job VARCHAR NOT NULL,
    due FLOAT,
    n_attempts INTEGER NOT NULL,
    outcome VARCHAR,
    PRIMARY KEY (job),
    FOREIGN KEY(job) REFERENCES tutti_jobs (id) ON DELETE CASCADE
);
CREATE TABLE tutti_job_results (
    job VARCHAR NOT NULL,
    content BLOB NOT NULL,
    media_type VARCHAR NOT NULL,
    PRIMARY KEY (job),
    FOREIGN KEY(job) REFERENCES tutti_jobs (id) ON DELETE CASCADE
);
INSERT INTO tutti_keys VALUES('key_72a9f40933de75b8','acme','79dc9533d2432824ab969964f8f39341a93a7f2c84c13c263d3dadbb9c55289d',NULL,NULL,'56ec06a051ab4f3e78a9706b23095d7ad0fb377edde0433229eb8e3e19c117dc',1795794903.0,NULL,NULL,'files,jobs,live,rooms',NULL,NULL,NULL,NULL,1);
INSERT INTO tutti_keys_version VALUES(1,1);
INSERT INTO tutti_schema VALUES(1);
INSERT INTO tutti_jobs VALUES('00000000-0000-4000-8000-000000000001','account:key_1','key_1','openai','{"task": "transcribe"}','','https://user:password@example.org/','POST',NULL,'f','done',1795794903.0,1795794903.0,1795794903.0,NULL,NULL,1,1.5,NULL,NULL,TRUE);
INSERT INTO tutti_jobs VALUES('00000000-0000-4000-8000-000000000002','account:key_1','key_1','openai','{"task": "transcribe"}','','https://user:password@example.org/','POST',NULL,'g','queued',1795794903.0,NULL,NULL,1795794903.0,NULL,0,NULL,NULL,NULL,TRUE);
INSERT INTO tutti_job_callbacks VALUES('00000000-0000-4000-8000-000000000001',1795794903.0,0,NULL);
CREATE INDEX ix_tutti_keys_version ON tutti_keys (version);
CREATE INDEX ix_tutti_usage_sources_day ON tutti_usage_sources (day);
CREATE INDEX ix_tutti_jobs_due ON tutti_jobs (due);
CREATE INDEX tutti_jobs_of_owner ON tutti_jobs (owner, created);
CREATE INDEX ix_tutti_jobs_ended ON tutti_jobs (ended);
CREATE UNIQUE INDEX tutti_jobs_idempotency ON tutti_jobs (owner, idempotency_key);
CREATE INDEX ix_tutti_job_callbacks_due ON tutti_job_callbacks (due);
