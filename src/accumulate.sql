
-- Accumulate: add to a column once per operation id.

CREATE FUNCTION idempotency.accumulate(
	target pg_catalog.regclass,
	key "any",
	column_name pg_catalog.name,
	delta pg_catalog.numeric,
	operation_id pg_catalog.text,
	minimum pg_catalog.numeric DEFAULT NULL,
	maximum pg_catalog.numeric DEFAULT NULL,
	create_missing pg_catalog.bool DEFAULT false,
	on_reject pg_catalog.text DEFAULT 'raise',
	scope pg_catalog.text DEFAULT NULL,
	ttl pg_catalog.interval DEFAULT NULL,
	wait pg_catalog.interval DEFAULT NULL,
	log pg_catalog.regclass DEFAULT 'idempotency.operation_log',
	OUT outcome pg_catalog.text,
	OUT value pg_catalog.numeric,
	OUT applied_at pg_catalog.timestamptz)
RETURNS pg_catalog.record
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'idempotency_accumulate';

-- For parameters of unknown type, which drivers send; read by the key column's input function.
CREATE FUNCTION idempotency.accumulate(
	target pg_catalog.regclass,
	key pg_catalog.text,
	column_name pg_catalog.name,
	delta pg_catalog.numeric,
	operation_id pg_catalog.text,
	minimum pg_catalog.numeric DEFAULT NULL,
	maximum pg_catalog.numeric DEFAULT NULL,
	create_missing pg_catalog.bool DEFAULT false,
	on_reject pg_catalog.text DEFAULT 'raise',
	scope pg_catalog.text DEFAULT NULL,
	ttl pg_catalog.interval DEFAULT NULL,
	wait pg_catalog.interval DEFAULT NULL,
	log pg_catalog.regclass DEFAULT 'idempotency.operation_log',
	OUT outcome pg_catalog.text,
	OUT value pg_catalog.numeric,
	OUT applied_at pg_catalog.timestamptz)
RETURNS pg_catalog.record
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'idempotency_accumulate';

REVOKE ALL ON FUNCTION idempotency.accumulate(pg_catalog.regclass, "any", pg_catalog.name, pg_catalog.numeric, pg_catalog.text, pg_catalog.numeric, pg_catalog.numeric, pg_catalog.bool, pg_catalog.text, pg_catalog.text, pg_catalog.interval, pg_catalog.interval, pg_catalog.regclass) FROM PUBLIC;
REVOKE ALL ON FUNCTION idempotency.accumulate(pg_catalog.regclass, pg_catalog.text, pg_catalog.name, pg_catalog.numeric, pg_catalog.text, pg_catalog.numeric, pg_catalog.numeric, pg_catalog.bool, pg_catalog.text, pg_catalog.text, pg_catalog.interval, pg_catalog.interval, pg_catalog.regclass) FROM PUBLIC;

COMMENT ON FUNCTION idempotency.accumulate(pg_catalog.regclass, "any", pg_catalog.name, pg_catalog.numeric, pg_catalog.text, pg_catalog.numeric, pg_catalog.numeric, pg_catalog.bool, pg_catalog.text, pg_catalog.text, pg_catalog.interval, pg_catalog.interval, pg_catalog.regclass) IS
'adds delta to a column of one row, once per operation id';
COMMENT ON FUNCTION idempotency.accumulate(pg_catalog.regclass, pg_catalog.text, pg_catalog.name, pg_catalog.numeric, pg_catalog.text, pg_catalog.numeric, pg_catalog.numeric, pg_catalog.bool, pg_catalog.text, pg_catalog.text, pg_catalog.interval, pg_catalog.interval, pg_catalog.regclass) IS
'adds delta to a column of one row, once per operation id; the key as text';
