
-- Ignore duplicates: a trigger that lets an unchanged INSERT or COPY skip rows whose key is there.

CREATE FUNCTION idempotency.ignore_duplicates()
RETURNS pg_catalog.trigger
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'idempotency_ignore_duplicates';

REVOKE ALL ON FUNCTION idempotency.ignore_duplicates() FROM PUBLIC;

COMMENT ON FUNCTION idempotency.ignore_duplicates() IS
'BEFORE INSERT trigger: skips a row whose unique key is there already; arguments: the columns of the key';
