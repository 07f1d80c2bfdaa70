-- The log: how long it remembers, logs of one's own, and rows that others wrote.
SET client_min_messages = warning;
CREATE EXTENSION idempotency;
\i test/lib/error_of.psql
\pset null NULL
CREATE TABLE points (id int PRIMARY KEY, balance bigint NOT NULL DEFAULT 0);
INSERT INTO points SELECT i FROM generate_series(1, 5) i;

-- ttl counts from completion, by the server's clock, not from the transaction's start (G5)
SELECT outcome FROM idempotency.accumulate('points', 1, 'balance', 1, 'day', ttl => '1 day');
SELECT outcome FROM idempotency.accumulate('points', 1, 'balance', 1, 'month', ttl => '1 month');
SELECT outcome FROM idempotency.accumulate('points', 1, 'balance', 1, 'ever');
SELECT operation_id, expires_at = completed_at + '1 day'::interval AS a_day, expires_at = completed_at + '1 month'::interval AS a_month, expires_at
	IS NULL AS never FROM idempotency.operation_log ORDER BY 1;
SET idempotency.default_ttl = '2h';
SELECT outcome FROM idempotency.accumulate('points', 1, 'balance', 1, 'default');
SELECT outcome FROM idempotency.accumulate('points', 1, 'balance', 1, 'own', ttl => '3 hours');
SELECT operation_id, expires_at - completed_at AS remembered FROM idempotency.operation_log WHERE operation_id IN ('default', 'own') ORDER BY 1;
RESET idempotency.default_ttl;
BEGIN;
SELECT pg_sleep(0.05) IS NOT NULL AS slept;
SELECT outcome FROM idempotency.accumulate('points', 1, 'balance', 1, 'late');
SELECT completed_at >= now() + '50 ms'::interval AS after_the_sleep FROM idempotency.lookup('public.points.balance', 'late');
COMMIT;

-- G7 expiry: an expired id is absent for every reader, purged or not, and can be used again, for another request too
UPDATE idempotency.operation_log SET expires_at = clock_timestamp() WHERE operation_id = 'day';
SELECT state FROM idempotency.lookup('public.points.balance', 'day');
SELECT code FROM pg_temp.error_of($$SET LOCAL transaction_read_only = on; SELECT idempotency.accumulate('points', 1, 'balance', 1, 'day')$$);
SELECT outcome, value FROM idempotency.accumulate('points', 2, 'balance', 7, 'day', ttl => '1 day');
SELECT outcome, value FROM idempotency.accumulate('points', 2, 'balance', 7, 'day');
SELECT operation_id, target_key, delta FROM idempotency.operation_log WHERE operation_id = 'day';
UPDATE idempotency.operation_log SET expires_at = clock_timestamp() WHERE operation_id = 'day';
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT outcome, value FROM idempotency.accumulate('points', 2, 'balance', 7, 'day');
SELECT outcome, value FROM idempotency.accumulate('points', 2, 'balance', 7, 'day');
COMMIT;
-- rolled back, the expired row is as it was
UPDATE idempotency.operation_log SET expires_at = '2026-01-01' WHERE operation_id = 'day';
BEGIN;
SELECT outcome, value FROM idempotency.accumulate('points', 2, 'balance', 1, 'day', wait => '0');
ROLLBACK;
SELECT delta, expires_at = '2026-01-01' AS expired FROM idempotency.operation_log WHERE operation_id = 'day';
SELECT outcome, value FROM idempotency.accumulate('points', 2, 'balance', -100, 'day', minimum => 0, on_reject => 'record');
SELECT state FROM idempotency.lookup('public.points.balance', 'day');

-- a log of one's own is another domain
CREATE SCHEMA app;
CREATE TABLE app.log (LIKE idempotency.operation_log INCLUDING ALL);
SELECT outcome, value FROM idempotency.accumulate('points', 3, 'balance', 1, 'twice');
SELECT outcome, value FROM idempotency.accumulate('points', 3, 'balance', 1, 'twice', log => 'app.log');
SELECT outcome, value FROM idempotency.accumulate('points', 3, 'balance', 1, 'twice', log => 'app.log');
SELECT count(*) FROM app.log;
-- with columns, an index and a trigger that others added; with its columns in another order
ALTER TABLE app.log ADD COLUMN note text DEFAULT 'x', ADD COLUMN at timestamptz DEFAULT now();
CREATE INDEX ON app.log (at);
SELECT outcome, value FROM idempotency.accumulate('points', 3, 'balance', 1, 'thrice', log => 'app.log');
SELECT operation_id, note FROM app.log ORDER BY 1;
ALTER TABLE app.log RENAME TO journal;
SELECT outcome, value FROM idempotency.accumulate('points', 3, 'balance', 1, 'thrice', log => 'app.journal');
ALTER TABLE app.journal DROP COLUMN state, ADD COLUMN state text COLLATE "C" NOT NULL DEFAULT 'done';
SELECT outcome, value FROM idempotency.accumulate('points', 3, 'balance', 1, 'thrice', log => 'app.journal');
CREATE FUNCTION app.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
CREATE TRIGGER refuse BEFORE INSERT ON app.journal FOR EACH ROW EXECUTE FUNCTION app.refuse();
SELECT code, message FROM pg_temp.error_of($$SELECT idempotency.accumulate('points', 3, 'balance', 1, 'four', log => 'app.journal')$$);
DROP TRIGGER refuse ON app.journal;

-- what cannot serve as a log, each with its reason
CREATE TABLE app.no_key (LIKE idempotency.operation_log);
CREATE TABLE app.other_key (LIKE idempotency.operation_log, UNIQUE (operation_id));
CREATE TABLE app.deferred (LIKE idempotency.operation_log, PRIMARY KEY (scope, operation_id) DEFERRABLE);
CREATE TABLE app.other_type (LIKE idempotency.operation_log INCLUDING ALL);
ALTER TABLE app.other_type ALTER COLUMN delta TYPE bigint;
CREATE TABLE app.other_modifier (LIKE idempotency.operation_log INCLUDING ALL);
ALTER TABLE app.other_modifier ALTER COLUMN value TYPE numeric(10, 1);
CREATE TABLE app.other_collation (LIKE idempotency.operation_log);
ALTER TABLE app.other_collation ALTER COLUMN operation_id TYPE text COLLATE "POSIX", ADD PRIMARY KEY (scope, operation_id);
CREATE TABLE app.nullable (LIKE idempotency.operation_log INCLUDING ALL);
ALTER TABLE app.nullable ALTER COLUMN state DROP NOT NULL;
CREATE TABLE app.second_key (LIKE idempotency.operation_log INCLUDING ALL, UNIQUE (target, value));
CREATE TABLE app.parent (LIKE idempotency.operation_log INCLUDING ALL);
CREATE TABLE app.child () INHERITS (app.parent);
CREATE UNLOGGED TABLE app.unlogged (LIKE idempotency.operation_log INCLUDING ALL);
CREATE TEMP TABLE temporary_log (LIKE idempotency.operation_log INCLUDING ALL);
CREATE VIEW app.seen AS TABLE idempotency.operation_log;
SELECT * FROM pg_temp.error_of($$SELECT idempotency.accumulate('points', 3, 'balance', 1, 'x', log => 'points')$$);
SELECT detail FROM pg_temp.error_of($$SELECT idempotency.accumulate('points', 3, 'balance', 1, 'x', log => 'app.no_key')$$);
SELECT detail FROM pg_temp.error_of($$SELECT idempotency.accumulate('points', 3, 'balance', 1, 'x', log => 'app.other_key')$$);
SELECT detail FROM pg_temp.error_of($$SELECT idempotency.accumulate('points', 3, 'balance', 1, 'x', log => 'app.deferred')$$);
SELECT detail FROM pg_temp.error_of($$SELECT idempotency.accumulate('points', 3, 'balance', 1, 'x', log => 'app.other_type')$$);
SELECT detail FROM pg_temp.error_of($$SELECT idempotency.accumulate('points', 3, 'balance', 1, 'x', log => 'app.other_modifier')$$);
SELECT detail FROM pg_temp.error_of($$SELECT idempotency.accumulate('points', 3, 'balance', 1, 'x', log => 'app.other_collation')$$);
SELECT detail FROM pg_temp.error_of($$SELECT idempotency.accumulate('points', 3, 'balance', 1, 'x', log => 'app.nullable')$$);
SELECT detail FROM pg_temp.error_of($$SELECT idempotency.accumulate('points', 3, 'balance', 1, 'x', log => 'app.second_key')$$);
SELECT detail FROM pg_temp.error_of($$SELECT idempotency.accumulate('points', 3, 'balance', 1, 'x', log => 'app.parent')$$);
SELECT detail FROM pg_temp.error_of($$SELECT idempotency.accumulate('points', 3, 'balance', 1, 'x', log => 'app.unlogged')$$);
SELECT detail FROM pg_temp.error_of($$SELECT idempotency.accumulate('points', 3, 'balance', 1, 'x', log => 'temporary_log')$$);
SELECT detail FROM pg_temp.error_of($$SELECT idempotency.accumulate('points', 3, 'balance', 1, 'x', log => 'app.seen')$$);
SELECT * FROM pg_temp.error_of($$SELECT idempotency.accumulate('points', 3, 'balance', 1, 'x', log => 987654321::oid::regclass)$$);
SELECT * FROM pg_temp.error_of($$SELECT idempotency.accumulate('points', 3, 'balance', 1, 'x', log => NULL)$$);
-- made one after all
ALTER TABLE app.no_key ADD PRIMARY KEY (scope, operation_id);
SELECT outcome FROM idempotency.accumulate('points', 3, 'balance', 1, 'made', log => 'app.no_key');
-- and no longer
ALTER TABLE app.no_key DROP CONSTRAINT no_key_pkey;
SELECT detail FROM pg_temp.error_of($$SELECT idempotency.accumulate('points', 3, 'balance', 1, 'made', log => 'app.no_key')$$);

-- rows that were written behind the functions' back are answered by what they say, or refused
INSERT INTO idempotency.operation_log (scope, operation_id, state, value) VALUES
	('own', 'forbidden', 'forbidden', NULL), ('own', 'done', 'done', 5), ('own', 'odd', 'nonsense', 5);
SELECT * FROM idempotency.accumulate('points', 4, 'balance', 1, 'forbidden', scope => 'own');
SELECT code, detail FROM pg_temp.error_of($$SELECT idempotency.accumulate('points', 4, 'balance', 1, 'done', scope => 'own')$$);
SELECT * FROM pg_temp.error_of($$SELECT idempotency.accumulate('points', 4, 'balance', 1, 'odd', scope => 'own')$$);
UPDATE idempotency.operation_log SET request_digest = '\x01', target = 'points' WHERE operation_id = 'done';
SELECT code FROM pg_temp.error_of($$SELECT idempotency.accumulate('points', 4, 'balance', 1, 'done', scope => 'own')$$);
-- another table's key is not read, and not shown
CREATE TABLE people (mail text PRIMARY KEY, n int NOT NULL DEFAULT 0);
INSERT INTO people VALUES ('secret@example.org');
SELECT outcome FROM idempotency.accumulate('people', 'secret@example.org', 'n', 1, 'mail', scope => 'own');
SELECT code, detail FROM pg_temp.error_of($$SELECT idempotency.accumulate('points', 4, 'n', 1, 'mail', scope => 'own')$$);
UPDATE idempotency.operation_log SET target_key = '{"id": null}' WHERE operation_id = 'done';
SELECT code FROM pg_temp.error_of($$SELECT idempotency.accumulate('points', 4, 'balance', 1, 'done', scope => 'own')$$);
DROP TABLE people;
SELECT balance FROM points WHERE id = 4;

SET client_min_messages = error;
DROP SCHEMA app CASCADE;
DROP TABLE points, temporary_log;
DROP EXTENSION idempotency;
