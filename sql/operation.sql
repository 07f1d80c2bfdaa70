-- lookup, forget, rename_scope.
SET client_min_messages = warning;
CREATE EXTENSION idempotency;
\i test/lib/error_of.psql
\pset null NULL
CREATE TABLE points (id int PRIMARY KEY, balance bigint NOT NULL DEFAULT 0);
INSERT INTO points SELECT i FROM generate_series(1, 5) i;
SELECT outcome FROM idempotency.accumulate('points', 1, 'balance', 10, 'a', scope => 's');
SELECT outcome FROM idempotency.accumulate('points', 1, 'balance', 20, 'b', scope => 's', ttl => '1 day');

-- lookup: all public columns but the two it is asked for
SELECT state, created_at = completed_at AS at_once, expires_at, length(request_digest) AS digest_bytes, target, target_key,
	column_name, delta, value, from_state, to_state, response, response_expires_at, error, fence, attempt, lease_until,
	checkpoint, checkpoint_data, actor
FROM idempotency.lookup('s', 'a');
SELECT array_agg(attname::text ORDER BY attnum) FILTER (WHERE attnum > 2) =
	(SELECT p.proargnames[4:] FROM pg_proc p WHERE p.oid = 'idempotency.lookup'::regproc) AS same_columns
FROM pg_attribute WHERE attrelid = 'idempotency.operation_log'::regclass AND attnum > 0;
SELECT state, value FROM idempotency.lookup('s', 'nothing');
SELECT state, value FROM idempotency.lookup('nowhere', 'a');
-- it takes part in its own transaction, and in none that it could hold up
BEGIN READ ONLY;
SELECT state, value FROM idempotency.lookup('s', 'a');
COMMIT;
UPDATE idempotency.operation_log SET expires_at = clock_timestamp() WHERE operation_id = 'b';
SELECT state, value FROM idempotency.lookup('s', 'b');

-- forget: the id counts as never used
SELECT idempotency.forget('s', 'a');
SELECT idempotency.forget('s', 'a');
SELECT idempotency.forget('s', 'b') AS expired, (SELECT count(*) FROM idempotency.operation_log) AS rows;
SELECT outcome, value FROM idempotency.accumulate('points', 1, 'balance', 10, 'a', scope => 's');
BEGIN;
SELECT idempotency.forget('s', 'a');
ROLLBACK;
SELECT state FROM idempotency.lookup('s', 'a');
SELECT code FROM pg_temp.error_of($$SET LOCAL transaction_read_only = on; SELECT idempotency.forget('s', 'a')$$);

-- rename_scope: after a table was renamed, its operations are still known
SELECT outcome, value FROM idempotency.accumulate('points', 2, 'balance', 5, 'x');
SELECT outcome, value FROM idempotency.accumulate('points', 2, 'balance', 6, 'y');
ALTER TABLE points RENAME TO credits;
SELECT idempotency.rename_scope('public.points.balance', 'public.credits.balance');
SELECT outcome, value FROM idempotency.accumulate('credits', 2, 'balance', 5, 'x');
SELECT idempotency.rename_scope('public.points.balance', 'public.credits.balance');
-- ids in common
SELECT outcome, value FROM idempotency.accumulate('credits', 3, 'balance', 5, 'x', scope => 'other');
SELECT outcome, value FROM idempotency.accumulate('credits', 3, 'balance', 5, 'z', scope => 'other');
SELECT * FROM pg_temp.error_of($$SELECT idempotency.rename_scope('other', 'public.credits.balance')$$);
SELECT scope, count(*) FROM idempotency.operation_log GROUP BY 1 ORDER BY 1;
-- one that has expired is in nobody's way
UPDATE idempotency.operation_log SET expires_at = clock_timestamp() WHERE scope = 'public.credits.balance' AND operation_id = 'x';
SELECT idempotency.rename_scope('other', 'public.credits.balance');
SELECT operation_id, target_key FROM idempotency.operation_log WHERE scope = 'public.credits.balance' ORDER BY 1;
-- on either side
SELECT outcome, value FROM idempotency.accumulate('credits', 3, 'balance', 5, 'y', scope => 'other');
UPDATE idempotency.operation_log SET expires_at = clock_timestamp() WHERE scope = 'other' AND operation_id = 'y';
SELECT idempotency.rename_scope('other', 'public.credits.balance');
SELECT operation_id, target_key FROM idempotency.operation_log WHERE scope = 'public.credits.balance' ORDER BY 1;
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT idempotency.rename_scope('public.credits.balance', 'credits');
COMMIT;
SELECT code FROM pg_temp.error_of($$SET LOCAL transaction_read_only = on; SELECT idempotency.rename_scope('credits', 'x')$$);
SELECT * FROM pg_temp.error_of($$SELECT idempotency.rename_scope('credits', 'credits')$$);

-- in another log
CREATE TABLE own_log (LIKE idempotency.operation_log INCLUDING ALL);
SELECT outcome, value FROM idempotency.accumulate('credits', 4, 'balance', 5, 'x', scope => 's', log => 'own_log');
SELECT state FROM idempotency.lookup('s', 'x', 'own_log');
SELECT idempotency.rename_scope('s', 't', log => 'own_log');
SELECT idempotency.forget('t', 'x', log => 'own_log');

DROP TABLE credits, own_log;
DROP EXTENSION idempotency;
