-- accumulate: every outcome, and what each leaves behind.
SET client_min_messages = warning;
CREATE EXTENSION idempotency;
\i test/lib/error_of.psql
\pset null NULL

CREATE TABLE points (id int PRIMARY KEY, balance bigint NOT NULL DEFAULT 0, note text DEFAULT 'new');
INSERT INTO points SELECT i FROM generate_series(1, 9) i;

-- G1 once: the first call applies, every other one is a duplicate with the recorded result
SELECT outcome, value, applied_at IS NOT NULL AS has_time FROM idempotency.accumulate('points', 1, 'balance', 50, 'pay-1');
SELECT outcome, value FROM idempotency.accumulate('points', 1, 'balance', 25, 'pay-2');
SELECT outcome, value FROM idempotency.accumulate('points', 1, 'balance', 50, 'pay-1');
SELECT balance FROM points WHERE id = 1;
SELECT a.applied_at = l.completed_at AND l.created_at = l.completed_at AS same_time
FROM idempotency.accumulate('points', 1, 'balance', 50, 'pay-1') a, idempotency.lookup('public.points.balance', 'pay-1') l;

-- once per scope, and once per statement: three calls in one statement are one effect
SELECT outcome, value FROM idempotency.accumulate('points', 1, 'balance', 50, 'pay-1', scope => 'elsewhere');
SELECT a.outcome, a.value FROM generate_series(1, 3) i, LATERAL idempotency.accumulate('points', 2, 'balance', i - i + 7, 'thrice') a;
SELECT id, balance FROM points WHERE id <= 2 ORDER BY id;

-- what the log has
SELECT scope, operation_id, state, target, target_key, column_name, delta, value, expires_at,
	response, fence, lease_until, from_state
FROM idempotency.operation_log ORDER BY scope, operation_id;

-- G2 one transaction: rolled back together, to a savepoint too
BEGIN;
SELECT outcome, value FROM idempotency.accumulate('points', 3, 'balance', 1, 'rolled-back');
ROLLBACK;
SELECT state FROM idempotency.lookup('public.points.balance', 'rolled-back');
SELECT outcome, value FROM idempotency.accumulate('points', 3, 'balance', 1, 'rolled-back');
BEGIN;
SAVEPOINT a;
SELECT outcome, value FROM idempotency.accumulate('points', 3, 'balance', 2, 'savepoint');
ROLLBACK TO a;
SELECT outcome, value FROM idempotency.accumulate('points', 3, 'balance', 2, 'savepoint');
SAVEPOINT b;
SELECT outcome, value FROM idempotency.accumulate('points', 3, 'balance', 2, 'savepoint');
SELECT outcome, value FROM idempotency.accumulate('points', 3, 'balance', 4, 'released');
RELEASE b;
SELECT outcome, value FROM idempotency.accumulate('points', 3, 'balance', 4, 'released');
COMMIT;
SELECT balance FROM points WHERE id = 3;

-- G4 no impostor: another request under the same id moves nothing; values are equal as SQL says
SELECT outcome FROM idempotency.accumulate('points', 1, 'balance', 50.00, 'pay-1');
SELECT * FROM pg_temp.error_of($$SELECT idempotency.accumulate('points', 1, 'balance', 51, 'pay-1')$$);
SELECT code, detail FROM pg_temp.error_of($$SELECT idempotency.accumulate('points', 2, 'balance', 50, 'pay-1')$$);
SELECT code, detail FROM pg_temp.error_of($$SELECT idempotency.accumulate('points', 1, 'balance', 50, 'pay-1', minimum => 0)$$);
SELECT code, detail FROM pg_temp.error_of($$SELECT idempotency.accumulate('points', 1, 'balance', 50, 'pay-1', maximum => 1000, minimum => -5)$$);
CREATE TABLE other_points (LIKE points INCLUDING ALL);
INSERT INTO other_points VALUES (1);
SELECT code, detail FROM pg_temp.error_of($$SELECT idempotency.accumulate('other_points', 1, 'balance', 50, 'pay-1', scope => 'public.points.balance')$$);
SELECT id, balance FROM points WHERE id <= 3 ORDER BY id;
-- also a request that would be refused for another reason, and a retry that would be
SELECT code FROM pg_temp.error_of($$SELECT idempotency.accumulate('points', 1000, 'balance', 50, 'pay-1')$$);
UPDATE points SET balance = 0 WHERE id = 1;
SELECT outcome, value FROM idempotency.accumulate('points', 4, 'balance', 10, 'limited', maximum => 10);
UPDATE points SET balance = 1000 WHERE id = 4;
SELECT outcome, value FROM idempotency.accumulate('points', 4, 'balance', 10, 'limited', maximum => 10);
DELETE FROM points WHERE id = 4;
SELECT outcome, value FROM idempotency.accumulate('points', 4, 'balance', 10, 'limited', maximum => 10);
-- how to answer is not part of the request
SELECT outcome FROM idempotency.accumulate('points', 1, 'balance', 50, 'pay-1', create_missing => true,
	on_reject => 'record', ttl => '1 day', wait => '0');

-- limits: inclusive, and each way to be told
SELECT outcome, value FROM idempotency.accumulate('points', 5, 'balance', 10, 'to-ten', maximum => 10);
SELECT outcome, value FROM idempotency.accumulate('points', 5, 'balance', -10, 'to-zero', minimum => 0);
SELECT * FROM pg_temp.error_of($$SELECT idempotency.accumulate('points', 5, 'balance', -1, 'below', minimum => 0)$$);
SELECT * FROM pg_temp.error_of($$SELECT idempotency.accumulate('points', 5, 'balance', 11, 'above', minimum => 0, maximum => 10.5)$$);
SELECT * FROM idempotency.accumulate('points', 5, 'balance', -1, 'below', minimum => 0, on_reject => 'return');
-- nothing recorded, so the id is free
UPDATE points SET balance = 1 WHERE id = 5;
SELECT outcome, value FROM idempotency.accumulate('points', 5, 'balance', -1, 'below', minimum => 0, on_reject => 'return');
-- a recorded rejection sticks: a late retry can never apply
SELECT * FROM idempotency.accumulate('points', 5, 'balance', -7, 'refused', minimum => 0, on_reject => 'record');
UPDATE points SET balance = 100 WHERE id = 5;
SELECT * FROM idempotency.accumulate('points', 5, 'balance', -7, 'refused', minimum => 0, on_reject => 'record');
SELECT * FROM idempotency.accumulate('points', 5, 'balance', -7, 'refused', minimum => 0, on_reject => 'return');
SELECT * FROM pg_temp.error_of($$SELECT idempotency.accumulate('points', 5, 'balance', -7, 'refused', minimum => 0)$$);
SELECT code FROM pg_temp.error_of($$SELECT idempotency.accumulate('points', 5, 'balance', -8, 'refused', minimum => 0)$$);
SELECT state, delta, value, completed_at IS NOT NULL AS completed FROM idempotency.lookup('public.points.balance', 'refused');
SELECT balance FROM points WHERE id = 5;

-- a missing row
SELECT * FROM pg_temp.error_of($$SELECT idempotency.accumulate('points', 77, 'balance', 5, 'first')$$);
SELECT outcome, value FROM idempotency.accumulate('points', 77, 'balance', 5, 'first', create_missing => true);
SELECT outcome, value FROM idempotency.accumulate('points', 77, 'balance', 5, 'first', create_missing => true);
SELECT outcome, value FROM idempotency.accumulate('points', 77, 'balance', 6, 'second', create_missing => true);
SELECT * FROM points WHERE id = 77;
-- it counts from zero, and the limits hold
SELECT * FROM idempotency.accumulate('points', 78, 'balance', -5, 'debt', minimum => 0, create_missing => true, on_reject => 'return');
SELECT * FROM idempotency.accumulate('points', 78, 'balance', -5, 'debt', minimum => 0, create_missing => true, on_reject => 'record');
SELECT * FROM idempotency.accumulate('points', 78, 'balance', -5, 'debt', minimum => 0, create_missing => true, on_reject => 'return');
SELECT count(*) FROM points WHERE id = 78;

-- a wait that is limited goes another way, to the same answers
SELECT outcome, value FROM idempotency.accumulate('points', 6, 'balance', 5, 'limited-wait', wait => '0');
SELECT outcome, value FROM idempotency.accumulate('points', 6, 'balance', 5, 'limited-wait', wait => '1 s');
SELECT outcome, value FROM idempotency.accumulate('points', 79, 'balance', 5, 'limited-wait-create', wait => '1 s', create_missing => true);
SELECT code FROM pg_temp.error_of($$SELECT idempotency.accumulate('points', 80, 'balance', 5, 'limited-wait-missing', wait => '1 s')$$);
SELECT outcome, value FROM idempotency.accumulate('points', 6, 'balance', -6, 'limited-wait-refused', wait => '0', minimum => 0, on_reject => 'return');

-- G3 quiet duplicates: in a READ ONLY transaction too; anything else is for the primary
BEGIN READ ONLY;
SELECT outcome, value FROM idempotency.accumulate('points', 1, 'balance', 50, 'pay-1');
SELECT outcome FROM idempotency.accumulate('points', 5, 'balance', -7, 'refused', minimum => 0, on_reject => 'return');
SELECT pg_current_xact_id_if_assigned();
SELECT code, detail FROM pg_temp.error_of($$SELECT idempotency.accumulate('points', 1, 'balance', 51, 'pay-1')$$);
SELECT idempotency.accumulate('points', 1, 'balance', 50, 'never-seen');
ROLLBACK;
SELECT code FROM pg_temp.error_of($$SET LOCAL transaction_read_only = on; SELECT idempotency.accumulate('points', 1, 'balance', 50, 'never-seen')$$);

-- G6 isolation: alone, every level gives the same answers
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT outcome, value FROM idempotency.accumulate('points', 7, 'balance', 5, 'rr');
SELECT outcome, value FROM idempotency.accumulate('points', 7, 'balance', 5, 'rr');
SELECT outcome, value FROM idempotency.accumulate('points', 7, 'balance', -9, 'rr-refused', minimum => 0, on_reject => 'record');
SELECT outcome, value FROM idempotency.accumulate('points', 7, 'balance', -9, 'rr-refused', minimum => 0, on_reject => 'record');
SELECT outcome, value FROM idempotency.accumulate('points', 81, 'balance', 5, 'rr-create', create_missing => true);
SELECT outcome, value FROM idempotency.accumulate('points', 81, 'balance', 5, 'rr-create', create_missing => true);
COMMIT;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT outcome, value FROM idempotency.accumulate('points', 7, 'balance', 5, 'ser');
SELECT outcome, value FROM idempotency.accumulate('points', 7, 'balance', 5, 'ser', wait => '0');
SELECT outcome, value FROM idempotency.accumulate('points', 82, 'balance', 5, 'ser-create', create_missing => true, wait => '0');
COMMIT;

-- a trigger that calls back with the id that fires it would never end
CREATE FUNCTION call_back() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM idempotency.accumulate('points', 9, 'balance', 1, TG_ARGV[0]);
	RETURN NULL;
END $$;
CREATE TRIGGER call_back AFTER UPDATE ON points FOR EACH ROW WHEN (NEW.id = 8) EXECUTE FUNCTION call_back('nested');
SELECT code, message, hint FROM pg_temp.error_of($$SELECT idempotency.accumulate('points', 8, 'balance', 1, 'nested')$$);
-- with an id of its own it nests
SELECT outcome, value FROM idempotency.accumulate('points', 8, 'balance', 1, 'outer');
SELECT id, balance FROM points WHERE id IN (8, 9) ORDER BY id;
-- and the error left nothing behind that would refuse the id now
DROP TRIGGER call_back ON points;
SELECT outcome, value FROM idempotency.accumulate('points', 8, 'balance', 1, 'nested', scope => 'again');

DROP TABLE points, other_points;
DROP FUNCTION call_back;
DROP EXTENSION idempotency;
