
-- State machines: what the guard_transitions() triggers of a table say.

CREATE FUNCTION idempotency.transitions(
	target pg_catalog.regclass,
	OUT column_name pg_catalog.name,
	OUT from_state pg_catalog.text,
	OUT to_state pg_catalog.text,
	OUT event pg_catalog.text)
RETURNS SETOF pg_catalog.record
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'idempotency_transitions';

CREATE FUNCTION idempotency.state_diagram(
	target pg_catalog.regclass,
	column_name pg_catalog.name DEFAULT 'status',
	counts pg_catalog.bool DEFAULT false)
RETURNS pg_catalog.text
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'idempotency_state_diagram';

REVOKE ALL ON FUNCTION idempotency.transitions(pg_catalog.regclass) FROM PUBLIC;
REVOKE ALL ON FUNCTION idempotency.state_diagram(pg_catalog.regclass, pg_catalog.name, pg_catalog.bool) FROM PUBLIC;

COMMENT ON FUNCTION idempotency.transitions(pg_catalog.regclass) IS
'the transitions that the guard_transitions() triggers of a table allow; NULL is where rows begin and end';
COMMENT ON FUNCTION idempotency.state_diagram(pg_catalog.regclass, pg_catalog.name, pg_catalog.bool) IS
'the state diagram of a column in Mermaid''s syntax, with the number of rows in each state if asked for';
