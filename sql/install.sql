-- What CREATE EXTENSION makes, and when it refuses.
SET client_min_messages = warning;
DROP EXTENSION IF EXISTS idempotency;
DROP SCHEMA IF EXISTS idempotency;

-- a schema that belongs to someone else is refused: they could replace what is in it
CREATE ROLE regress_idem_stranger;
CREATE SCHEMA idempotency AUTHORIZATION regress_idem_stranger;
\set SHOW_CONTEXT never
CREATE EXTENSION idempotency;
\set SHOW_CONTEXT errors
DROP SCHEMA idempotency;
DROP ROLE regress_idem_stranger;

CREATE EXTENSION idempotency;

-- it stays where it is
CREATE SCHEMA elsewhere;
ALTER EXTENSION idempotency SET SCHEMA elsewhere;
DROP SCHEMA elsewhere;

-- everything in the schema is a member, and has a comment
SELECT count(*) AS strangers
FROM pg_catalog.pg_proc p
WHERE p.pronamespace = 'idempotency'::regnamespace
	AND NOT EXISTS (SELECT FROM pg_catalog.pg_depend d
					WHERE d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e');
SELECT p.oid::regprocedure AS without_comment
FROM pg_catalog.pg_proc p
WHERE p.pronamespace = 'idempotency'::regnamespace AND obj_description(p.oid, 'pg_proc') IS NULL;
SELECT attname AS column_without_comment
FROM pg_catalog.pg_attribute
WHERE attrelid = 'idempotency.operation_log'::regclass AND attnum > 0 AND NOT attisdropped
	AND col_description(attrelid, attnum) IS NULL;

-- G11: nothing is granted to PUBLIC
SELECT p.oid::regprocedure AS public_function
FROM pg_catalog.pg_proc p
WHERE p.pronamespace = 'idempotency'::regnamespace
	AND (p.proacl IS NULL OR EXISTS (SELECT FROM aclexplode(p.proacl) a WHERE a.grantee = 0));
SELECT c.oid::regclass AS public_relation
FROM pg_catalog.pg_class c, aclexplode(coalesce(c.relacl, acldefault('r', c.relowner))) a
WHERE c.relnamespace = 'idempotency'::regnamespace AND c.relkind <> 'i' AND a.grantee = 0;
SELECT a.privilege_type AS public_on_schema
FROM pg_catalog.pg_namespace n, aclexplode(n.nspacl) a
WHERE n.nspname = 'idempotency' AND a.grantee = 0;

-- G12: what the log has is part of a dump
SELECT extconfig::regclass[] AS dumped, extcondition FROM pg_catalog.pg_extension WHERE extname = 'idempotency';

-- the setting
SHOW idempotency.default_ttl;
SET idempotency.default_ttl = 0;
SET idempotency.default_ttl = 'soon';
SET idempotency.default_ttl = '30d';
SHOW idempotency.default_ttl;
RESET idempotency.default_ttl;

-- what only the extension's own statements call
SELECT idempotency.recheck(1);

DROP EXTENSION idempotency;
-- PostgreSQL leaves the schema, empty
SELECT count(*) AS left_behind FROM pg_catalog.pg_class WHERE relnamespace = 'idempotency'::regnamespace;
DROP SCHEMA idempotency;
