-- transition and its kin: G11 no back door; privileges and row security are those of the plain statements.
SET client_min_messages = warning;
CREATE EXTENSION idempotency;
\i test/lib/error_of.psql
\pset null NULL
CREATE ROLE regress_idem_owner;
CREATE ROLE regress_idem_app;
CREATE SCHEMA shop AUTHORIZATION regress_idem_owner;
GRANT USAGE ON SCHEMA shop TO PUBLIC;
SET ROLE regress_idem_owner;
CREATE TABLE shop.orders (id int PRIMARY KEY, status text, note text, tenant text DEFAULT 'a');
INSERT INTO shop.orders SELECT i, 'NEW' FROM generate_series(1, 9) i;
RESET ROLE;

-- nothing is granted to PUBLIC, and grant_use gives the functions and the history
GRANT USAGE ON SCHEMA idempotency TO regress_idem_app;
SET ROLE regress_idem_app;
SELECT code, message FROM pg_temp.error_of($$SELECT idempotency.transition('shop.orders', 1, '{NEW}', 'PAID')$$);
SELECT code, message FROM pg_temp.error_of($$SELECT idempotency.fire_once('shop.orders', 1, 'pay', 'x')$$);
SELECT code, message FROM pg_temp.error_of($$SELECT idempotency.transition_batch('shop.orders', ARRAY[1], '{NEW}', 'PAID')$$);
SELECT code, message FROM pg_temp.error_of($$SELECT idempotency.check_state_diagram('')$$);
SELECT code, message FROM pg_temp.error_of($$SELECT idempotency.transitions('shop.orders')$$);
SELECT code, message FROM pg_temp.error_of($$SELECT idempotency.state_diagram('shop.orders')$$);
SELECT code, message FROM pg_temp.error_of($$SELECT idempotency.logged_transitions()$$);
SELECT code, message FROM pg_temp.error_of($$SELECT * FROM idempotency.transition_history$$);
CREATE TEMP TABLE mine (k int PRIMARY KEY, status text);
SELECT code, message FROM pg_temp.error_of($$CREATE TRIGGER zz BEFORE INSERT ON mine FOR EACH ROW EXECUTE FUNCTION idempotency.guard_transitions('status', '[*] --> A')$$);
RESET ROLE;
SELECT idempotency.grant_use('idempotency.operation_log', role::regrole) FROM unnest('{regress_idem_owner,regress_idem_app}'::text[]) role;

-- SELECT on the key and the state, UPDATE on the state and on what is changed
SET ROLE regress_idem_app;
SELECT code, message FROM pg_temp.error_of($$SELECT idempotency.transition('shop.orders', 1, '{NEW}', 'PAID')$$);
RESET ROLE;
GRANT SELECT (id, status), UPDATE (status) ON shop.orders TO regress_idem_app;
SET ROLE regress_idem_app;
SELECT outcome FROM idempotency.transition('shop.orders', 1, '{NEW}', 'PAID');
SELECT outcome FROM idempotency.transition('shop.orders', 1, '{NEW}', 'PAID');
SELECT outcome FROM idempotency.transition_once('shop.orders', 2, '{NEW}', 'PAID', 'pay-2');
SELECT item, outcome FROM idempotency.transition_batch('shop.orders', ARRAY[3, 2, 1], '{NEW}', 'PAID');
SELECT item, outcome FROM idempotency.transition_batch('shop.orders', ARRAY[3, 2, 1], '{NEW}', 'PAID');
SELECT outcome FROM idempotency.transition('shop.orders', 4, '{NEW}', 'PAID', nowait => true);
SELECT code, message FROM pg_temp.error_of($$SELECT idempotency.transition('shop.orders', 5, '{NEW}', 'PAID', changes => '{"note": "x"}')$$);
SELECT operation_id, actor FROM idempotency.transition_history;
RESET ROLE;
GRANT UPDATE (note) ON shop.orders TO regress_idem_app;
SET ROLE regress_idem_app;
SELECT outcome FROM idempotency.transition('shop.orders', 5, '{NEW}', 'PAID', changes => '{"note": "x"}');
RESET ROLE;
-- the history is read as its reader: the log's own row security holds
ALTER TABLE idempotency.operation_log ENABLE ROW LEVEL SECURITY;
SET ROLE regress_idem_app;
SELECT count(*) FROM idempotency.transition_history;
RESET ROLE;
ALTER TABLE idempotency.operation_log DISABLE ROW LEVEL SECURITY;
REVOKE SELECT ON idempotency.operation_log FROM regress_idem_app;
SET ROLE regress_idem_app;
SELECT code, message FROM pg_temp.error_of($$SELECT * FROM idempotency.transition_history$$);
RESET ROLE;
GRANT SELECT ON idempotency.operation_log TO regress_idem_app;

-- row security: a row that is hidden is none; one that may not be updated is none, either
ALTER TABLE shop.orders ENABLE ROW LEVEL SECURITY;
GRANT SELECT (tenant) ON shop.orders TO regress_idem_app;
UPDATE shop.orders SET tenant = 'b' WHERE id IN (6, 7);
CREATE POLICY tenants ON shop.orders FOR SELECT USING (tenant = 'a' OR id = 7);
CREATE POLICY changes ON shop.orders FOR UPDATE USING (tenant = 'a') WITH CHECK (status <> 'SHIPPED');
SET ROLE regress_idem_app;
SELECT code FROM pg_temp.error_of($$SELECT idempotency.transition('shop.orders', 6, '{NEW}', 'PAID')$$);
SELECT code FROM pg_temp.error_of($$SELECT idempotency.transition('shop.orders', 7, '{NEW}', 'PAID')$$);
SELECT code FROM pg_temp.error_of($$SELECT idempotency.transition_once('shop.orders', 6, '{NEW}', 'PAID', 'pay-6')$$);
SELECT code FROM pg_temp.error_of($$SELECT idempotency.transition_once('shop.orders', 7, '{NEW}', 'PAID', 'pay-7')$$);
SELECT code FROM pg_temp.error_of($$SELECT idempotency.transition_batch('shop.orders', ARRAY[8, 6], '{NEW}', 'PAID')$$);
SELECT code FROM pg_temp.error_of($$SELECT idempotency.transition_batch('shop.orders', ARRAY[8, 7], '{NEW}', 'PAID')$$);
SELECT code, message FROM pg_temp.error_of($$SELECT idempotency.transition('shop.orders', 8, '{NEW}', 'SHIPPED')$$);
SELECT outcome FROM idempotency.transition('shop.orders', 8, '{NEW}', 'PAID');
RESET ROLE;
SELECT id, status FROM shop.orders ORDER BY id;

-- nothing depends on the caller's search_path
CREATE SCHEMA trap;
CREATE FUNCTION trap.equal(text, text) RETURNS boolean LANGUAGE sql AS 'SELECT true';
CREATE OPERATOR trap.= (LEFTARG = text, RIGHTARG = text, PROCEDURE = trap.equal);
CREATE FUNCTION trap.unnest(anyarray) RETURNS SETOF anyelement LANGUAGE sql AS 'SELECT u FROM pg_catalog.unnest($1) AS u WHERE false';
SET search_path = trap, pg_catalog;
SELECT outcome FROM idempotency.transition('shop.orders', 9, '{OLD}', 'PAID', on_reject => 'return');
SELECT item, outcome FROM idempotency.transition_batch('shop.orders', ARRAY[9], '{OLD}', 'PAID');
SELECT item, outcome FROM idempotency.transition_batch('shop.orders', ARRAY[9], '{NEW}', 'PAID');
RESET search_path;

DROP SCHEMA trap CASCADE;
DROP SCHEMA shop CASCADE;
DROP OWNED BY regress_idem_owner, regress_idem_app;
DROP ROLE regress_idem_owner, regress_idem_app;
DROP EXTENSION idempotency;
