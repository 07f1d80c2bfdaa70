
-- State diagrams: what a guard_transitions() trigger is given, looked at beforehand.

CREATE FUNCTION idempotency.check_state_diagram(
	diagram pg_catalog.text,
	labels pg_catalog.text[] DEFAULT NULL,
	OUT line pg_catalog.int4,
	OUT severity pg_catalog.text,
	OUT message pg_catalog.text)
RETURNS SETOF pg_catalog.record
LANGUAGE c STABLE PARALLEL SAFE
AS 'MODULE_PATHNAME', 'idempotency_check_state_diagram';

REVOKE ALL ON FUNCTION idempotency.check_state_diagram(pg_catalog.text, pg_catalog.text[]) FROM PUBLIC;

COMMENT ON FUNCTION idempotency.check_state_diagram(pg_catalog.text, pg_catalog.text[]) IS
'what is wrong with a state diagram: errors keep it from being used, warnings do not';
