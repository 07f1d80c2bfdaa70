-- guard_transitions: whoever writes, a row begins in an initial state and goes on along the arrows.
SET client_min_messages = warning;
CREATE EXTENSION idempotency;
CREATE SCHEMA regress_guard;
SET search_path = regress_guard, public;
\i test/lib/error_of.psql
\pset null NULL
CREATE TABLE orders (id int PRIMARY KEY, number text UNIQUE, status text, note text);
CREATE TRIGGER zz_guard BEFORE INSERT OR UPDATE ON orders FOR EACH ROW EXECUTE FUNCTION idempotency.guard_transitions('status', '
stateDiagram-v2
    [*] --> WAIT_PAY
    [*] --> DRAFT
    DRAFT --> WAIT_PAY : place
    WAIT_PAY --> PAID : pay
    WAIT_PAY --> CANCELLED : cancel
    PAID --> REFUNDED : refund
    CANCELLED --> [*]
    REFUNDED --> [*]');

-- INSERT: only what begins
INSERT INTO orders (id, status) VALUES (1, 'WAIT_PAY'), (2, 'DRAFT'), (3, 'WAIT_PAY');
SELECT * FROM pg_temp.error_of($$INSERT INTO orders (id, status) VALUES (4, 'PAID')$$);
SELECT * FROM pg_temp.error_of($$INSERT INTO orders (id, status) VALUES (4, 'LOST')$$);
SELECT * FROM pg_temp.error_of($$INSERT INTO orders (id) VALUES (4)$$);
SELECT code FROM pg_temp.error_of($$INSERT INTO orders (id, status) SELECT i, 'PAID' FROM generate_series(4, 5) i$$);
COPY orders (id, status) FROM stdin;
4	WAIT_PAY
5	SHIPPED
\.
-- UPDATE: only along the arrows; the same state again is no move, and other columns are nobody's business
UPDATE orders SET status = 'PAID' WHERE id = 1;
UPDATE orders SET status = 'PAID', note = 'again' WHERE id = 1;
UPDATE orders SET note = 'once more' WHERE id = 1;
SELECT * FROM pg_temp.error_of($$UPDATE orders SET status = 'CANCELLED' WHERE id = 1$$);
SELECT * FROM pg_temp.error_of($$UPDATE orders SET status = 'LOST' WHERE id = 1$$);
SELECT * FROM pg_temp.error_of($$UPDATE orders SET status = NULL WHERE id = 1$$);
SELECT * FROM pg_temp.error_of($$UPDATE orders SET status = 'paid' WHERE id = 3$$);
UPDATE orders SET status = 'REFUNDED' WHERE id = 1;
SELECT * FROM pg_temp.error_of($$UPDATE orders SET status = 'WAIT_PAY' WHERE id = 1$$);
-- one row that may not go keeps all of the statement from going
SELECT code FROM pg_temp.error_of($$UPDATE orders SET status = 'CANCELLED'$$);
SELECT id, status FROM orders ORDER BY id;
-- the error names the table and the column for programs, too
DO $$
DECLARE
	table_name text; column_name text; schema_name text;
BEGIN
	UPDATE orders SET status = 'WAIT_PAY' WHERE id = 1;
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS table_name = TABLE_NAME, column_name = COLUMN_NAME, schema_name = SCHEMA_NAME;
	RAISE WARNING '% % %', schema_name, table_name, column_name;
END $$;
-- DELETE is none of its business
DELETE FROM orders WHERE id = 2;

-- an upsert is judged by the row it stores
INSERT INTO orders (id, status) VALUES (3, 'PAID') ON CONFLICT (id) DO UPDATE SET status = EXCLUDED.status;
SELECT id, status FROM orders WHERE id = 3;
SELECT code, message FROM pg_temp.error_of($$INSERT INTO orders (id, status) VALUES (3, 'CANCELLED') ON CONFLICT (id) DO UPDATE SET status = EXCLUDED.status$$);
INSERT INTO orders (id, status) VALUES (3, 'CANCELLED') ON CONFLICT (id) DO UPDATE SET note = 'kept';
INSERT INTO orders (id, status) VALUES (3, 'CANCELLED') ON CONFLICT DO NOTHING;
INSERT INTO orders (id, status) VALUES (6, 'WAIT_PAY') ON CONFLICT (id) DO UPDATE SET status = 'PAID';
SELECT code, message FROM pg_temp.error_of($$INSERT INTO orders (id, status) VALUES (7, 'PAID') ON CONFLICT (id) DO UPDATE SET status = EXCLUDED.status$$);
SELECT code, message FROM pg_temp.error_of($$INSERT INTO orders (id, status) VALUES (7, 'PAID') ON CONFLICT DO NOTHING$$);
-- by another unique key, and where the row in the way is one of the statement's own
INSERT INTO orders (id, number, status) VALUES (8, 'n8', 'WAIT_PAY');
INSERT INTO orders (id, number, status) VALUES (9, 'n8', 'PAID') ON CONFLICT (number) DO UPDATE SET status = EXCLUDED.status;
INSERT INTO orders (id, number, status) VALUES (10, 'n10', 'WAIT_PAY'), (10, 'n10', 'PAID') ON CONFLICT DO NOTHING;
SELECT code FROM pg_temp.error_of($$INSERT INTO orders (id, status) VALUES (8, 'PAID')$$);
-- what this very statement deletes is in nobody's way
SELECT code FROM pg_temp.error_of($$WITH gone AS (DELETE FROM orders WHERE id = 8 RETURNING *) INSERT INTO orders (id, number, status) SELECT id, number, 'REFUNDED' FROM gone$$);
BEGIN;
DELETE FROM orders WHERE id = 8;
SELECT code FROM pg_temp.error_of($$INSERT INTO orders (id, status) VALUES (8, 'PAID') ON CONFLICT (id) DO UPDATE SET status = EXCLUDED.status$$);
ROLLBACK;
SELECT id, number, status, note FROM orders ORDER BY id;
-- partial and expression keys guard, too; a row outside of them is in nobody's way
CREATE TABLE parts (k int, live boolean, name text, status text);
CREATE UNIQUE INDEX ON parts (k) WHERE live;
CREATE UNIQUE INDEX ON parts (lower(name));
CREATE TRIGGER zz_guard BEFORE INSERT OR UPDATE ON parts FOR EACH ROW EXECUTE FUNCTION idempotency.guard_transitions('status', E'[*] --> A\nA --> B\nB --> [*]');
INSERT INTO parts VALUES (1, true, 'x', 'A'), (2, false, 'y', 'A');
INSERT INTO parts VALUES (1, true, 'z', 'B') ON CONFLICT (k) WHERE live DO UPDATE SET status = EXCLUDED.status;
INSERT INTO parts VALUES (3, true, 'Y', 'B') ON CONFLICT (lower(name)) DO UPDATE SET status = EXCLUDED.status;
SELECT code FROM pg_temp.error_of($$INSERT INTO parts VALUES (2, false, 'w', 'B') ON CONFLICT DO NOTHING$$);
SELECT code FROM pg_temp.error_of($$INSERT INTO parts VALUES (NULL, true, NULL, 'B') ON CONFLICT DO NOTHING$$);
SELECT * FROM parts ORDER BY k;

-- rows from before there was a diagram: other columns can be changed, a state that is unknown cannot be left
CREATE TABLE old (id int PRIMARY KEY, status text, note text);
INSERT INTO old VALUES (1, 'LEGACY'), (2, NULL), (3, 'A');
CREATE TRIGGER zz_guard BEFORE INSERT OR UPDATE ON old FOR EACH ROW EXECUTE FUNCTION idempotency.guard_transitions('status', E'[*] --> A\nA --> B\nB --> [*]');
UPDATE old SET note = 'x';
SELECT * FROM pg_temp.error_of($$UPDATE old SET status = 'A' WHERE id = 1$$);
SELECT * FROM pg_temp.error_of($$UPDATE old SET status = 'B' WHERE id = 2$$);
UPDATE old SET status = 'A' WHERE id = 2;
SELECT * FROM old ORDER BY id;
-- a dead end is no end
CREATE TABLE dead (id int PRIMARY KEY, status text);
CREATE TRIGGER zz_guard BEFORE INSERT OR UPDATE ON dead FOR EACH ROW EXECUTE FUNCTION idempotency.guard_transitions('status', '[*] --> A');
INSERT INTO dead VALUES (1, 'A');
SELECT code, detail FROM pg_temp.error_of($$UPDATE dead SET status = 'B'$$);

-- names as people have them; a name that is only an id of the diagram is explained
CREATE TABLE parcels (id int PRIMARY KEY, status varchar(40));
CREATE TRIGGER zz_guard BEFORE INSERT OR UPDATE ON parcels FOR EACH ROW EXECUTE FUNCTION idempotency.guard_transitions('status', '
    state "waiting for customs" as customs
    [*] --> customs
    customs --> 配達 : 承認');
INSERT INTO parcels VALUES (1, 'waiting for customs');
UPDATE parcels SET status = '配達';
SELECT * FROM pg_temp.error_of($$INSERT INTO parcels VALUES (2, 'customs')$$);
SELECT code, hint FROM pg_temp.error_of($$UPDATE parcels SET status = 'customs'$$);

-- column types: text, varchar, enums and domains over them
CREATE TYPE light AS ENUM ('red', 'green', 'amber');
CREATE DOMAIN traffic_light AS light CHECK (VALUE <> 'amber');
CREATE DOMAIN word AS text;
CREATE TABLE typed (id int PRIMARY KEY, a light, b traffic_light, c word);
CREATE TRIGGER zz_a BEFORE INSERT OR UPDATE ON typed FOR EACH ROW EXECUTE FUNCTION idempotency.guard_transitions('a', E'[*] --> red\nred --> green\ngreen --> amber\namber --> red');
CREATE TRIGGER zz_b BEFORE INSERT OR UPDATE ON typed FOR EACH ROW EXECUTE FUNCTION idempotency.guard_transitions('b', E'[*] --> red\nred --> green');
CREATE TRIGGER zz_c BEFORE INSERT OR UPDATE ON typed FOR EACH ROW EXECUTE FUNCTION idempotency.guard_transitions('c', E'[*] --> on\non --> off');
INSERT INTO typed VALUES (1, 'red', 'red', 'on');
-- two machines and more: each judges its own column
UPDATE typed SET a = 'green', c = 'off';
SELECT code, message FROM pg_temp.error_of($$UPDATE typed SET a = 'red'$$);
SELECT code, message FROM pg_temp.error_of($$UPDATE typed SET a = 'amber', c = 'on'$$);
SELECT code, message FROM pg_temp.error_of($$INSERT INTO typed VALUES (2, 'red', 'green', 'on')$$);
SELECT * FROM typed;
-- a label that is renamed is another state, at once
ALTER TYPE light RENAME VALUE 'amber' TO 'yellow';
SELECT code, message FROM pg_temp.error_of($$UPDATE typed SET a = 'yellow'$$);

-- changes take effect at once, in this session
CREATE TABLE changing (id int PRIMARY KEY, status text);
CREATE TRIGGER zz_guard BEFORE INSERT OR UPDATE ON changing FOR EACH ROW EXECUTE FUNCTION idempotency.guard_transitions('status', E'[*] --> A\nA --> B');
INSERT INTO changing VALUES (1, 'A');
SELECT code FROM pg_temp.error_of($$UPDATE changing SET status = 'C'$$);
CREATE OR REPLACE TRIGGER zz_guard BEFORE INSERT OR UPDATE ON changing FOR EACH ROW EXECUTE FUNCTION idempotency.guard_transitions('status', E'[*] --> A\nA --> C');
UPDATE changing SET status = 'C';
ALTER TABLE changing RENAME status TO state;
SELECT code, message FROM pg_temp.error_of($$UPDATE changing SET state = 'A'$$);
ALTER TABLE changing RENAME state TO status;
ALTER TABLE changing DISABLE TRIGGER zz_guard;
UPDATE changing SET status = 'A';
ALTER TABLE changing ENABLE TRIGGER zz_guard;
SELECT code FROM pg_temp.error_of($$UPDATE changing SET status = 'B'$$);
-- who may set it can switch ordinary triggers off, but not one that is ENABLE ALWAYS
SET session_replication_role = replica;
UPDATE changing SET status = 'B';
ALTER TABLE changing ENABLE ALWAYS TRIGGER zz_guard;
SELECT code FROM pg_temp.error_of($$UPDATE changing SET status = 'A'$$);
RESET session_replication_role;

-- BEFORE, it must be the last: what a later trigger makes of the row is not judged
CREATE FUNCTION make_c() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.status := 'C'; RETURN NEW; END $$;
CREATE TABLE ordered (id int PRIMARY KEY, status text);
CREATE TRIGGER m_guard BEFORE INSERT OR UPDATE ON ordered FOR EACH ROW EXECUTE FUNCTION idempotency.guard_transitions('status', E'[*] --> A\nA --> B');
CREATE TRIGGER a_change BEFORE UPDATE ON ordered FOR EACH ROW EXECUTE FUNCTION make_c();
INSERT INTO ordered VALUES (1, 'A');
SELECT code, message FROM pg_temp.error_of($$UPDATE ordered SET status = 'B'$$);
ALTER TRIGGER a_change ON ordered RENAME TO z_change;
UPDATE ordered SET status = 'B';
SELECT status FROM ordered;
-- AFTER, it judges what was stored
UPDATE ordered SET status = 'A' WHERE false;
DROP TRIGGER m_guard ON ordered;
DROP TRIGGER z_change ON ordered;
UPDATE ordered SET status = 'A';
CREATE TRIGGER z_change BEFORE UPDATE ON ordered FOR EACH ROW EXECUTE FUNCTION make_c();
CREATE TRIGGER m_guard AFTER INSERT OR UPDATE ON ordered FOR EACH ROW EXECUTE FUNCTION idempotency.guard_transitions('status', E'[*] --> A\nA --> B');
SELECT code, message FROM pg_temp.error_of($$UPDATE ordered SET status = 'B'$$);
SELECT code, message FROM pg_temp.error_of($$INSERT INTO ordered VALUES (2, 'B')$$);
INSERT INTO ordered VALUES (2, 'A') ON CONFLICT (id) DO UPDATE SET status = 'B';
INSERT INTO ordered VALUES (3, 'B'), (1, 'B') ON CONFLICT (id) DO NOTHING;
SELECT * FROM ordered ORDER BY id;
-- as a constraint, at the end of the transaction; each step that was stored is judged
CREATE TABLE deferred (id int PRIMARY KEY, status text);
CREATE CONSTRAINT TRIGGER guard AFTER INSERT OR UPDATE ON deferred DEFERRABLE INITIALLY DEFERRED
	FOR EACH ROW EXECUTE FUNCTION idempotency.guard_transitions('status', E'[*] --> A\nA --> B\nB --> A');
BEGIN;
INSERT INTO deferred VALUES (1, 'A');
UPDATE deferred SET status = 'B';
UPDATE deferred SET status = 'A';
COMMIT;
BEGIN;
UPDATE deferred SET status = 'C';
SET CONSTRAINTS ALL IMMEDIATE;
ROLLBACK;
BEGIN;
UPDATE deferred SET status = 'C';
UPDATE deferred SET status = 'A';
COMMIT;
SELECT * FROM deferred;

-- partitions: a row that moves is no new one, whatever its columns' order there
CREATE TABLE parted (id int, status text, region text, PRIMARY KEY (id, region)) PARTITION BY LIST (region);
CREATE TABLE parted_a PARTITION OF parted FOR VALUES IN ('a');
CREATE TABLE parted_b (status text, region text NOT NULL, id int NOT NULL);
ALTER TABLE parted ATTACH PARTITION parted_b FOR VALUES IN ('b');
CREATE TABLE parted_c PARTITION OF parted FOR VALUES IN ('c', 'd') PARTITION BY LIST (region);
CREATE TABLE parted_c_c PARTITION OF parted_c FOR VALUES IN ('c');
CREATE TABLE parted_c_d PARTITION OF parted_c FOR VALUES IN ('d');
CREATE FUNCTION moves() RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	DELETE FROM parted;
	INSERT INTO parted VALUES (1, 'N', 'a'), (2, 'N', 'a'), (3, 'N', 'c');
	UPDATE parted SET status = 'P', region = 'b' WHERE id = 1;
	UPDATE parted SET region = 'c' WHERE id = 1;
	UPDATE parted SET region = 'd' WHERE id IN (1, 3);
	UPDATE parted SET region = 'b', status = 'P' WHERE id > 1;
	UPDATE parted SET region = 'a';
	RETURN (SELECT string_agg(tableoid::regclass || ' ' || id || ' ' || status, ', ' ORDER BY id) FROM parted);
END $$;
CREATE FUNCTION make_x() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.status := 'X'; RETURN NEW; END $$;
CREATE TRIGGER zz_guard BEFORE INSERT OR UPDATE ON parted FOR EACH ROW EXECUTE FUNCTION idempotency.guard_transitions('status', E'[*] --> N\nN --> P\nP --> [*]');
SELECT moves();
SELECT code, message FROM pg_temp.error_of($$UPDATE parted SET status = 'N', region = 'b' WHERE id = 1$$);
SELECT code, message FROM pg_temp.error_of($$UPDATE parted SET status = 'X', region = 'b' WHERE id = 1$$);
SELECT code, message FROM pg_temp.error_of($$INSERT INTO parted VALUES (4, 'P', 'a')$$);
-- an INSERT that comes with a move, or follows one, is one
SELECT code, message FROM pg_temp.error_of($$WITH moved AS (UPDATE parted SET region = 'b' WHERE id = 1 RETURNING *) INSERT INTO parted SELECT 5, status, 'a' FROM moved$$);
SELECT code, message FROM pg_temp.error_of($$WITH kept AS (UPDATE parted SET status = 'P' WHERE id = 1 RETURNING *) INSERT INTO parted SELECT 5, status, 'a' FROM kept$$);
UPDATE parted SET region = 'b' WHERE id = 1;
SELECT code, message FROM pg_temp.error_of($$INSERT INTO parted VALUES (5, 'P', 'a')$$);
-- what a trigger makes of it on its way is judged as well
CREATE TRIGGER make_x BEFORE INSERT ON parted_a FOR EACH ROW EXECUTE FUNCTION make_x();
SELECT code, message FROM pg_temp.error_of($$UPDATE parted SET region = 'a' WHERE id = 1$$);
DROP TRIGGER make_x ON parted_a;
-- a partition that is emptied or dropped after an update of it
BEGIN;
UPDATE parted SET status = 'P' WHERE id = 1;
TRUNCATE parted_b;
INSERT INTO parted VALUES (6, 'N', 'a');
UPDATE parted SET status = 'P' WHERE id = 6;
DROP TABLE parted_a;
INSERT INTO parted VALUES (7, 'N', 'b');
SELECT code FROM pg_temp.error_of($$INSERT INTO parted VALUES (8, 'P', 'b')$$);
ROLLBACK;
BEGIN;
SAVEPOINT s;
CREATE TABLE parted_e PARTITION OF parted FOR VALUES IN ('e');
INSERT INTO parted VALUES (9, 'N', 'e');
UPDATE parted SET status = 'P' WHERE id = 9;
ROLLBACK TO s;
INSERT INTO parted VALUES (9, 'N', 'b');
COMMIT;
-- after the row is stored, deletions tell which rows have moved
DROP TRIGGER zz_guard ON parted;
CREATE TRIGGER guard AFTER INSERT OR UPDATE ON parted FOR EACH ROW EXECUTE FUNCTION idempotency.guard_transitions('status', E'[*] --> N\nN --> P\nP --> [*]');
SELECT * FROM pg_temp.error_of($$INSERT INTO parted VALUES (10, 'N', 'a')$$);
DROP TRIGGER guard ON parted;
CREATE TRIGGER guard AFTER INSERT OR UPDATE OR DELETE ON parted FOR EACH ROW EXECUTE FUNCTION idempotency.guard_transitions('status', E'[*] --> N\nN --> P\nP --> [*]');
SELECT moves();
SELECT code, message FROM pg_temp.error_of($$UPDATE parted SET status = 'N', region = 'b' WHERE id = 1$$);
SELECT code, message FROM pg_temp.error_of($$INSERT INTO parted VALUES (4, 'P', 'a')$$);
SELECT code, message FROM pg_temp.error_of($$WITH gone AS (DELETE FROM parted WHERE id = 1 RETURNING *) INSERT INTO parted SELECT 5, status, 'b' FROM gone$$);
CREATE TRIGGER make_x BEFORE INSERT ON parted_b FOR EACH ROW EXECUTE FUNCTION make_x();
SELECT code, message FROM pg_temp.error_of($$UPDATE parted SET region = 'b' WHERE id = 1$$);
DROP TRIGGER make_x ON parted_b;
DROP TRIGGER guard ON parted;
CREATE CONSTRAINT TRIGGER guard AFTER INSERT OR UPDATE OR DELETE ON parted DEFERRABLE INITIALLY DEFERRED
	FOR EACH ROW EXECUTE FUNCTION idempotency.guard_transitions('status', E'[*] --> N\nN --> P\nP --> [*]');
SELECT moves();
BEGIN;
UPDATE parted SET status = 'N', region = 'b' WHERE id = 1;
COMMIT;

-- what it must not be
SELECT * FROM pg_temp.error_of($$SELECT idempotency.guard_transitions()$$);
CREATE TABLE wrong (id int PRIMARY KEY, status text, n int, p char(3), g text GENERATED ALWAYS AS ('x' || n) STORED);
CREATE FUNCTION wrong(clause text) RETURNS SETOF record LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE 'CREATE TRIGGER zz_guard ' || clause;
	RETURN QUERY SELECT code, message, detail, hint FROM pg_temp.error_of('INSERT INTO wrong VALUES (1, ''A'')');
	EXECUTE 'DROP TRIGGER zz_guard ON wrong';
END $$;
SELECT * FROM wrong($$BEFORE INSERT ON wrong FOR EACH STATEMENT EXECUTE FUNCTION idempotency.guard_transitions('status', '[*] --> A')$$) AS (code text, message text, detail text, hint text);
SELECT * FROM wrong($$BEFORE INSERT ON wrong FOR EACH ROW EXECUTE FUNCTION idempotency.guard_transitions()$$) AS (code text, message text, detail text, hint text);
SELECT * FROM wrong($$BEFORE INSERT ON wrong FOR EACH ROW EXECUTE FUNCTION idempotency.guard_transitions('status', '[*] --> A', 'x')$$) AS (code text, message text, detail text, hint text);
SELECT * FROM wrong($$BEFORE INSERT ON wrong FOR EACH ROW EXECUTE FUNCTION idempotency.guard_transitions('nothing', '[*] --> A')$$) AS (code text, message text, detail text, hint text);
SELECT * FROM wrong($$BEFORE INSERT ON wrong FOR EACH ROW EXECUTE FUNCTION idempotency.guard_transitions('ctid', '[*] --> A')$$) AS (code text, message text, detail text, hint text);
SELECT * FROM wrong($$BEFORE INSERT ON wrong FOR EACH ROW EXECUTE FUNCTION idempotency.guard_transitions('n', '[*] --> A')$$) AS (code text, message text, detail text, hint text);
SELECT * FROM wrong($$BEFORE INSERT ON wrong FOR EACH ROW EXECUTE FUNCTION idempotency.guard_transitions('p', '[*] --> A')$$) AS (code text, message text, detail text, hint text);
SELECT * FROM wrong($$BEFORE INSERT ON wrong FOR EACH ROW EXECUTE FUNCTION idempotency.guard_transitions('g', '[*] --> A')$$) AS (code text, message text, detail text, hint text);
SELECT * FROM wrong($$BEFORE INSERT ON wrong FOR EACH ROW EXECUTE FUNCTION idempotency.guard_transitions('status', E'[*] --> A\nA -> B')$$) AS (code text, message text, detail text, hint text);
SELECT * FROM wrong($$BEFORE INSERT ON wrong FOR EACH ROW EXECUTE FUNCTION idempotency.guard_transitions('status', 'A --> B')$$) AS (code text, message text, detail text, hint text);
CREATE TRIGGER zz_guard BEFORE DELETE ON wrong FOR EACH ROW EXECUTE FUNCTION idempotency.guard_transitions('status', '[*] --> A');
INSERT INTO wrong VALUES (1, 'A');
SELECT code, message FROM pg_temp.error_of($$DELETE FROM wrong$$);
CREATE TABLE mislabelled (id int PRIMARY KEY, a light);
CREATE TRIGGER zz_guard BEFORE INSERT OR UPDATE ON mislabelled FOR EACH ROW EXECUTE FUNCTION idempotency.guard_transitions('a', E'[*] --> red\nred --> blue');
SELECT * FROM pg_temp.error_of($$INSERT INTO mislabelled VALUES (1, 'red')$$);

-- G11 no back door: who may write the state and not read it is not shown it
CREATE ROLE regress_idem_app;
GRANT USAGE ON SCHEMA regress_guard TO regress_idem_app;
GRANT INSERT, UPDATE ON orders TO regress_idem_app;
GRANT SELECT (id) ON orders TO regress_idem_app;
SET ROLE regress_idem_app;
SELECT * FROM pg_temp.error_of($$UPDATE orders SET status = 'CANCELLED'$$);
SELECT code, message FROM pg_temp.error_of($$INSERT INTO orders (id, status) VALUES (3, 'PAID')$$);
RESET ROLE;
GRANT SELECT (status) ON orders TO regress_idem_app;
SET ROLE regress_idem_app;
SELECT code, message FROM pg_temp.error_of($$UPDATE orders SET status = 'CANCELLED' WHERE id = 1$$);
RESET ROLE;
ALTER TABLE orders ENABLE ROW LEVEL SECURITY;
CREATE POLICY all_rows ON orders USING (true);
SET ROLE regress_idem_app;
SELECT code, message FROM pg_temp.error_of($$UPDATE orders SET status = 'CANCELLED' WHERE id = 1$$);
RESET ROLE;
-- nor does it need any privilege of those who write
SET ROLE regress_idem_app;
INSERT INTO orders (id, status) VALUES (20, 'DRAFT');
UPDATE orders SET status = 'WAIT_PAY' WHERE id = 20;
RESET ROLE;

DROP SCHEMA regress_guard CASCADE;
DROP ROLE regress_idem_app;
DROP EXTENSION idempotency;
