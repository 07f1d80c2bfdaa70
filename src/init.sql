-- idempotency: idempotent writes for PostgreSQL
\echo Use "CREATE EXTENSION idempotency" to load this file. \quit

-- A schema of this name that somebody made before would stay theirs, and with it everything in it.
CREATE FUNCTION idempotency.check_schema_owner()
RETURNS pg_catalog.void
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'idempotency_check_schema_owner';

SELECT idempotency.check_schema_owner();

DROP FUNCTION idempotency.check_schema_owner();
