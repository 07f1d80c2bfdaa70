-- insert_or_return and ignore_duplicates: G11 no back door; privileges and row security are those of the plain statements.
SET client_min_messages = warning;
CREATE EXTENSION idempotency;
\i test/lib/error_of.psql
\pset null NULL
CREATE ROLE regress_idem_owner;
CREATE ROLE regress_idem_app;
CREATE ROLE regress_idem_tenant_a;
CREATE ROLE regress_idem_tenant_b;
CREATE SCHEMA shop AUTHORIZATION regress_idem_owner;
GRANT USAGE ON SCHEMA shop TO PUBLIC;
SET ROLE regress_idem_owner;
CREATE TABLE shop.orders (id int PRIMARY KEY, customer text, secret text DEFAULT 'hidden');
INSERT INTO shop.orders VALUES (1, 'ann');
RESET ROLE;

-- nothing is granted to PUBLIC, and grant_use gives the functions
GRANT USAGE ON SCHEMA idempotency TO regress_idem_app;
SET ROLE regress_idem_app;
SELECT code, message FROM pg_temp.error_of($$SELECT idempotency.insert_or_return(NULL::shop.orders, '{"id": 1}')$$);
SELECT code, message FROM pg_temp.error_of($$SELECT idempotency.insert_or_return_batch(NULL::shop.orders, '[{"id": 1}]')$$);
CREATE TEMP TABLE mine (k int PRIMARY KEY);
SELECT code, message FROM pg_temp.error_of($$CREATE TRIGGER zz BEFORE INSERT ON mine FOR EACH ROW EXECUTE FUNCTION idempotency.ignore_duplicates()$$);
RESET ROLE;
SELECT idempotency.grant_use('idempotency.operation_log', role::regrole) FROM unnest('{regress_idem_owner,regress_idem_app,regress_idem_tenant_a,regress_idem_tenant_b}'::text[]) role;
SET ROLE regress_idem_app;
CREATE TRIGGER zz BEFORE INSERT ON mine FOR EACH ROW EXECUTE FUNCTION idempotency.ignore_duplicates();
INSERT INTO mine VALUES (1), (1);
SELECT * FROM mine;

-- SELECT on all columns, for the whole row is returned; INSERT on those that are given
SELECT code, message FROM pg_temp.error_of($$SELECT idempotency.insert_or_return(NULL::shop.orders, '{"id": 1}')$$);
RESET ROLE;
GRANT SELECT (id, customer), INSERT ON shop.orders TO regress_idem_app;
SET ROLE regress_idem_app;
SELECT code, message FROM pg_temp.error_of($$SELECT idempotency.insert_or_return(NULL::shop.orders, '{"id": 1}')$$);
SELECT code, message FROM pg_temp.error_of($$SELECT idempotency.insert_or_return(NULL::shop.orders, '{"id": 2}')$$);
RESET ROLE;
REVOKE INSERT ON shop.orders FROM regress_idem_app;
GRANT SELECT (secret) ON shop.orders TO regress_idem_app;
SET ROLE regress_idem_app;
SELECT * FROM idempotency.insert_or_return(NULL::shop.orders, '{"id": 1}');
SELECT code, message FROM pg_temp.error_of($$SELECT idempotency.insert_or_return(NULL::shop.orders, '{"id": 2}')$$);
RESET ROLE;
GRANT INSERT (id, customer) ON shop.orders TO regress_idem_app;
SET ROLE regress_idem_app;
SELECT * FROM idempotency.insert_or_return(NULL::shop.orders, '{"id": 2, "customer": "bob"}');
SELECT code, message FROM pg_temp.error_of($$SELECT idempotency.insert_or_return(NULL::shop.orders, '{"id": 3, "secret": "x"}')$$);
RESET ROLE;
SELECT * FROM shop.orders ORDER BY id;

-- expressions and predicates of a key, and the table's triggers, run as the caller does an INSERT: with its privileges
SET ROLE regress_idem_owner;
CREATE FUNCTION shop.who() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.by_whom := current_user; RETURN NEW; END $$;
CREATE TABLE shop.signed (k int PRIMARY KEY, by_whom name);
CREATE TRIGGER who BEFORE INSERT ON shop.signed FOR EACH ROW EXECUTE FUNCTION shop.who();
GRANT SELECT, INSERT ON shop.signed TO regress_idem_app;
SET ROLE regress_idem_app;
SELECT * FROM idempotency.insert_or_return(NULL::shop.signed, '{"k": 1}');
RESET ROLE;

-- two tenants, whose policies show each its own rows
SET ROLE regress_idem_owner;
CREATE TABLE shop.booking (number int PRIMARY KEY, tenant name NOT NULL DEFAULT current_user, note text);
CREATE POLICY own ON shop.booking USING (tenant = current_user);
ALTER TABLE shop.booking ENABLE ROW LEVEL SECURITY;
GRANT SELECT, INSERT, DELETE ON shop.booking TO regress_idem_tenant_a, regress_idem_tenant_b;
SET ROLE regress_idem_tenant_a;
SELECT * FROM idempotency.insert_or_return(NULL::shop.booking, '{"number": 1, "note": "secret of a"}');
SELECT * FROM idempotency.insert_or_return(NULL::shop.booking, '{"number": 1, "note": "again"}');
-- what the other one has is neither returned nor waited for in a circle, and nothing of it is told
SET ROLE regress_idem_tenant_b;
SELECT * FROM pg_temp.error_of($$SELECT idempotency.insert_or_return(NULL::shop.booking, '{"number": 1, "note": "of b"}')$$);
SELECT * FROM pg_temp.error_of($$SELECT idempotency.insert_or_return(NULL::shop.booking, '{"number": 1, "note": "of b"}', must_match => '{note}')$$);
SELECT * FROM pg_temp.error_of($$SELECT idempotency.insert_or_return_batch(NULL::shop.booking, '[{"number": 2}, {"number": 1}]')$$);
SELECT count(*) FROM shop.booking;
SELECT * FROM pg_temp.error_of($$SELECT idempotency.insert_or_return(NULL::shop.booking, '{"number": 1, "tenant": "regress_idem_tenant_a"}')$$);
SELECT code, message FROM pg_temp.error_of($$SELECT idempotency.insert_or_return(NULL::shop.booking, '{"number": 3, "tenant": "regress_idem_tenant_a"}')$$);
BEGIN READ ONLY;
SELECT code, message FROM pg_temp.error_of($$SELECT idempotency.insert_or_return(NULL::shop.booking, '{"number": 1}')$$);
ROLLBACK;
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT code, message FROM pg_temp.error_of($$SELECT idempotency.insert_or_return(NULL::shop.booking, '{"number": 1}')$$);
ROLLBACK;
SELECT * FROM idempotency.insert_or_return(NULL::shop.booking, '{"number": 2}');
-- with the tenant in the key each has its own numbers
SET ROLE regress_idem_owner;
ALTER TABLE shop.booking DROP CONSTRAINT booking_pkey, ADD PRIMARY KEY (tenant, number);
SET ROLE regress_idem_tenant_b;
SELECT * FROM idempotency.insert_or_return(NULL::shop.booking, '{"number": 1, "tenant": "regress_idem_tenant_b", "note": "of b"}');
SELECT inserted, (stored).note FROM idempotency.insert_or_return(NULL::shop.booking, '{"number": 1, "tenant": "regress_idem_tenant_b"}');
-- the owner is exempt
SET ROLE regress_idem_owner;
SELECT * FROM idempotency.insert_or_return(NULL::shop.booking, '{"number": 1, "tenant": "regress_idem_tenant_b"}');
-- unless it is forced; then its own policy holds for it too
ALTER TABLE shop.booking FORCE ROW LEVEL SECURITY;
SELECT * FROM pg_temp.error_of($$SELECT idempotency.insert_or_return(NULL::shop.booking, '{"number": 1, "tenant": "regress_idem_tenant_b"}')$$);
SELECT * FROM idempotency.insert_or_return(NULL::shop.booking, '{"number": 1, "tenant": "regress_idem_owner"}');
SELECT inserted FROM idempotency.insert_or_return(NULL::shop.booking, '{"number": 1, "tenant": "regress_idem_owner"}');
-- where row_security = off forbids to filter, that is said
SET row_security = off;
SELECT code, message FROM pg_temp.error_of($$SELECT idempotency.insert_or_return(NULL::shop.booking, '{"number": 1, "tenant": "regress_idem_owner"}')$$);
RESET row_security;
-- a policy that runs SQL of its own, as the caller
CREATE TABLE shop.member (who name);
CREATE POLICY members ON shop.booking FOR SELECT USING (EXISTS (SELECT FROM shop.member WHERE who = current_user));
DROP POLICY own ON shop.booking;
CREATE POLICY anybody ON shop.booking FOR INSERT WITH CHECK (true);
SELECT code, message FROM pg_temp.error_of($$SELECT idempotency.insert_or_return(NULL::shop.booking, '{"number": 1, "tenant": "regress_idem_owner"}')$$);
INSERT INTO shop.member VALUES ('regress_idem_owner');
SELECT inserted FROM idempotency.insert_or_return(NULL::shop.booking, '{"number": 1, "tenant": "regress_idem_owner"}');

-- ignore_duplicates skips a row whose key is there, seen or not; a plain INSERT would tell as much
CREATE TABLE shop.event (id int PRIMARY KEY, tenant name DEFAULT current_user);
CREATE POLICY own ON shop.event USING (tenant = current_user);
ALTER TABLE shop.event ENABLE ROW LEVEL SECURITY;
CREATE TRIGGER zz BEFORE INSERT ON shop.event FOR EACH ROW EXECUTE FUNCTION idempotency.ignore_duplicates('id');
GRANT INSERT, SELECT ON shop.event TO regress_idem_tenant_a;
GRANT INSERT ON shop.event TO regress_idem_tenant_b;
SET ROLE regress_idem_tenant_a;
INSERT INTO shop.event VALUES (1);
SET ROLE regress_idem_tenant_b;
\set QUIET off
INSERT INTO shop.event VALUES (1), (2), (2);
\set QUIET on
RESET ROLE;
SELECT * FROM shop.event ORDER BY id;

SET client_min_messages = error;
DROP SCHEMA shop CASCADE;
DROP TABLE mine;
DROP EXTENSION idempotency;
DROP SCHEMA idempotency;
DROP ROLE regress_idem_owner, regress_idem_app, regress_idem_tenant_a, regress_idem_tenant_b;
