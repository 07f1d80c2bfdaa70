-- G11 no back door: everything runs as the caller.
SET client_min_messages = warning;
CREATE EXTENSION idempotency;
\i test/lib/error_of.psql
\pset null NULL
CREATE ROLE regress_idem_owner;
CREATE ROLE regress_idem_user;
CREATE ROLE regress_idem_reader;
CREATE ROLE regress_idem_tenant_a;
CREATE ROLE regress_idem_tenant_b;
CREATE SCHEMA shop AUTHORIZATION regress_idem_owner;
GRANT USAGE, CREATE ON SCHEMA shop TO regress_idem_user, regress_idem_reader, regress_idem_tenant_a, regress_idem_tenant_b;
SET ROLE regress_idem_owner;
CREATE TABLE shop.points (id int PRIMARY KEY, balance bigint NOT NULL DEFAULT 0, secret text DEFAULT 'x');
INSERT INTO shop.points SELECT i FROM generate_series(1, 5) i;
RESET ROLE;

-- nothing is granted to PUBLIC
SET ROLE regress_idem_user;
SELECT * FROM pg_temp.error_of($$SELECT idempotency.accumulate('shop.points', 1, 'balance', 1, 'a')$$);
SELECT code FROM pg_temp.error_of($$SELECT * FROM idempotency.operation_log$$);
RESET ROLE;
GRANT USAGE ON SCHEMA idempotency TO regress_idem_user;
SET ROLE regress_idem_user;
SELECT code, message FROM pg_temp.error_of($$SELECT idempotency.accumulate('shop.points', 1, 'balance', 1, 'a')$$);
SELECT code, message FROM pg_temp.error_of($$SELECT idempotency.lookup('s', 'a')$$);
SELECT code, message FROM pg_temp.error_of($$SELECT idempotency.grant_use('idempotency.operation_log', 'regress_idem_user')$$);
RESET ROLE;

-- grant_use gives what is needed, and no more
SELECT idempotency.grant_use('idempotency.operation_log', 'regress_idem_user');
SELECT idempotency.grant_use('idempotency.operation_log', 'regress_idem_user');
SELECT privilege_type, has_table_privilege('regress_idem_user', 'idempotency.operation_log', privilege_type) AS has
FROM unnest('{SELECT,INSERT,UPDATE,DELETE,TRUNCATE,REFERENCES,TRIGGER}'::text[]) privilege_type;
SET ROLE regress_idem_user;
SELECT code, message FROM pg_temp.error_of($$SELECT idempotency.grant_use('idempotency.operation_log', 'regress_idem_reader')$$);
-- the target's privileges are those of the plain statement
SELECT code, message FROM pg_temp.error_of($$SELECT idempotency.accumulate('shop.points', 1, 'balance', 1, 'a')$$);
RESET ROLE;
GRANT SELECT (id, balance) ON shop.points TO regress_idem_user;
SET ROLE regress_idem_user;
SELECT code, message FROM pg_temp.error_of($$SELECT idempotency.accumulate('shop.points', 1, 'balance', 1, 'a')$$);
RESET ROLE;
GRANT UPDATE (balance) ON shop.points TO regress_idem_user;
SET ROLE regress_idem_user;
SELECT outcome, value FROM idempotency.accumulate('shop.points', 1, 'balance', 1, 'a');
SELECT outcome, value FROM idempotency.accumulate('shop.points', 1, 'balance', 1, 'b', wait => '0');
SELECT outcome, value FROM idempotency.accumulate('shop.points', 1, 'balance', -100, 'c', minimum => 0, on_reject => 'record');
SELECT code, message FROM pg_temp.error_of($$SELECT idempotency.accumulate('shop.points', 9, 'balance', 1, 'd', create_missing => true)$$);
-- another column is another privilege
RESET ROLE;
ALTER TABLE shop.points ADD COLUMN stock int NOT NULL DEFAULT 0;
SET ROLE regress_idem_user;
SELECT code, message FROM pg_temp.error_of($$SELECT idempotency.accumulate('shop.points', 1, 'stock', 1, 'e')$$);
-- what is logged can neither be altered nor deleted
SELECT code FROM pg_temp.error_of($$UPDATE idempotency.operation_log SET value = 0$$);
SELECT code FROM pg_temp.error_of($$DELETE FROM idempotency.operation_log$$);
SELECT code, message FROM pg_temp.error_of($$SELECT idempotency.forget('shop.points.balance', 'a')$$);
SELECT code, message FROM pg_temp.error_of($$SELECT idempotency.rename_scope('shop.points.balance', 'x')$$);
-- but an expired id can be used again
RESET ROLE;
UPDATE idempotency.operation_log SET expires_at = '2026-01-01' WHERE operation_id IN ('a', 'b');
SET ROLE regress_idem_user;
SELECT outcome, value FROM idempotency.accumulate('shop.points', 2, 'balance', 5, 'a');
SELECT outcome, value FROM idempotency.accumulate('shop.points', 2, 'balance', 5, 'a');
SELECT current_user;
RESET ROLE;

-- who may only read the log gets duplicates answered, and nothing else
GRANT USAGE ON SCHEMA idempotency TO regress_idem_reader;
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA idempotency TO regress_idem_reader;
GRANT SELECT ON idempotency.operation_log TO regress_idem_reader;
GRANT SELECT, UPDATE ON shop.points TO regress_idem_reader;
SET ROLE regress_idem_reader;
SELECT outcome, value FROM idempotency.accumulate('shop.points', 2, 'balance', 5, 'a');
SELECT code, message FROM pg_temp.error_of($$SELECT idempotency.accumulate('shop.points', 2, 'balance', 5, 'new')$$);
SELECT code, message FROM pg_temp.error_of($$SELECT idempotency.accumulate('shop.points', 2, 'balance', 5, 'b')$$);
RESET ROLE;
SELECT id, balance FROM shop.points WHERE balance <> 0 ORDER BY id;
SELECT operation_id, expires_at IS NOT NULL AS expired FROM idempotency.operation_log ORDER BY 1;

-- row security on the target: as for the plain UPDATE
SET ROLE regress_idem_owner;
ALTER TABLE shop.points ADD COLUMN tenant name NOT NULL DEFAULT 'regress_idem_tenant_a';
UPDATE shop.points SET tenant = 'regress_idem_tenant_b' WHERE id = 5;
ALTER TABLE shop.points ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant ON shop.points USING (tenant = current_user) WITH CHECK (tenant = current_user AND balance < 1000);
GRANT SELECT, INSERT, UPDATE ON shop.points TO regress_idem_tenant_a, regress_idem_tenant_b;
RESET ROLE;
SELECT idempotency.grant_use('idempotency.operation_log', 'regress_idem_tenant_a'), idempotency.grant_use('idempotency.operation_log', 'regress_idem_tenant_b');
SET ROLE regress_idem_tenant_a;
SELECT outcome, value FROM idempotency.accumulate('shop.points', 3, 'balance', 5, 'r1');
SELECT code, message FROM pg_temp.error_of($$SELECT idempotency.accumulate('shop.points', 5, 'balance', 5, 'r2')$$);
SELECT code, message FROM pg_temp.error_of($$SELECT idempotency.accumulate('shop.points', 5, 'balance', 5, 'r2', wait => '0')$$);
SELECT code, message FROM pg_temp.error_of($$SELECT idempotency.accumulate('shop.points', 3, 'balance', 1000, 'r3')$$);
-- hidden is there: as for the plain INSERT
SELECT code, message, detail FROM pg_temp.error_of($$SELECT idempotency.accumulate('shop.points', 5, 'balance', 5, 'r4', create_missing => true)$$);
-- the same session as another role
SET ROLE regress_idem_tenant_b;
SELECT code, message FROM pg_temp.error_of($$SELECT idempotency.accumulate('shop.points', 3, 'balance', 5, 'r5')$$);
SELECT outcome, value FROM idempotency.accumulate('shop.points', 5, 'balance', 5, 'r5');
SET ROLE regress_idem_owner;
SELECT code FROM pg_temp.error_of($$SELECT idempotency.accumulate('shop.points', 3, 'balance', 5, 'r6')$$);
RESET ROLE;

-- shown by one policy, protected by another: for an UPDATE it is none, and nothing waits for ever
CREATE TABLE shop.shown (id int PRIMARY KEY, n int NOT NULL DEFAULT 0, tenant name NOT NULL);
INSERT INTO shop.shown VALUES (1, 0, 'regress_idem_tenant_a'), (2, 0, 'regress_idem_tenant_b');
ALTER TABLE shop.shown ENABLE ROW LEVEL SECURITY;
CREATE POLICY seen ON shop.shown FOR SELECT USING (true);
CREATE POLICY made ON shop.shown FOR INSERT WITH CHECK (true);
CREATE POLICY changed ON shop.shown FOR UPDATE USING (tenant = current_user);
GRANT SELECT, INSERT, UPDATE ON shop.shown TO regress_idem_tenant_a;
SET ROLE regress_idem_tenant_a;
SELECT outcome, value FROM idempotency.accumulate('shop.shown', 1, 'n', 1, 's1', wait => '0');
SELECT code FROM pg_temp.error_of($$SELECT idempotency.accumulate('shop.shown', 2, 'n', 1, 's2')$$);
SELECT code FROM pg_temp.error_of($$SELECT idempotency.accumulate('shop.shown', 2, 'n', 1, 's2', wait => '0')$$);
RESET ROLE;

-- a duplicate of a log of one's own holds no lock on somebody else's table
SET ROLE regress_idem_user;
CREATE TABLE shop.mine (LIKE idempotency.operation_log INCLUDING ALL);
INSERT INTO shop.mine (scope, operation_id, state) VALUES ('s', 'x', 'forbidden');
BEGIN;
SELECT outcome FROM idempotency.accumulate('shop.shown', 1, 'n', 1, 'x', scope => 's', log => 'shop.mine');
SELECT count(*) AS locks FROM pg_locks WHERE relation = 'shop.shown'::regclass;
COMMIT;
RESET ROLE;

-- row security on a log: two tenants share it and see nothing of one another
CREATE TABLE shop.log (LIKE idempotency.operation_log INCLUDING ALL);
ALTER TABLE shop.log OWNER TO regress_idem_owner;
SET ROLE regress_idem_owner;
ALTER TABLE shop.log ENABLE ROW LEVEL SECURITY;
ALTER TABLE shop.log FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON shop.log USING (scope = current_user) WITH CHECK (scope = current_user);
GRANT SELECT, INSERT ON shop.log TO regress_idem_tenant_a, regress_idem_tenant_b;
SET ROLE regress_idem_tenant_a;
SELECT outcome, value FROM idempotency.accumulate('shop.points', 3, 'balance', 1, 'same', scope => 'regress_idem_tenant_a', log => 'shop.log');
SELECT outcome, value FROM idempotency.accumulate('shop.points', 3, 'balance', 1, 'same', scope => 'regress_idem_tenant_a', log => 'shop.log');
SELECT code, message FROM pg_temp.error_of($$SELECT idempotency.accumulate('shop.points', 3, 'balance', 1, 'other', scope => 'regress_idem_tenant_b', log => 'shop.log')$$);
SET ROLE regress_idem_tenant_b;
SELECT outcome, value FROM idempotency.accumulate('shop.points', 5, 'balance', 1, 'same', scope => 'regress_idem_tenant_b', log => 'shop.log');
SELECT state, value FROM idempotency.lookup('regress_idem_tenant_a', 'same', 'shop.log');
-- an id that row security hides: told apart from a race, and nothing of it shown
SELECT * FROM pg_temp.error_of($$SELECT idempotency.accumulate('shop.points', 5, 'balance', 1, 'same', scope => 'regress_idem_tenant_a', log => 'shop.log')$$);
RESET ROLE;
DROP POLICY tenant ON shop.log;
CREATE POLICY seen ON shop.log FOR SELECT USING (scope = current_user);
CREATE POLICY made ON shop.log FOR INSERT WITH CHECK (true);
SET ROLE regress_idem_tenant_b;
SELECT * FROM pg_temp.error_of($$SELECT idempotency.accumulate('shop.points', 5, 'balance', 1, 'same', scope => 'regress_idem_tenant_a', log => 'shop.log')$$);
SELECT * FROM pg_temp.error_of($$SELECT idempotency.accumulate('shop.points', 5, 'balance', 1, 'same', scope => 'regress_idem_tenant_a', log => 'shop.log', wait => '0')$$);
-- an expired one can be used again, hidden or not
RESET ROLE;
UPDATE shop.log SET expires_at = '2026-01-01';
SET ROLE regress_idem_tenant_b;
SELECT outcome, value FROM idempotency.accumulate('shop.points', 5, 'balance', 1, 'same', scope => 'regress_idem_tenant_b', log => 'shop.log');
RESET ROLE;
SELECT scope, operation_id, expires_at IS NOT NULL AS expired FROM shop.log ORDER BY 1;

-- the log's owner acts through its triggers with no more than its own rights
SET ROLE regress_idem_owner;
CREATE TABLE shop.seen (who name, what text);
GRANT INSERT ON shop.seen TO PUBLIC;
CREATE FUNCTION shop.note() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO shop.seen VALUES (current_user, TG_OP);
	RETURN coalesce(NEW, OLD);
END $$;
CREATE TRIGGER note BEFORE INSERT OR DELETE ON shop.log FOR EACH ROW EXECUTE FUNCTION shop.note();
RESET ROLE;
UPDATE shop.log SET expires_at = '2026-01-01' WHERE scope = 'regress_idem_tenant_b';
SET ROLE regress_idem_tenant_b;
SELECT outcome, value FROM idempotency.accumulate('shop.points', 5, 'balance', 1, 'same', scope => 'regress_idem_tenant_b', log => 'shop.log');
RESET ROLE;
SELECT DISTINCT who, what FROM shop.seen ORDER BY 2, 1;

-- whoever may use a log may not give it on, and is told so
SET ROLE regress_idem_user;
SELECT * FROM pg_temp.error_of($$SELECT idempotency.grant_use('idempotency.operation_log', 'regress_idem_tenant_a')$$);
RESET ROLE;

-- the owner of a log grants its use, to roles that have the functions
SET ROLE regress_idem_owner;
CREATE TABLE shop.own_log (LIKE shop.log INCLUDING ALL);
SELECT code, message FROM pg_temp.error_of($$SELECT idempotency.grant_use('shop.own_log', 'regress_idem_tenant_a')$$);
RESET ROLE;
SELECT idempotency.grant_use('shop.log', 'regress_idem_owner');
SET ROLE regress_idem_owner;
SELECT idempotency.grant_use('shop.own_log', 'regress_idem_tenant_a');
SELECT has_table_privilege('regress_idem_tenant_a', 'shop.own_log', 'INSERT') AS may_insert, has_table_privilege('regress_idem_tenant_a', 'shop.own_log', 'UPDATE') AS may_update;
RESET ROLE;
CREATE ROLE regress_idem_nobody;
SET ROLE regress_idem_owner;
SELECT * FROM pg_temp.error_of($$SELECT idempotency.grant_use('shop.own_log', 'regress_idem_nobody')$$);
RESET ROLE;

SET client_min_messages = error;
DROP SCHEMA shop CASCADE;
DROP EXTENSION idempotency;
DROP SCHEMA idempotency;
DROP ROLE regress_idem_owner, regress_idem_user, regress_idem_reader, regress_idem_tenant_a, regress_idem_tenant_b, regress_idem_nobody;
