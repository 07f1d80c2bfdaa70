
-- The operation log.  docs/reference.md describes each column; they are only ever added to.
-- Text in the key compares by bytes; the access method is named because the default may be one
-- that cannot serve a unique index under concurrency.

CREATE TABLE idempotency.operation_log (
	scope pg_catalog.text COLLATE pg_catalog."C" NOT NULL,
	operation_id pg_catalog.text COLLATE pg_catalog."C" NOT NULL,
	state pg_catalog.text COLLATE pg_catalog."C" NOT NULL,
	created_at pg_catalog.timestamptz,
	completed_at pg_catalog.timestamptz,
	expires_at pg_catalog.timestamptz,
	request_digest pg_catalog.bytea,
	target pg_catalog.regclass,
	target_key pg_catalog.jsonb,
	column_name pg_catalog.text COLLATE pg_catalog."C",
	delta pg_catalog.numeric,
	value pg_catalog.numeric,
	from_state pg_catalog.text COLLATE pg_catalog."C",
	to_state pg_catalog.text COLLATE pg_catalog."C",
	response pg_catalog.jsonb,
	response_expires_at pg_catalog.timestamptz,
	error pg_catalog.jsonb,
	fence pg_catalog.int8,
	attempt pg_catalog.int4,
	lease_until pg_catalog.timestamptz,
	checkpoint pg_catalog.text COLLATE pg_catalog."C",
	checkpoint_data pg_catalog.jsonb,
	actor pg_catalog.text COLLATE pg_catalog."C",
	PRIMARY KEY (scope, operation_id)
) USING heap;

REVOKE ALL ON TABLE idempotency.operation_log FROM PUBLIC;

-- Without this a restored database would have forgotten every operation, and retries would run twice.
SELECT pg_catalog.pg_extension_config_dump('idempotency.operation_log', '');

COMMENT ON TABLE idempotency.operation_log IS 'the operations that took effect, or were refused for good, each under its scope and operation id';
COMMENT ON COLUMN idempotency.operation_log.scope IS 'the namespace in which operation_id is unique';
COMMENT ON COLUMN idempotency.operation_log.operation_id IS 'the caller''s name for the operation: its idempotency key';
COMMENT ON COLUMN idempotency.operation_log.state IS 'claimed, done, rejected, failed or forbidden';
COMMENT ON COLUMN idempotency.operation_log.created_at IS 'when the operation was first recorded, by the server''s clock';
COMMENT ON COLUMN idempotency.operation_log.completed_at IS 'when it was done, rejected, failed or forbidden';
COMMENT ON COLUMN idempotency.operation_log.expires_at IS 'from then on the id counts as never used; NULL: remembered for ever';
COMMENT ON COLUMN idempotency.operation_log.request_digest IS 'what the operation was asked to do, as a digest by value; docs/request-digest.md';
COMMENT ON COLUMN idempotency.operation_log.target IS 'the table it wrote to';
COMMENT ON COLUMN idempotency.operation_log.target_key IS 'the key of the row it wrote to, an object of columns';
COMMENT ON COLUMN idempotency.operation_log.column_name IS 'the column it wrote to';
COMMENT ON COLUMN idempotency.operation_log.delta IS 'what it added to the column';
COMMENT ON COLUMN idempotency.operation_log.value IS 'the column as the operation left it';
COMMENT ON COLUMN idempotency.operation_log.from_state IS 'the state of the row before a transition';
COMMENT ON COLUMN idempotency.operation_log.to_state IS 'the state of the row after a transition';
COMMENT ON COLUMN idempotency.operation_log.response IS 'the recorded response, replayed to duplicates';
COMMENT ON COLUMN idempotency.operation_log.response_expires_at IS 'from then on the response is no longer replayed';
COMMENT ON COLUMN idempotency.operation_log.error IS 'why the operation failed';
COMMENT ON COLUMN idempotency.operation_log.fence IS 'the number of the claim that holds or completed it; each new holder has a greater one';
COMMENT ON COLUMN idempotency.operation_log.attempt IS 'how many times it was claimed';
COMMENT ON COLUMN idempotency.operation_log.lease_until IS 'until then the claim holds';
COMMENT ON COLUMN idempotency.operation_log.checkpoint IS 'how far the work has come, by its own name';
COMMENT ON COLUMN idempotency.operation_log.checkpoint_data IS 'what is needed to go on from the checkpoint';
COMMENT ON COLUMN idempotency.operation_log.actor IS 'the role that a transition was made for: the session''s, or what it was SET to';
