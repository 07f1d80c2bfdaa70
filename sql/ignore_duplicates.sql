-- ignore_duplicates: an unchanged INSERT skips the rows whose key is there.
SET client_min_messages = warning;
CREATE EXTENSION idempotency;
CREATE SCHEMA regress_ignore_duplicates;
SET search_path = regress_ignore_duplicates, public;
\i test/lib/error_of.psql
\pset null NULL
CREATE TABLE event (id int PRIMARY KEY, what text UNIQUE, n int DEFAULT 0);
CREATE TRIGGER zz_ignore BEFORE INSERT ON event FOR EACH ROW EXECUTE FUNCTION idempotency.ignore_duplicates('id');

-- one row, many rows, within one statement, from a query; the command's tag counts what was stored
\set QUIET off
INSERT INTO event VALUES (1, 'a');
INSERT INTO event VALUES (1, 'b');
INSERT INTO event VALUES (2, 'b'), (1, 'c'), (2, 'd'), (3, 'e') RETURNING id, what;
INSERT INTO event SELECT i, 'f' || i FROM generate_series(1, 5) i;
INSERT INTO event SELECT i % 3 + 6, 'g' || i % 3 FROM generate_series(1, 9) i;
WITH first AS (INSERT INTO event VALUES (10, 'h') RETURNING id)
INSERT INTO event SELECT id, 'i' FROM first;
INSERT INTO event VALUES (1, 'z') ON CONFLICT DO NOTHING;
COPY event (id, what) FROM stdin;
1	j
11	k
11	l
12	m
\.
\set QUIET on
SELECT * FROM event ORDER BY id;

-- another unique key is that key's own error
INSERT INTO event VALUES (20, 'a');
-- and what else is wrong with a row
INSERT INTO event VALUES (NULL, 'x');

-- on such a table DO UPDATE does nothing: refused where the client says it
INSERT INTO event VALUES (1, 'a') ON CONFLICT (id) DO UPDATE SET n = 1;
WITH up AS (INSERT INTO event VALUES (1, 'a') ON CONFLICT (id) DO UPDATE SET n = 1 RETURNING *) SELECT * FROM up;
DO $$ BEGIN INSERT INTO event VALUES (1, 'a') ON CONFLICT (id) DO UPDATE SET n = 1; END $$;
SELECT n FROM event WHERE id = 1;

-- G2: what was rolled back is not there
BEGIN;
SAVEPOINT s;
INSERT INTO event VALUES (30, 'o');
ROLLBACK TO s;
INSERT INTO event VALUES (30, 'p');
INSERT INTO event VALUES (30, 'q');
COMMIT;
BEGIN;
INSERT INTO event VALUES (31, 'r');
ROLLBACK;
INSERT INTO event VALUES (31, 's');
SELECT id, what FROM event WHERE id >= 30 ORDER BY id;
DELETE FROM event WHERE id = 31;
INSERT INTO event VALUES (31, 't');
-- an error in the middle leaves no lock behind
BEGIN;
SAVEPOINT s;
INSERT INTO event VALUES (40, 'u'), (41, 'a');
ROLLBACK TO s;
SELECT count(*) AS key_locks FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 117;
INSERT INTO event SELECT i, 'v' || i FROM generate_series(40, 140) i;
SELECT count(*) AS key_locks FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 117;
COMMIT;
SELECT count(*) AS key_locks FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 117;

-- each kind of key
CREATE TABLE soft (k text, deleted boolean NOT NULL DEFAULT false, other int, day date);
CREATE UNIQUE INDEX soft_live ON soft (lower(k)) WHERE NOT deleted;
CREATE TRIGGER zz_ignore BEFORE INSERT ON soft FOR EACH ROW EXECUTE FUNCTION idempotency.ignore_duplicates('soft_live');
INSERT INTO soft (k) VALUES ('A'), ('a'), ('b'), (NULL), (NULL);
INSERT INTO soft (k, deleted) VALUES ('a', true), ('A', true);
SELECT k, deleted FROM soft ORDER BY k COLLATE "C", deleted;
CREATE TABLE pair (a int, b text, n int, UNIQUE (a, b), UNIQUE (n) DEFERRABLE);
CREATE TRIGGER zz_ignore BEFORE INSERT ON pair FOR EACH ROW EXECUTE FUNCTION idempotency.ignore_duplicates('b', 'a');
INSERT INTO pair VALUES (1, 'x', 1), (1, 'x', 2), (1, 'y', 3), (NULL, 'x', 4), (NULL, 'x', 5);
SELECT * FROM pair ORDER BY n;
-- without arguments, the only key
CREATE TABLE single (k int UNIQUE);
CREATE TRIGGER zz_ignore BEFORE INSERT ON single FOR EACH ROW EXECUTE FUNCTION idempotency.ignore_duplicates();
INSERT INTO single VALUES (1), (1), (NULL), (NULL);
SELECT * FROM single ORDER BY k;
-- defaults and generated columns are part of the row that is looked at
CREATE TABLE made (k text DEFAULT 'one', g text GENERATED ALWAYS AS (upper(k)) STORED UNIQUE);
CREATE TRIGGER zz_ignore BEFORE INSERT ON made FOR EACH ROW EXECUTE FUNCTION idempotency.ignore_duplicates('made_g_key');
INSERT INTO made DEFAULT VALUES;
INSERT INTO made VALUES ('ONE'), ('two');
SELECT * FROM made ORDER BY k COLLATE "C";

-- partitions: the parent's key
CREATE TABLE parted (k int, n int, PRIMARY KEY (k)) PARTITION BY RANGE (k);
CREATE TABLE parted_low PARTITION OF parted FOR VALUES FROM (0) TO (10);
CREATE TABLE parted_high (n int, k int NOT NULL);
ALTER TABLE parted ATTACH PARTITION parted_high FOR VALUES FROM (10) TO (20);
CREATE TRIGGER zz_ignore BEFORE INSERT ON parted FOR EACH ROW EXECUTE FUNCTION idempotency.ignore_duplicates('k');
INSERT INTO parted VALUES (1, 1), (11, 1), (1, 2), (11, 2);
INSERT INTO parted_low VALUES (1, 3), (2, 3);
SELECT tableoid::regclass, k, n FROM parted ORDER BY k;
-- a row that moves to another partition is not new
UPDATE parted SET k = 12 WHERE k = 2;
SELECT tableoid::regclass, k, n FROM parted ORDER BY k;
CREATE TABLE local (k int, day date) PARTITION BY LIST (day);
CREATE TABLE local_1 PARTITION OF local (UNIQUE (k)) FOR VALUES IN ('2026-01-01');
CREATE TRIGGER zz_ignore BEFORE INSERT ON local FOR EACH ROW EXECUTE FUNCTION idempotency.ignore_duplicates('k');
SELECT * FROM pg_temp.error_of($$INSERT INTO local VALUES (1, '2026-01-01')$$);

-- other BEFORE triggers run first, by name; what they make of the key counts
CREATE TABLE tidied (k text PRIMARY KEY);
CREATE FUNCTION tidy() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.k := lower(NEW.k); RETURN NEW; END $$;
CREATE TRIGGER tidy BEFORE INSERT ON tidied FOR EACH ROW EXECUTE FUNCTION tidy();
CREATE TRIGGER zz_ignore BEFORE INSERT ON tidied FOR EACH ROW EXECUTE FUNCTION idempotency.ignore_duplicates('k');
INSERT INTO tidied VALUES ('A'), ('a'), ('B');
SELECT * FROM tidied ORDER BY k COLLATE "C";
-- a trigger that inserts into a table of the same kind, while the outer row is not stored yet
CREATE TABLE outer_one (k int PRIMARY KEY);
CREATE TABLE inner_one (k int PRIMARY KEY);
CREATE FUNCTION inner_rows() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO inner_one VALUES (NEW.k), (NEW.k), (NEW.k % 2); RETURN NEW; END $$;
CREATE TRIGGER a_inner BEFORE INSERT ON outer_one FOR EACH ROW EXECUTE FUNCTION inner_rows();
CREATE TRIGGER zz_ignore BEFORE INSERT ON outer_one FOR EACH ROW EXECUTE FUNCTION idempotency.ignore_duplicates('k');
CREATE TRIGGER zz_ignore BEFORE INSERT ON inner_one FOR EACH ROW EXECUTE FUNCTION idempotency.ignore_duplicates('k');
INSERT INTO outer_one VALUES (5), (6), (5);
SELECT (SELECT array_agg(k ORDER BY k) FROM outer_one) AS outer_rows, (SELECT array_agg(k ORDER BY k) FROM inner_one) AS inner_rows;

-- with insert_or_return on the same table
SELECT * FROM idempotency.insert_or_return(NULL::single, '{"k": 1}');
SELECT * FROM idempotency.insert_or_return(NULL::single, '{"k": 2}');
INSERT INTO single VALUES (2), (3);
SELECT array_agg(k ORDER BY k) FROM single;

-- G6: by the transaction's snapshot
BEGIN ISOLATION LEVEL REPEATABLE READ;
INSERT INTO single VALUES (3), (4), (4);
COMMIT;
BEGIN ISOLATION LEVEL SERIALIZABLE;
INSERT INTO single VALUES (4), (5), (5);
COMMIT;
SELECT array_agg(k ORDER BY k) FROM single;

-- G10: what it cannot be
SELECT * FROM pg_temp.error_of($$SELECT idempotency.ignore_duplicates()$$);
CREATE TABLE misused (k int PRIMARY KEY, j int UNIQUE, d int UNIQUE DEFERRABLE);
CREATE TRIGGER t BEFORE UPDATE ON misused FOR EACH ROW EXECUTE FUNCTION idempotency.ignore_duplicates('k');
CREATE TRIGGER u AFTER INSERT ON misused FOR EACH ROW EXECUTE FUNCTION idempotency.ignore_duplicates('k');
SELECT * FROM pg_temp.error_of($$INSERT INTO misused VALUES (1, 1, 1)$$);
DROP TRIGGER u ON misused;
CREATE TRIGGER u BEFORE INSERT ON misused FOR EACH STATEMENT EXECUTE FUNCTION idempotency.ignore_duplicates('k');
SELECT code, message FROM pg_temp.error_of($$INSERT INTO misused VALUES (1, 1, 1)$$);
DROP TRIGGER u ON misused;
INSERT INTO misused VALUES (1, 1, 1);
SELECT code, message FROM pg_temp.error_of($$UPDATE misused SET k = 2$$);
CREATE FUNCTION pg_temp.with_arguments(arguments text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	e record;
BEGIN
	EXECUTE format('CREATE OR REPLACE TRIGGER v BEFORE INSERT ON misused FOR EACH ROW EXECUTE FUNCTION idempotency.ignore_duplicates(%s)', arguments);
	SELECT * FROM pg_temp.error_of('INSERT INTO misused VALUES (1, 1, 1)') INTO e;
	RETURN coalesce(e.code || ' ' || e.message, 'accepted');
END $$;
SELECT arguments, pg_temp.with_arguments(arguments) FROM unnest(ARRAY['', '''j''', '''missing''', '''d''', '''k'', ''j''']) WITH ORDINALITY a(arguments, n) ORDER BY n;

DROP SCHEMA regress_ignore_duplicates CASCADE;
DROP EXTENSION idempotency;
