-- transition_batch: many rows at once, answered in the order of the input.
SET client_min_messages = warning;
CREATE EXTENSION idempotency;
CREATE SCHEMA regress_batch;
SET search_path = regress_batch, public;
\i test/lib/error_of.psql
\pset null NULL
CREATE TABLE orders (id int PRIMARY KEY, status text NOT NULL, note text, tenant int DEFAULT 7, number text, UNIQUE (tenant, number));
CREATE TRIGGER zz_guard BEFORE INSERT OR UPDATE ON orders FOR EACH ROW EXECUTE FUNCTION idempotency.guard_transitions('status',
	E'[*] --> WAIT_PAY\nWAIT_PAY --> PAID : pay\nWAIT_PAY --> EXPIRED : expire\nPAID --> SHIPPED\nSHIPPED --> SHIPPED');
INSERT INTO orders SELECT i, 'WAIT_PAY', NULL, 7, 'n' || i FROM generate_series(1, 20) i;
UPDATE orders SET status = 'PAID' WHERE id = 2;

-- each outcome, in the order of the input; a key that repeats is a duplicate of its first
SELECT * FROM idempotency.transition_batch('orders', ARRAY[5, 2, 1, 5, 2], '{WAIT_PAY}', 'EXPIRED');
SELECT * FROM idempotency.transition_batch('orders', ARRAY[1, 5, 6, 6], '{WAIT_PAY}', 'EXPIRED', changes => '{"note": "late"}');
SELECT id, status, note FROM orders WHERE id <= 6 ORDER BY id;
-- all duplicates: in a READ ONLY transaction, too
BEGIN READ ONLY;
SELECT item, outcome, state FROM idempotency.transition_batch('orders', ARRAY[6, 1, 5], '{WAIT_PAY}', 'EXPIRED');
SELECT code, message FROM pg_temp.error_of($$SELECT idempotency.transition_batch('orders', ARRAY[6, 7], '{WAIT_PAY}', 'EXPIRED')$$);
COMMIT;
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT item, outcome, state FROM idempotency.transition_batch('orders', ARRAY[6, 7], '{WAIT_PAY}', 'EXPIRED');
SELECT item, outcome, state FROM idempotency.transition_batch('orders', ARRAY[6, 7], '{WAIT_PAY}', 'EXPIRED');
ROLLBACK;
-- a self-loop applies each time; within one call a row moves once
SELECT * FROM idempotency.transition_batch('orders', ARRAY[2, 2], '{PAID,SHIPPED}', 'SHIPPED');
SELECT * FROM idempotency.transition_batch('orders', ARRAY[2, 2], '{PAID,SHIPPED}', 'SHIPPED', changes => '{"note": "again"}');
-- none at all
SELECT * FROM idempotency.transition_batch('orders', '{}'::int[], '{WAIT_PAY}', 'EXPIRED');

-- keys: text, jsonb, other integers
SELECT item, outcome FROM idempotency.transition_batch('orders', '{10,8}'::text[], '{WAIT_PAY}', 'EXPIRED');
SELECT item, outcome FROM idempotency.transition_batch('orders', ARRAY[11::bigint, 9], '{WAIT_PAY}', 'EXPIRED');
SELECT item, outcome FROM idempotency.transition_batch('orders', ARRAY['{"tenant": 7, "number": "n13"}', '{"number": "n12", "tenant": 7}', '{"tenant": 7, "number": "n13"}']::jsonb[], '{WAIT_PAY}', 'EXPIRED');
SELECT * FROM pg_temp.error_of($$SELECT idempotency.transition_batch('orders', ARRAY['{"id": 13}', '{"number": "n12", "tenant": 7}']::jsonb[], '{WAIT_PAY}', 'EXPIRED')$$);
-- equal by the key's own collation
CREATE COLLATION insensitive (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
CREATE TABLE folded (k text COLLATE insensitive PRIMARY KEY, status text);
INSERT INTO folded VALUES ('ABC', 'A');
SELECT * FROM idempotency.transition_batch('folded', '{abc,Abc}'::text[], '{A}', 'B');
-- partitions, an enum, a domain
CREATE TYPE light AS ENUM ('red', 'green');
CREATE DOMAIN traffic_light AS light;
CREATE TABLE parted (id int PRIMARY KEY, status traffic_light) PARTITION BY HASH (id);
CREATE TABLE parted_0 PARTITION OF parted FOR VALUES WITH (MODULUS 2, REMAINDER 0);
CREATE TABLE parted_1 PARTITION OF parted FOR VALUES WITH (MODULUS 2, REMAINDER 1);
INSERT INTO parted SELECT i, 'red' FROM generate_series(1, 6) i;
SELECT * FROM idempotency.transition_batch('parted', ARRAY[6, 1, 3], '{red}', 'green');
SELECT code, message FROM pg_temp.error_of($$SELECT idempotency.transition_batch('parted', ARRAY[2], '{red}', 'blue')$$);
-- a key that is an array has no arrays
CREATE TABLE keyed (k int[] PRIMARY KEY, status text);
INSERT INTO keyed VALUES ('{1}', 'A');
SELECT * FROM pg_temp.error_of($$SELECT idempotency.transition_batch('keyed', ARRAY['{"k": "{1}"}'::jsonb], '{A}', 'B')$$);
SELECT outcome FROM idempotency.transition('keyed', '{"k": "{1}"}'::jsonb, '{A}', 'B');

-- many: expire 10,000 orders in one call, and send it again
CREATE TABLE many (id int PRIMARY KEY, status text NOT NULL DEFAULT 'WAIT_PAY');
INSERT INTO many SELECT generate_series(1, 10000);
SELECT outcome, count(*), min(previous_state), min(state), bool_and(item BETWEEN 1 AND 10000) AS numbered
FROM idempotency.transition_batch('many', (SELECT array_agg(id ORDER BY md5(id::text)) FROM many), '{WAIT_PAY}', 'EXPIRED') GROUP BY 1;
SELECT outcome, count(*)
FROM idempotency.transition_batch('many', (SELECT array_agg(id ORDER BY md5(id::text)) FROM many), '{WAIT_PAY}', 'EXPIRED') GROUP BY 1;
SELECT status, count(*) FROM many GROUP BY 1;

-- errors name the item, and undo all of the batch
SELECT * FROM pg_temp.error_of($$SELECT idempotency.transition_batch('orders', ARRAY[15, 999], '{WAIT_PAY}', 'EXPIRED')$$);
SELECT idempotency.transition_batch('orders', ARRAY[15, 998], '{WAIT_PAY}', 'EXPIRED');
SELECT idempotency.transition_batch('orders', ARRAY[15, NULL], '{WAIT_PAY}', 'EXPIRED');
SELECT idempotency.transition_batch('orders', '{15,x}'::text[], '{WAIT_PAY}', 'EXPIRED');
SELECT code, message FROM pg_temp.error_of($$SELECT idempotency.transition_batch('orders', ARRAY[15, 2], '{WAIT_PAY,SHIPPED}', 'EXPIRED')$$);
CREATE FUNCTION suppress() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
CREATE TRIGGER suppress BEFORE UPDATE ON orders FOR EACH ROW WHEN (OLD.id = 16) EXECUTE FUNCTION suppress();
SELECT idempotency.transition_batch('orders', ARRAY[15, 16], '{WAIT_PAY}', 'EXPIRED');
DROP TRIGGER suppress ON orders;
SELECT status FROM orders WHERE id IN (15, 16);
-- bad input
SELECT code, message FROM pg_temp.error_of($$SELECT idempotency.transition_batch(NULL, ARRAY[1], '{A}', 'B')$$);
SELECT code, message FROM pg_temp.error_of($$SELECT idempotency.transition_batch('orders', NULL::int[], '{A}', 'B')$$);
SELECT code, message FROM pg_temp.error_of($$SELECT idempotency.transition_batch('orders', ARRAY[1], NULL, 'B')$$);
SELECT code, message FROM pg_temp.error_of($$SELECT idempotency.transition_batch('orders', ARRAY[1], '{A}', NULL)$$);
SELECT code, message FROM pg_temp.error_of($$SELECT idempotency.transition_batch('orders', ARRAY[1], '{}', 'B')$$);
SELECT code, message FROM pg_temp.error_of($$SELECT idempotency.transition_batch('orders', ARRAY[1], '{A}', 'B', NULL)$$);
SELECT code, message FROM pg_temp.error_of($$SELECT idempotency.transition_batch('orders', ARRAY[1], '{A}', 'B', 'id')$$);
SELECT code, message FROM pg_temp.error_of($$SELECT idempotency.transition_batch('orders', ARRAY[15], '{WAIT_PAY}', 'EXPIRED', changes => '{"status": "PAID"}')$$);
SELECT code, message FROM pg_temp.error_of($$SELECT idempotency.transition_batch('orders', ARRAY[15], '{WAIT_PAY}', 'EXPIRED', changes => '{"id": 1}')$$);
SELECT code, message FROM pg_temp.error_of($$SELECT idempotency.transition_batch('orders', '{15}', '{WAIT_PAY}', 'EXPIRED')$$);

DROP SCHEMA regress_batch CASCADE;
DROP EXTENSION idempotency;
