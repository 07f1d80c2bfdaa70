
-- Insert-or-return: insert a row once per unique key, and return the one that is there.

CREATE FUNCTION idempotency.insert_or_return(
	target pg_catalog.anyelement,
	new_values pg_catalog.jsonb,
	key pg_catalog.name[] DEFAULT NULL,
	must_match pg_catalog.name[] DEFAULT NULL,
	wait pg_catalog.interval DEFAULT NULL,
	OUT inserted pg_catalog.bool,
	OUT stored pg_catalog.anyelement)
RETURNS pg_catalog.record
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'idempotency_insert_or_return';

CREATE FUNCTION idempotency.insert_or_return_batch(
	target pg_catalog.anyelement,
	new_values pg_catalog.jsonb,
	key pg_catalog.name[] DEFAULT NULL,
	must_match pg_catalog.name[] DEFAULT NULL,
	OUT item pg_catalog.int4,
	OUT inserted pg_catalog.bool,
	OUT stored pg_catalog.anyelement)
RETURNS SETOF pg_catalog.record
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'idempotency_insert_or_return_batch';

REVOKE ALL ON FUNCTION idempotency.insert_or_return(pg_catalog.anyelement, pg_catalog.jsonb, pg_catalog.name[], pg_catalog.name[], pg_catalog.interval) FROM PUBLIC;
REVOKE ALL ON FUNCTION idempotency.insert_or_return_batch(pg_catalog.anyelement, pg_catalog.jsonb, pg_catalog.name[], pg_catalog.name[]) FROM PUBLIC;

COMMENT ON FUNCTION idempotency.insert_or_return(pg_catalog.anyelement, pg_catalog.jsonb, pg_catalog.name[], pg_catalog.name[], pg_catalog.interval) IS
'inserts a row, or returns the one that has its unique key already';
COMMENT ON FUNCTION idempotency.insert_or_return_batch(pg_catalog.anyelement, pg_catalog.jsonb, pg_catalog.name[], pg_catalog.name[]) IS
'inserts rows, or returns those that have their unique keys already; results in the order of the input';
