
-- What is known of an operation, and its name in the log.

CREATE FUNCTION idempotency.lookup(
	scope pg_catalog.text,
	operation_id pg_catalog.text,
	log pg_catalog.regclass DEFAULT 'idempotency.operation_log',
	OUT state pg_catalog.text,
	OUT created_at pg_catalog.timestamptz,
	OUT completed_at pg_catalog.timestamptz,
	OUT expires_at pg_catalog.timestamptz,
	OUT request_digest pg_catalog.bytea,
	OUT target pg_catalog.regclass,
	OUT target_key pg_catalog.jsonb,
	OUT column_name pg_catalog.text,
	OUT delta pg_catalog.numeric,
	OUT value pg_catalog.numeric,
	OUT from_state pg_catalog.text,
	OUT to_state pg_catalog.text,
	OUT response pg_catalog.jsonb,
	OUT response_expires_at pg_catalog.timestamptz,
	OUT error pg_catalog.jsonb,
	OUT fence pg_catalog.int8,
	OUT attempt pg_catalog.int4,
	OUT lease_until pg_catalog.timestamptz,
	OUT checkpoint pg_catalog.text,
	OUT checkpoint_data pg_catalog.jsonb,
	OUT actor pg_catalog.text)
RETURNS pg_catalog.record
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'idempotency_lookup';

CREATE FUNCTION idempotency.forget(
	scope pg_catalog.text,
	operation_id pg_catalog.text,
	log pg_catalog.regclass DEFAULT 'idempotency.operation_log')
RETURNS pg_catalog.bool
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'idempotency_forget';

CREATE FUNCTION idempotency.rename_scope(
	old_scope pg_catalog.text,
	new_scope pg_catalog.text,
	log pg_catalog.regclass DEFAULT 'idempotency.operation_log')
RETURNS pg_catalog.int8
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'idempotency_rename_scope';

REVOKE ALL ON FUNCTION idempotency.lookup(pg_catalog.text, pg_catalog.text, pg_catalog.regclass) FROM PUBLIC;
REVOKE ALL ON FUNCTION idempotency.forget(pg_catalog.text, pg_catalog.text, pg_catalog.regclass) FROM PUBLIC;
REVOKE ALL ON FUNCTION idempotency.rename_scope(pg_catalog.text, pg_catalog.text, pg_catalog.regclass) FROM PUBLIC;

COMMENT ON FUNCTION idempotency.lookup(pg_catalog.text, pg_catalog.text, pg_catalog.regclass) IS
'what the log has of an operation; NULL if it has nothing, or what it has expired';
COMMENT ON FUNCTION idempotency.forget(pg_catalog.text, pg_catalog.text, pg_catalog.regclass) IS
'deletes an operation from the log, so that its id counts as never used; true if it was there';
COMMENT ON FUNCTION idempotency.rename_scope(pg_catalog.text, pg_catalog.text, pg_catalog.regclass) IS
'moves all operations of a scope to another and returns how many';
