
-- Part of every guarded UPDATE on a target; refuses to run anywhere else.  Its cost puts it last among
-- a statement's conditions, so that it is only asked about the one row that the key names.

CREATE FUNCTION idempotency.recheck("any")
RETURNS pg_catalog.bool
LANGUAGE c VOLATILE PARALLEL UNSAFE COST 100000
AS 'MODULE_PATHNAME', 'idempotency_recheck';

REVOKE ALL ON FUNCTION idempotency.recheck("any") FROM PUBLIC;

COMMENT ON FUNCTION idempotency.recheck("any") IS
'internal: looks at the log again when a row changed under an update that waited for it';
