
-- What is kept of a request.  docs/request-digest.md defines the format.

CREATE FUNCTION idempotency.request_digest(request pg_catalog.jsonb)
RETURNS pg_catalog.bytea
LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE
AS 'MODULE_PATHNAME', 'idempotency_request_digest';

REVOKE ALL ON FUNCTION idempotency.request_digest(pg_catalog.jsonb) FROM PUBLIC;

COMMENT ON FUNCTION idempotency.request_digest(pg_catalog.jsonb) IS
'the digest that an operation log keeps of a request; equal values have equal digests, in every session, version and platform';
