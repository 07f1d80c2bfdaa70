-- transition, transition_once, fire, fire_once: every outcome, and what each leaves behind.
SET client_min_messages = warning;
CREATE EXTENSION idempotency;
CREATE SCHEMA regress_transition;
SET search_path = regress_transition, public;
\i test/lib/error_of.psql
\pset null NULL
CREATE TABLE orders (id int PRIMARY KEY, status text NOT NULL, note text, paid_at date, tenant int DEFAULT 7, number text, UNIQUE (tenant, number));
CREATE TRIGGER zz_guard BEFORE INSERT OR UPDATE ON orders FOR EACH ROW EXECUTE FUNCTION idempotency.guard_transitions('status', '
stateDiagram-v2
    [*] --> WAIT_PAY
    WAIT_PAY --> PAID : pay
    WAIT_PAY --> CANCELLED : cancel
    PAID --> SHIPPED : ship
    PAID --> REFUNDED : refund
    SHIPPED --> REFUNDED : refund
    SHIPPED --> SHIPPED : ship
    CANCELLED --> [*]
    REFUNDED --> [*]');
INSERT INTO orders SELECT i, 'WAIT_PAY', NULL, NULL, 7, 'n' || i FROM generate_series(1, 30) i;

-- without an operation id: that the row is there already is what tells a duplicate
SELECT * FROM idempotency.transition('orders', 1, '{WAIT_PAY}', 'PAID');
SELECT * FROM idempotency.transition('orders', 1, '{WAIT_PAY}', 'PAID');
SELECT * FROM idempotency.transition('orders', 1, '{NEW,WAIT_PAY}', 'PAID');
SELECT status FROM orders WHERE id = 1;
-- a rejection, with the current state
SELECT * FROM pg_temp.error_of($$SELECT idempotency.transition('orders', 1, '{WAIT_PAY}', 'CANCELLED')$$);
SELECT * FROM idempotency.transition('orders', 1, '{WAIT_PAY}', 'CANCELLED', on_reject => 'return');
SELECT * FROM pg_temp.error_of($$SELECT idempotency.transition('orders', 1, '{WAIT_PAY}', 'CANCELLED', on_reject => 'record')$$);
-- several states to come from, in any order
SELECT * FROM idempotency.transition('orders', 1, '{SHIPPED,PAID,SHIPPED}', 'REFUNDED');
SELECT * FROM pg_temp.error_of($$SELECT idempotency.transition('orders', 1, '{SHIPPED,PAID}', 'WAIT_PAY')$$);
-- a self-loop applies each time; it is no duplicate
SELECT * FROM idempotency.transition('orders', 2, '{WAIT_PAY}', 'PAID');
SELECT * FROM idempotency.transition('orders', 2, '{PAID,SHIPPED}', 'SHIPPED');
SELECT * FROM idempotency.transition('orders', 2, '{PAID,SHIPPED}', 'SHIPPED', changes => '{"note": "again"}');
SELECT status, note FROM orders WHERE id = 2;
-- an arrow that the diagram does not have is the trigger's error, whatever on_reject says
SELECT code, message FROM pg_temp.error_of($$SELECT idempotency.transition('orders', 2, '{SHIPPED}', 'CANCELLED', on_reject => 'return')$$);
-- other columns in the same UPDATE
SELECT * FROM idempotency.transition('orders', 3, '{WAIT_PAY}', 'PAID', changes => '{"note": "by card", "paid_at": "2026-01-02"}');
SELECT * FROM idempotency.transition('orders', 3, '{WAIT_PAY}', 'PAID', changes => '{"note": "not again"}');
SELECT * FROM idempotency.transition('orders', 3, '{PAID}', 'SHIPPED', changes => '{}');
SELECT * FROM idempotency.transition('orders', 3, '{SHIPPED}', 'REFUNDED', changes => '{"note": null}');
SELECT status, note, paid_at FROM orders WHERE id = 3;
-- keys as everywhere
SELECT outcome FROM idempotency.transition('orders', '{"tenant": 7, "number": "n4"}'::jsonb, '{WAIT_PAY}', 'PAID');
SELECT outcome FROM idempotency.transition('orders', '4', '{WAIT_PAY}', 'PAID');
SELECT outcome FROM idempotency.transition('orders', 4::bigint, '{WAIT_PAY}', 'PAID');
-- no such row
SELECT * FROM pg_temp.error_of($$SELECT idempotency.transition('orders', 999, '{WAIT_PAY}', 'PAID', on_reject => 'return')$$);
-- in a READ ONLY transaction a duplicate is answered, and nothing else
BEGIN READ ONLY;
SELECT * FROM idempotency.transition('orders', 4, '{WAIT_PAY}', 'PAID');
SELECT code, message FROM pg_temp.error_of($$SELECT idempotency.transition('orders', 5, '{WAIT_PAY}', 'PAID')$$);
SELECT code, message FROM pg_temp.error_of($$SELECT idempotency.transition('orders', 4, '{WAIT_PAY}', 'CANCELLED', on_reject => 'return')$$);
COMMIT;
-- in one transaction, at each level
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT outcome FROM idempotency.transition('orders', 5, '{WAIT_PAY}', 'PAID');
SELECT outcome FROM idempotency.transition('orders', 5, '{WAIT_PAY}', 'PAID');
SELECT outcome FROM idempotency.transition('orders', 5, '{PAID}', 'SHIPPED');
SELECT outcome, state FROM idempotency.transition('orders', 5, '{WAIT_PAY}', 'PAID', on_reject => 'return');
COMMIT;

-- with an operation id: a duplicate is what the log knows, wherever the row has gone since
SELECT outcome, previous_state, state FROM idempotency.transition_once('orders', 10, '{WAIT_PAY}', 'PAID', 'pay-10');
SELECT outcome, previous_state, state, changed_at = (SELECT completed_at FROM idempotency.operation_log WHERE operation_id = 'pay-10') AS same_time
FROM idempotency.transition_once('orders', 10, '{WAIT_PAY}', 'PAID', 'pay-10');
SELECT outcome FROM idempotency.transition('orders', 10, '{PAID}', 'REFUNDED');
SELECT outcome, previous_state, state FROM idempotency.transition_once('orders', 10, '{WAIT_PAY}', 'PAID', 'pay-10');
DELETE FROM orders WHERE id = 10;
SELECT outcome, previous_state, state FROM idempotency.transition_once('orders', 10, '{WAIT_PAY}', 'PAID', 'pay-10');
-- another id is told that it is not the payer
SELECT outcome FROM idempotency.transition_once('orders', 11, '{WAIT_PAY}', 'PAID', 'pay-11');
SELECT * FROM pg_temp.error_of($$SELECT idempotency.transition_once('orders', 11, '{WAIT_PAY}', 'PAID', 'pay-11b')$$);
SELECT outcome, previous_state, state, changed_at FROM idempotency.transition_once('orders', 11, '{WAIT_PAY}', 'PAID', 'pay-11b', on_reject => 'return');
-- nothing was recorded, so the id is free
SELECT outcome FROM idempotency.transition_once('orders', 12, '{WAIT_PAY}', 'PAID', 'pay-11b');
-- a rejection that is recorded sticks
SELECT outcome FROM idempotency.transition_once('orders', 13, '{PAID}', 'SHIPPED', 'ship-13', on_reject => 'record');
SELECT outcome FROM idempotency.transition('orders', 13, '{WAIT_PAY}', 'PAID');
SELECT outcome, previous_state, state, changed_at FROM idempotency.transition_once('orders', 13, '{PAID}', 'SHIPPED', 'ship-13', on_reject => 'return');
SELECT * FROM pg_temp.error_of($$SELECT idempotency.transition_once('orders', 13, '{PAID}', 'SHIPPED', 'ship-13')$$);
SELECT status FROM orders WHERE id = 13;
SELECT operation_id, state, from_state, to_state, column_name, target_key, actor = current_user AS by_us FROM idempotency.operation_log ORDER BY 1;
-- G2 one transaction
BEGIN;
SELECT outcome FROM idempotency.transition_once('orders', 14, '{WAIT_PAY}', 'PAID', 'pay-14');
ROLLBACK;
SELECT status FROM orders WHERE id = 14;
SELECT outcome FROM idempotency.transition_once('orders', 14, '{WAIT_PAY}', 'PAID', 'pay-14');
SELECT t.outcome FROM generate_series(1, 3) i, LATERAL idempotency.transition_once('orders', 15 + i - i, '{WAIT_PAY}', 'PAID', 'pay-15') t;
-- G4 no impostor: each field of the request; before anything else that could refuse
SELECT * FROM pg_temp.error_of($$SELECT idempotency.transition_once('orders', 15, '{WAIT_PAY}', 'CANCELLED', 'pay-15')$$);
SELECT detail FROM pg_temp.error_of($$SELECT idempotency.transition_once('orders', 15, '{PAID}', 'PAID', 'pay-15')$$);
SELECT detail FROM pg_temp.error_of($$SELECT idempotency.transition_once('orders', 16, '{WAIT_PAY}', 'PAID', 'pay-15')$$);
SELECT detail FROM pg_temp.error_of($$SELECT idempotency.transition_once('orders', 999, '{WAIT_PAY}', 'PAID', 'pay-15', changes => '{"note": "x"}')$$);
SELECT detail FROM pg_temp.error_of($$SELECT idempotency.transition_once('orders', 15, '{WAIT_PAY}', 'PAID', 'pay-15', column_name => 'note', scope => 'regress_transition.orders.status')$$);
SELECT detail FROM pg_temp.error_of($$SELECT idempotency.fire_once('orders', 15, 'pay', 'pay-15')$$);
SELECT status, note FROM orders WHERE id BETWEEN 15 AND 16 ORDER BY id;
-- the same row by another key is another request; the same request in other words is the same
SELECT detail FROM pg_temp.error_of($$SELECT idempotency.transition_once('orders', '{"number": "n15", "tenant": 7}'::jsonb, '{WAIT_PAY}', 'PAID', 'pay-15')$$);
SELECT outcome FROM idempotency.transition_once('orders', '15', '{WAIT_PAY,WAIT_PAY}', 'PAID', 'pay-15', changes => '{}', on_reject => 'record', nowait => true, wait => '0', ttl => '1 day');
SELECT outcome FROM idempotency.transition_once('orders', 17, '{WAIT_PAY,NEW}', 'PAID', 'pay-17', changes => '{"note": "x", "paid_at": null}');
SELECT outcome FROM idempotency.transition_once('orders', 17, '{NEW,WAIT_PAY}', 'PAID', 'pay-17', changes => '{"paid_at": null, "note": "x"}');
-- G3 quiet duplicates: also in a READ ONLY transaction
BEGIN READ ONLY;
SELECT outcome, state FROM idempotency.transition_once('orders', 17, '{NEW,WAIT_PAY}', 'PAID', 'pay-17', changes => '{"paid_at": null, "note": "x"}');
SELECT code, message FROM pg_temp.error_of($$SELECT idempotency.transition_once('orders', 18, '{WAIT_PAY}', 'PAID', 'pay-18')$$);
COMMIT;
-- G7 expiry
SELECT outcome FROM idempotency.transition_once('orders', 18, '{WAIT_PAY}', 'PAID', 'pay-18', ttl => '1 hour');
UPDATE idempotency.operation_log SET expires_at = clock_timestamp() WHERE operation_id = 'pay-18';
SELECT outcome, state FROM idempotency.transition_once('orders', 18, '{WAIT_PAY}', 'PAID', 'pay-18', on_reject => 'return');
SELECT outcome FROM idempotency.transition_once('orders', 18, '{PAID}', 'SHIPPED', 'pay-18');
-- scopes and logs
SELECT outcome FROM idempotency.transition_once('orders', 19, '{WAIT_PAY}', 'PAID', 'pay-15', scope => 'elsewhere');
CREATE TABLE own_log (LIKE idempotency.operation_log INCLUDING ALL);
SELECT outcome FROM idempotency.transition_once('orders', 20, '{WAIT_PAY}', 'PAID', 'pay-15', log => 'own_log');
SELECT scope, operation_id FROM own_log;

-- events
SELECT * FROM idempotency.fire('orders', 21, 'pay');
SELECT * FROM idempotency.fire('orders', 21, 'pay');
SELECT * FROM pg_temp.error_of($$SELECT idempotency.fire('orders', 21, 'cancel')$$);
SELECT * FROM idempotency.fire('orders', 21, 'cancel', on_reject => 'return');
SELECT * FROM idempotency.fire('orders', 21, 'ship', changes => '{"note": "parcel 5"}');
-- from a state that an arrow of the event leads from, though one leads to it, it applies
SELECT * FROM idempotency.fire('orders', 21, 'ship');
SELECT * FROM idempotency.fire('orders', 21, 'refund');
SELECT * FROM idempotency.fire('orders', 21, 'refund');
SELECT * FROM pg_temp.error_of($$SELECT idempotency.fire('orders', 21, 'explode')$$);
SELECT * FROM pg_temp.error_of($$SELECT idempotency.fire('orders', 21, 'pay', on_reject => 'record')$$);
SELECT code, message FROM pg_temp.error_of($$SELECT idempotency.fire('orders', 999, 'pay')$$);
SELECT * FROM pg_temp.error_of($$SELECT idempotency.fire('orders', 21, 'pay', 'note')$$);
SELECT outcome, previous_state, state FROM idempotency.fire_once('orders', 22, 'pay', 'f-22');
SELECT outcome, previous_state, state FROM idempotency.fire_once('orders', 22, 'pay', 'f-22');
SELECT outcome, previous_state, state FROM idempotency.fire_once('orders', 22, 'refund', 'f-22r');
SELECT outcome, previous_state, state FROM idempotency.fire_once('orders', 22, 'pay', 'f-22');
SELECT * FROM pg_temp.error_of($$SELECT idempotency.fire_once('orders', 22, 'pay', 'f-22b')$$);
SELECT outcome, state FROM idempotency.fire_once('orders', 22, 'pay', 'f-22b', on_reject => 'record');
SELECT * FROM pg_temp.error_of($$SELECT idempotency.fire_once('orders', 22, 'refund', 'f-22')$$);
SELECT code, message FROM pg_temp.error_of($$SELECT idempotency.fire_once('orders', 22, 'explode', 'f-22c')$$);
-- the retry of an event that the diagram no longer has is a duplicate all the same; so is a recorded rejection
ALTER TABLE orders DISABLE TRIGGER zz_guard;
SELECT outcome, previous_state, state FROM idempotency.fire_once('orders', 22, 'pay', 'f-22');
SELECT code FROM pg_temp.error_of($$SELECT idempotency.fire_once('orders', 22, 'pay', 'f-22b')$$);
SELECT code, message FROM pg_temp.error_of($$SELECT idempotency.fire_once('orders', 22, 'pay', 'f-22c')$$);
ALTER TABLE orders ENABLE TRIGGER zz_guard;
-- an event that leads to two states cannot be fired; one that only begins or ends rows is none
CREATE TABLE forked (id int PRIMARY KEY, status text);
CREATE TRIGGER zz_guard BEFORE INSERT OR UPDATE ON forked FOR EACH ROW EXECUTE FUNCTION idempotency.guard_transitions('status', E'[*] --> A : make\nA --> B : go\nA --> C : go\nB --> C : go\nC --> [*] : end');
INSERT INTO forked VALUES (1, 'A'), (2, 'A');
SELECT * FROM pg_temp.error_of($$SELECT idempotency.fire('forked', 1, 'go')$$);
SELECT code, hint FROM pg_temp.error_of($$SELECT idempotency.fire('forked', 1, 'make')$$);
SELECT outcome FROM idempotency.transition('forked', 1, '{A}', 'B');
SELECT outcome, state FROM idempotency.fire('forked', 1, 'go');

-- the history
SELECT target, target_key, column_name, from_state, to_state, changed_at IS NOT NULL AS has_time, actor = current_user AS by_us, scope, operation_id
FROM idempotency.transition_history ORDER BY operation_id;
-- who: what the session was SET to, not who owns a function on the way
CREATE ROLE regress_idem_clerk;
SELECT idempotency.grant_use('idempotency.operation_log', 'regress_idem_clerk');
GRANT USAGE ON SCHEMA regress_transition TO regress_idem_clerk;
CREATE FUNCTION pay(id int, operation_id text) RETURNS text LANGUAGE sql SECURITY DEFINER AS
	$$SELECT outcome FROM idempotency.transition_once('orders', id, '{WAIT_PAY}', 'PAID', operation_id)$$;
SET ROLE regress_idem_clerk;
SELECT pay(23, 'pay-23');
SELECT actor FROM idempotency.transition_history WHERE operation_id = 'pay-23';
RESET ROLE;

-- columns: an enum and domains; a trigger that makes another state of it is told
CREATE TYPE light AS ENUM ('red', 'green', 'amber');
CREATE DOMAIN traffic_light AS light CHECK (VALUE <> 'amber');
CREATE TABLE lights (id int PRIMARY KEY, a light, b traffic_light, c varchar(5), n int, p char(5));
INSERT INTO lights VALUES (1, 'red', 'red', 'red', 1, 'red');
SELECT * FROM idempotency.transition('lights', 1, '{red}', 'green', 'a');
SELECT * FROM idempotency.transition('lights', 1, '{red}', 'green', 'b');
SELECT code FROM pg_temp.error_of($$SELECT idempotency.transition('lights', 1, '{green}', 'amber', 'b')$$);
SELECT * FROM idempotency.transition('lights', 1, '{red}', 'green', 'c');
SELECT code FROM pg_temp.error_of($$SELECT idempotency.transition('lights', 1, '{green}', 'yellow', 'c')$$);
SELECT * FROM pg_temp.error_of($$SELECT idempotency.transition('lights', 1, '{green}', 'blue', 'a')$$);
SELECT code, message FROM pg_temp.error_of($$SELECT idempotency.transition('lights', 1, '{blue}', 'green', 'a')$$);
SELECT code, message FROM pg_temp.error_of($$SELECT idempotency.transition_once('lights', 1, '{blue}', 'green', 'x', 'a')$$);
SELECT * FROM pg_temp.error_of($$SELECT idempotency.transition('lights', 1, '{1}', '2', 'n')$$);
SELECT code, message FROM pg_temp.error_of($$SELECT idempotency.transition('lights', 1, '{red}', 'green', 'p')$$);
CREATE FUNCTION make_amber() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.a := 'amber'; RETURN NEW; END $$;
CREATE TRIGGER make BEFORE UPDATE ON lights FOR EACH ROW EXECUTE FUNCTION make_amber();
SELECT * FROM idempotency.transition('lights', 1, '{green}', 'red', 'a');
SELECT outcome, previous_state, state FROM idempotency.transition_once('lights', 1, '{amber}', 'red', 'x', 'a');
SELECT outcome, previous_state, state FROM idempotency.transition_once('lights', 1, '{amber}', 'red', 'x', 'a');
CREATE FUNCTION suppress() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
CREATE TRIGGER suppress BEFORE UPDATE ON lights FOR EACH ROW EXECUTE FUNCTION suppress();
SELECT * FROM pg_temp.error_of($$SELECT idempotency.transition('lights', 1, '{amber}', 'red', 'a')$$);
SELECT code FROM pg_temp.error_of($$SELECT idempotency.transition_once('lights', 1, '{amber}', 'red', 'y', 'a')$$);
DROP TRIGGER suppress ON lights;
DROP TRIGGER make ON lights;
-- a row without a state comes from nowhere
UPDATE lights SET a = NULL;
SELECT * FROM pg_temp.error_of($$SELECT idempotency.transition('lights', 1, '{red}', 'green', 'a')$$);
SELECT * FROM idempotency.transition('lights', 1, '{red}', 'green', 'a', on_reject => 'return');
SELECT outcome, state FROM idempotency.transition_once('lights', 1, '{red}', 'green', 'null', 'a', on_reject => 'record');
SELECT outcome, state FROM idempotency.transition_once('lights', 1, '{red}', 'green', 'null', 'a', on_reject => 'return');
-- a collation that calls other names equal makes no difference
CREATE COLLATION insensitive (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
CREATE TABLE folded (id int PRIMARY KEY, status text COLLATE insensitive);
INSERT INTO folded VALUES (1, 'Open');
SELECT outcome, state FROM idempotency.transition('folded', 1, '{open}', 'closed', on_reject => 'return');
SELECT outcome, state FROM idempotency.transition('folded', 1, '{Open}', 'OPEN');
SELECT outcome, state FROM idempotency.transition('folded', 1, '{Closed}', 'open', on_reject => 'return');

-- targets: partitions, moved rows; temporary and unlogged ones only without an operation id
CREATE TABLE parted (id int, status text, region text, PRIMARY KEY (id, region)) PARTITION BY LIST (region);
CREATE TABLE parted_a PARTITION OF parted FOR VALUES IN ('a');
CREATE TABLE parted_b PARTITION OF parted FOR VALUES IN ('b');
CREATE UNIQUE INDEX ON parted_a (id);
INSERT INTO parted VALUES (1, 'A', 'a');
SELECT outcome FROM idempotency.transition('parted', '{"id": 1, "region": "a"}'::jsonb, '{A}', 'B');
SELECT * FROM pg_temp.error_of($$SELECT idempotency.transition('parted', '{"id": 1, "region": "a"}'::jsonb, '{B}', 'C', changes => '{"region": "b"}')$$);
SELECT outcome FROM idempotency.transition('parted_a', '{"id": 1}'::jsonb, '{B}', 'C', changes => '{}');
CREATE TEMP TABLE fleeting (id int PRIMARY KEY, status text);
INSERT INTO fleeting VALUES (1, 'A');
SELECT outcome FROM idempotency.transition('fleeting', 1, '{A}', 'B');
SELECT code, message FROM pg_temp.error_of($$SELECT idempotency.transition_once('fleeting', 1, '{B}', 'C', 'x')$$);
CREATE VIEW orders_view AS SELECT * FROM orders;
SELECT code, message FROM pg_temp.error_of($$SELECT idempotency.transition('orders_view', 1, '{A}', 'B')$$);
CREATE TABLE ruled (id int PRIMARY KEY, status text);
INSERT INTO ruled VALUES (1, 'A');
CREATE RULE r AS ON UPDATE TO ruled DO INSTEAD NOTHING;
SELECT code, message FROM pg_temp.error_of($$SELECT idempotency.transition('ruled', 1, '{A}', 'B')$$);

-- bad input, with a hint, and nothing is lost
SELECT * FROM pg_temp.error_of($$SELECT idempotency.transition(NULL, 1, '{A}', 'B')$$);
SELECT code, message FROM pg_temp.error_of($$SELECT idempotency.transition('orders', NULL::int, '{A}', 'B')$$);
SELECT code, message FROM pg_temp.error_of($$SELECT idempotency.transition('orders', 30, NULL, 'B')$$);
SELECT code, message, hint FROM pg_temp.error_of($$SELECT idempotency.transition('orders', 30, '{}', 'B')$$);
SELECT code, message, hint FROM pg_temp.error_of($$SELECT idempotency.transition('orders', 30, '{NULL}', 'B')$$);
SELECT code, message FROM pg_temp.error_of($$SELECT idempotency.transition('orders', 30, '{A}', NULL)$$);
SELECT code, message FROM pg_temp.error_of($$SELECT idempotency.transition('orders', 30, '{A}', 'B', column_name => NULL)$$);
SELECT code, message FROM pg_temp.error_of($$SELECT idempotency.transition('orders', 30, '{A}', 'B', 'nothing')$$);
SELECT code, message FROM pg_temp.error_of($$SELECT idempotency.transition('orders', 30, '{A}', 'B', on_reject => NULL)$$);
SELECT code, message FROM pg_temp.error_of($$SELECT idempotency.transition('orders', 30, '{A}', 'B', on_reject => 'ignore')$$);
SELECT code, message FROM pg_temp.error_of($$SELECT idempotency.transition('orders', 30, '{A}', 'B', nowait => NULL)$$);
SELECT * FROM pg_temp.error_of($$SELECT idempotency.transition('orders', 30, '{WAIT_PAY}', 'PAID', changes => '[]')$$);
SELECT * FROM pg_temp.error_of($$SELECT idempotency.transition('orders', 30, '{WAIT_PAY}', 'PAID', changes => '{"status": "PAID"}')$$);
SELECT * FROM pg_temp.error_of($$SELECT idempotency.transition('orders', 30, '{WAIT_PAY}', 'PAID', changes => '{"id": 31}')$$);
SELECT code, message FROM pg_temp.error_of($$SELECT idempotency.transition('orders', 30, '{WAIT_PAY}', 'PAID', changes => '{"nothing": 1}')$$);
SELECT code FROM pg_temp.error_of($$SELECT idempotency.transition('orders', 30, '{WAIT_PAY}', 'PAID', changes => '{"paid_at": "never"}')$$);
SELECT code, message FROM pg_temp.error_of($$SELECT idempotency.transition('orders', '{"number": "n30", "tenant": 7}'::jsonb, '{n30}', 'n31', 'number')$$);
SELECT code, message FROM pg_temp.error_of($$SELECT idempotency.transition_once('orders', 30, '{WAIT_PAY}', 'PAID', NULL)$$);
SELECT code, message FROM pg_temp.error_of($$SELECT idempotency.transition_once('orders', 30, '{WAIT_PAY}', 'PAID', ' ')$$);
SELECT code, message FROM pg_temp.error_of($$SELECT idempotency.transition_once('orders', 30, '{WAIT_PAY}', 'PAID', 'x', scope => '')$$);
SELECT code, message FROM pg_temp.error_of($$SELECT idempotency.transition_once('orders', 30, '{WAIT_PAY}', 'PAID', 'x', ttl => '0')$$);
SELECT code, message FROM pg_temp.error_of($$SELECT idempotency.transition_once('orders', 30, '{WAIT_PAY}', 'PAID', 'x', wait => '-1 s')$$);
SELECT code, message FROM pg_temp.error_of($$SELECT idempotency.transition_once('orders', 30, '{WAIT_PAY}', 'PAID', 'x', log => NULL)$$);
SELECT code, message FROM pg_temp.error_of($$SELECT idempotency.transition_once('orders', 30, '{WAIT_PAY}', 'PAID', 'x', log => 'orders')$$);
SELECT code, message FROM pg_temp.error_of($$SELECT idempotency.fire('orders', 30, NULL)$$);
SELECT code, message FROM pg_temp.error_of($$SELECT idempotency.fire_once('orders', 30, 'pay', NULL)$$);
SELECT status FROM orders WHERE id = 30;
-- a trigger that calls back with the same id
CREATE FUNCTION call_back() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM idempotency.fire_once('orders', NEW.id, 'pay', 'loop'); RETURN NEW; END $$;
CREATE TRIGGER call_back BEFORE UPDATE ON orders FOR EACH ROW EXECUTE FUNCTION call_back();
SELECT code, message FROM pg_temp.error_of($$SELECT idempotency.fire_once('orders', 30, 'pay', 'loop')$$);
DROP TRIGGER call_back ON orders;

DROP OWNED BY regress_idem_clerk;
DROP ROLE regress_idem_clerk;
DROP SCHEMA regress_transition CASCADE;
DROP EXTENSION idempotency;
