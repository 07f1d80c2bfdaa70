
-- Who may use a log.

CREATE FUNCTION idempotency.grant_use(log pg_catalog.regclass, role pg_catalog.regrole)
RETURNS pg_catalog.void
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'idempotency_grant_use';

REVOKE ALL ON FUNCTION idempotency.grant_use(pg_catalog.regclass, pg_catalog.regrole) FROM PUBLIC;

COMMENT ON FUNCTION idempotency.grant_use(pg_catalog.regclass, pg_catalog.regrole) IS
'grants a role what it needs to use these functions with a log: SELECT and INSERT on it, and EXECUTE on them';
