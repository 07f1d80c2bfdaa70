-- insert_or_return: each kind of unique key × a new row, a duplicate, another row of the same key, NULL; what is
-- refused and why. (The races are in test/specs/insert_or_return_*.)
SET client_min_messages = warning;
CREATE EXTENSION idempotency;
CREATE SCHEMA regress_insert_or_return;
SET search_path = regress_insert_or_return, public;
\i test/lib/error_of.psql
\pset null NULL
SELECT current_setting('server_version_num')::int >= 150000 AS has_nulls_not_distinct \gset

-- the outcome of one call, on one line
CREATE FUNCTION pg_temp.try(target regclass, new_values jsonb, key name[] DEFAULT NULL, must_match name[] DEFAULT NULL)
RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	answer text;
BEGIN
	EXECUTE format('SELECT CASE WHEN inserted THEN ''inserted '' ELSE ''returned '' END || to_jsonb(stored)
		FROM idempotency.insert_or_return(NULL::%s, $1, $2, $3)', target) USING new_values, key, must_match INTO STRICT answer;
	RETURN answer;
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE || ' ' || SQLERRM;
END $$;

-- one table for each kind of key; `n` is what must match
CREATE TABLE by_primary_key (k int PRIMARY KEY, n int);
CREATE TABLE by_constraint (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, k int UNIQUE, n int);
CREATE TABLE by_index (k int, n int);
CREATE UNIQUE INDEX ON by_index (k DESC);
CREATE TABLE by_composite (a int, b text, n int, UNIQUE (a, b));
CREATE TABLE by_partial (k int, deleted_at date, n int);
CREATE UNIQUE INDEX ON by_partial (k) WHERE deleted_at IS NULL;
CREATE TABLE by_expression (k text, n int);
CREATE UNIQUE INDEX ON by_expression (lower(k));
CREATE TABLE by_partial_expression (k text, active boolean NOT NULL DEFAULT true, n int);
CREATE UNIQUE INDEX ON by_partial_expression (lower(k)) WHERE active;
CREATE TABLE by_include (k int, n int);
CREATE UNIQUE INDEX ON by_include (k) INCLUDE (n);
CREATE TABLE by_opclass (k text COLLATE "C", n int);
CREATE UNIQUE INDEX ON by_opclass (k text_pattern_ops);
CREATE COLLATION ignore_case (PROVIDER = icu, LOCALE = 'und-u-ks-level2', DETERMINISTIC = false);
CREATE TABLE by_collation (k text COLLATE ignore_case UNIQUE, n int);
CREATE TABLE by_index_collation (k text COLLATE "C", n int);
CREATE UNIQUE INDEX ON by_index_collation (k COLLATE ignore_case);
CREATE TABLE by_nulls_not_distinct (k int, n int);
-- before PostgreSQL 15 an expression does the same
\if :has_nulls_not_distinct
CREATE UNIQUE INDEX ON by_nulls_not_distinct (k) NULLS NOT DISTINCT;
\else
CREATE UNIQUE INDEX ON by_nulls_not_distinct (coalesce(k, -1));
\endif
CREATE TABLE by_partition (k int, n int, PRIMARY KEY (k)) PARTITION BY RANGE (k);
CREATE TABLE by_partition_low (n int, gone int, k int NOT NULL);
ALTER TABLE by_partition_low DROP COLUMN gone;
ALTER TABLE by_partition ATTACH PARTITION by_partition_low FOR VALUES FROM (0) TO (10);
CREATE TABLE by_partition_high PARTITION OF by_partition FOR VALUES FROM (10) TO (100) PARTITION BY HASH (k);
CREATE TABLE by_partition_high_0 PARTITION OF by_partition_high FOR VALUES WITH (MODULUS 1, REMAINDER 0);
CREATE TABLE by_generated (k text, g text GENERATED ALWAYS AS (upper(k)) STORED UNIQUE, n int);
CREATE DOMAIN positive AS int CHECK (VALUE > 0);
CREATE TABLE by_domain (k positive PRIMARY KEY, n int);

CREATE TEMP TABLE cases (number int GENERATED ALWAYS AS IDENTITY, target regclass, what text, new_values jsonb);
INSERT INTO cases (target, what, new_values)
SELECT target, what, new_values
FROM (VALUES
	('by_primary_key', '{"k": 1}', '{"k": 1}'),
	('by_constraint', '{"k": 1}', '{"k": 1}'),
	('by_index', '{"k": 1}', '{"k": 1}'),
	('by_composite', '{"a": 1, "b": "x"}', '{"a": 1, "b": "x"}'),
	('by_partial', '{"k": 1}', '{"k": 1, "deleted_at": null}'),
	('by_expression', '{"k": "Ann"}', '{"k": "aNN"}'),
	('by_partial_expression', '{"k": "Ann"}', '{"k": "aNN", "active": true}'),
	('by_include', '{"k": 1}', '{"k": 1}'),
	('by_opclass', '{"k": "Ann"}', '{"k": "Ann"}'),
	('by_collation', '{"k": "Ann"}', '{"k": "aNN"}'),
	('by_index_collation', '{"k": "Ann"}', '{"k": "aNN"}'),
	('by_nulls_not_distinct', '{"k": 1}', '{"k": 1}'),
	('by_partition', '{"k": 1}', '{"k": 1}'),
	('by_partition', '{"k": 11}', '{"k": 11}'),
	('by_generated', '{"k": "Ann"}', '{"k": "aNN"}'),
	('by_domain', '{"k": 1}', '{"k": 1}')) kind(target, first_key, again),
	LATERAL (VALUES
		('new', first_key::jsonb || '{"n": 1}'),
		('duplicate', again::jsonb || '{"n": 1}'),
		('mismatch', again::jsonb || '{"n": 2}'),
		('NULL', (SELECT jsonb_object_agg(name, NULL) FROM jsonb_object_keys(first_key::jsonb) name) || '{"n": 1}'),
		('NULL again', (SELECT jsonb_object_agg(name, NULL) FROM jsonb_object_keys(first_key::jsonb) name) || '{"n": 1}')
	) c(what, new_values);
SELECT target, what, pg_temp.try(target, new_values, must_match => '{n}') FROM cases ORDER BY number;
-- what is stored of all this
SELECT target, (xpath('/row/n/text()', query_to_xml(format('SELECT count(*) AS n FROM %s', target), false, true, '')))[1] AS rows
FROM (SELECT DISTINCT target::text FROM cases) t ORDER BY target COLLATE "C";

-- G4 no impostor: names what differs, never values
SELECT * FROM pg_temp.error_of($$SELECT idempotency.insert_or_return(NULL::by_composite, '{"a": 1, "b": "x", "n": 77}', must_match => '{a, n}')$$);
-- without must_match it is the row that is there
SELECT pg_temp.try('by_composite', '{"a": 1, "b": "x", "n": 77}');
-- NULL is like NULL
SELECT pg_temp.try('by_composite', '{"a": 2, "b": "x", "n": null}', must_match => '{n}');
SELECT pg_temp.try('by_composite', '{"a": 2, "b": "x", "n": null}', must_match => '{n}');
SELECT pg_temp.try('by_composite', '{"a": 2, "b": "x", "n": 0}', must_match => '{n}');

-- a partial key: the predicate is the catalogue's, and a row outside of it is not guarded
SELECT pg_temp.try('by_partial', '{"k": 1, "deleted_at": "2026-01-01", "n": 1}');
UPDATE by_partial SET deleted_at = '2026-01-02' WHERE k = 1;
SELECT pg_temp.try('by_partial', '{"k": 1, "n": 5}');
SELECT pg_temp.try('by_partial', '{"k": 1, "n": 6}');
SELECT * FROM by_partial WHERE k = 1 ORDER BY deleted_at;
SELECT pg_temp.try('by_partial_expression', '{"k": "ann", "active": false}');

-- G6: no spurious outcome for what another unique key of the table says
CREATE TABLE two_keys (id int PRIMARY KEY, code text UNIQUE, n int);
SELECT pg_temp.try('two_keys', '{"id": 1, "n": 1}');
SELECT pg_temp.try('two_keys', '{"code": "a", "n": 1}');
SELECT pg_temp.try('two_keys', '{"id": 2, "code": "a"}');
SELECT * FROM pg_temp.error_of($$SELECT idempotency.insert_or_return(NULL::two_keys, '{"id": 2, "code": "a"}')$$);
SELECT pg_temp.try('two_keys', '{"id": 2, "code": "a"}', '{code}');
SELECT pg_temp.try('two_keys', '{"id": 3, "code": "a"}', '{code}');
SELECT pg_temp.try('two_keys', '{"id": 2, "code": "b"}', '{code}');
SELECT pg_temp.try('two_keys', '{"id": 2, "code": "b"}', '{two_keys_pkey}');
SELECT pg_temp.try('two_keys', '{"id": 2, "code": "b"}', '{two_keys_code_key}');

-- several keys that say the same are one; a foreign key in the way, a check and a NOT NULL are ordinary errors
CREATE UNIQUE INDEX ON by_index (k);
SELECT pg_temp.try('by_index', '{"k": 1}');
CREATE TABLE strict (k int PRIMARY KEY, other int REFERENCES by_primary_key, n int NOT NULL CHECK (n > 0));
SELECT pg_temp.try('strict', '{"k": 1}');
SELECT pg_temp.try('strict', '{"k": 1, "n": -1}');
SELECT pg_temp.try('strict', '{"k": 1, "n": 1, "other": 99}');
SELECT pg_temp.try('strict', '{"k": 1, "n": 1, "other": 1}');

-- keys that cannot be used, each with the reason
CREATE TABLE has_deferrable (k int UNIQUE DEFERRABLE INITIALLY DEFERRED);
CREATE TABLE has_invalid (k int);
CREATE UNIQUE INDEX has_invalid_k ON has_invalid (k);
UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'has_invalid_k'::regclass;
CREATE TABLE has_none (k int);
CREATE INDEX ON has_none (k);
CREATE TABLE has_local (k int, day date) PARTITION BY LIST (day);
CREATE TABLE has_local_1 PARTITION OF has_local (UNIQUE (k)) FOR VALUES IN ('2026-01-01');
CREATE TABLE has_child (k int PRIMARY KEY);
CREATE TABLE a_child () INHERITS (has_child);
CREATE TABLE has_exclusion (k int, EXCLUDE USING btree (k WITH =));
CREATE TABLE has_whole_row (a int, b int);
CREATE FUNCTION whole_row(r has_whole_row) RETURNS int LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN r.a; END';
CREATE UNIQUE INDEX ON has_whole_row (whole_row(has_whole_row));
CREATE VIEW a_view AS SELECT * FROM by_primary_key;
CREATE TABLE has_rule (k int PRIMARY KEY);
CREATE RULE nothing AS ON INSERT TO has_rule DO INSTEAD NOTHING;
SELECT e.* FROM unnest('{has_deferrable,has_invalid,has_none,has_local,has_child,has_exclusion,a_view,has_rule}'::text[])
	WITH ORDINALITY t(name, n), LATERAL pg_temp.error_of(format($$SELECT idempotency.insert_or_return(NULL::%s, '{"k": 1}')$$,
	name)) e ORDER BY n;
SELECT * FROM pg_temp.error_of($$SELECT idempotency.insert_or_return(NULL::has_whole_row, '{"a": 1, "b": 1}')$$);
SELECT * FROM pg_temp.error_of($$SELECT idempotency.insert_or_return(NULL::has_deferrable, '{"k": 1}', '{k}')$$);
SELECT * FROM pg_temp.error_of($$SELECT idempotency.insert_or_return(NULL::by_composite, '{"a": 1, "b": "x"}', '{a}')$$);
SELECT * FROM pg_temp.error_of($$SELECT idempotency.insert_or_return(NULL::by_composite, '{"a": 1}', '{a, b}')$$);
SELECT * FROM pg_temp.error_of($$SELECT idempotency.insert_or_return(NULL::by_composite, '{"a": 1}')$$);
SELECT * FROM pg_temp.error_of($$SELECT idempotency.insert_or_return(NULL::by_constraint, '{"id": 1, "n": 1}')$$);
-- a child of an inheritance parent, and a partition by itself, are tables like others
SELECT pg_temp.try('by_partition_low', '{"k": 3}');
SELECT pg_temp.try('by_partition', '{"k": 3}');
SELECT pg_temp.try('by_partition', '{"k": 300}');
-- another key of a table with a deferrable one
CREATE TABLE one_deferrable (k int PRIMARY KEY, d int UNIQUE DEFERRABLE);
SELECT pg_temp.try('one_deferrable', '{"k": 1, "d": 1}');
SELECT pg_temp.try('one_deferrable', '{"k": 1, "d": 1}');
SELECT pg_temp.try('one_deferrable', '{"k": 2, "d": 1}');

-- G10 bad input
SELECT * FROM pg_temp.error_of($$SELECT idempotency.insert_or_return(NULL::by_index, NULL)$$);
SELECT * FROM pg_temp.error_of($$SELECT idempotency.insert_or_return(NULL::by_index, '[]')$$);
SELECT * FROM pg_temp.error_of($$SELECT idempotency.insert_or_return(NULL::by_index, '7')$$);
SELECT * FROM pg_temp.error_of($$SELECT idempotency.insert_or_return(NULL::by_index, '{}')$$);
SELECT * FROM pg_temp.error_of($$SELECT idempotency.insert_or_return(NULL::by_index, '{"k": 1, "missing": 1}')$$);
SELECT * FROM pg_temp.error_of($$SELECT idempotency.insert_or_return(NULL::by_index, '{"k": "x"}')$$);
SELECT * FROM pg_temp.error_of($$SELECT idempotency.insert_or_return(NULL::by_index, '{"k": 1}', '{}')$$);
SELECT * FROM pg_temp.error_of($$SELECT idempotency.insert_or_return(NULL::by_index, '{"k": 1}', '{k, NULL}')$$);
SELECT * FROM pg_temp.error_of($$SELECT idempotency.insert_or_return(NULL::by_index, '{"k": 1}', '{{k}}')$$);
SELECT * FROM pg_temp.error_of($$SELECT idempotency.insert_or_return(NULL::by_index, '{"k": 1}', '{missing}')$$);
SELECT * FROM pg_temp.error_of($$SELECT idempotency.insert_or_return(NULL::by_index, '{"k": 1}', must_match => '{missing}')$$);
SELECT * FROM pg_temp.error_of($$SELECT idempotency.insert_or_return(NULL::by_index, '{"k": 1}', must_match => '{n}')$$);
SELECT * FROM pg_temp.error_of($$SELECT idempotency.insert_or_return(NULL::by_index, '{"k": 1}', wait => '-1 s')$$);
SELECT * FROM pg_temp.error_of($$SELECT idempotency.insert_or_return(7, '{"k": 1}')$$);
SELECT * FROM pg_temp.error_of($$SELECT idempotency.insert_or_return(NULL::by_constraint, '{"k": 1, "ctid": "(0,1)"}')$$);

-- G3 quiet duplicates: no transaction id, no sequence value, no trigger, READ ONLY
CREATE TABLE quiet (id int GENERATED ALWAYS AS IDENTITY, k int PRIMARY KEY);
CREATE FUNCTION loud() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE WARNING 'trigger % %', TG_WHEN, TG_LEVEL; RETURN NEW; END $$;
CREATE TRIGGER a BEFORE INSERT ON quiet FOR EACH ROW EXECUTE FUNCTION loud();
CREATE TRIGGER b AFTER INSERT ON quiet FOR EACH STATEMENT EXECUTE FUNCTION loud();
SELECT * FROM idempotency.insert_or_return(NULL::quiet, '{"k": 1}');
SELECT last_value FROM quiet_id_seq;
SELECT * FROM idempotency.insert_or_return(NULL::quiet, '{"k": 1}');
BEGIN;
SELECT * FROM idempotency.insert_or_return(NULL::quiet, '{"k": 1}');
SELECT pg_current_xact_id_if_assigned() AS xid;
COMMIT;
BEGIN READ ONLY;
SELECT * FROM idempotency.insert_or_return(NULL::quiet, '{"k": 1}');
SELECT * FROM pg_temp.error_of($$SELECT idempotency.insert_or_return(NULL::quiet, '{"k": 2}')$$);
ROLLBACK;
SELECT last_value FROM quiet_id_seq;

-- G2 one transaction: after a rollback, whole or to a savepoint, the key is free
BEGIN;
SELECT inserted FROM idempotency.insert_or_return(NULL::by_primary_key, '{"k": 50}');
SELECT inserted FROM idempotency.insert_or_return(NULL::by_primary_key, '{"k": 50}');
ROLLBACK;
SELECT inserted FROM idempotency.insert_or_return(NULL::by_primary_key, '{"k": 50}');
BEGIN;
SAVEPOINT s;
SELECT inserted FROM idempotency.insert_or_return(NULL::by_primary_key, '{"k": 51}');
ROLLBACK TO s;
SELECT inserted FROM idempotency.insert_or_return(NULL::by_primary_key, '{"k": 51}');
COMMIT;
-- and a row that was deleted is new again
DELETE FROM by_primary_key WHERE k = 50;
SELECT inserted FROM idempotency.insert_or_return(NULL::by_primary_key, '{"k": 50}');

-- the key and the columns may change below a kept plan
PREPARE again AS SELECT * FROM idempotency.insert_or_return(NULL::by_include, $1);
EXECUTE again('{"k": 60, "n": 1}');
ALTER TABLE by_include ADD COLUMN more int DEFAULT 7;
EXECUTE again('{"k": 61, "n": 1}');
EXECUTE again('{"k": 60, "n": 1}');
ALTER TABLE by_include DROP COLUMN n;
EXECUTE again('{"k": 62}');
CREATE UNIQUE INDEX ON by_include (k);
EXECUTE again('{"k": 62}');

-- called for many rows of one query, and nested
SELECT g, r.inserted, r.stored FROM generate_series(1, 4) g, LATERAL idempotency.insert_or_return(NULL::by_expression, jsonb_build_object('k', 'k' || g % 2)) r;

-- names that need quoting
CREATE SCHEMA "odd schema";
CREATE TABLE "odd schema"."odd "" table" ("odd ""column" int PRIMARY KEY, "select" int DEFAULT 3);
SELECT * FROM idempotency.insert_or_return(NULL::"odd schema"."odd "" table", '{"odd \"column": 1}');
SELECT * FROM idempotency.insert_or_return(NULL::"odd schema"."odd "" table", '{"odd \"column": 1}', key => ARRAY['odd "column']::name[]);

DROP SCHEMA "odd schema" CASCADE;
DROP SCHEMA regress_insert_or_return CASCADE;
DROP EXTENSION idempotency;
