-- transitions and state_diagram: what the guard_transitions() triggers of a table say.
SET client_min_messages = warning;
CREATE EXTENSION idempotency;
\i test/lib/error_of.psql
\pset null NULL
\pset format unaligned
CREATE TABLE orders (id int PRIMARY KEY, status text, parcel text);
SELECT * FROM idempotency.transitions('orders');
SELECT * FROM pg_temp.error_of($$SELECT idempotency.state_diagram('orders')$$);
CREATE TRIGGER zz_guard BEFORE INSERT OR UPDATE ON orders FOR EACH ROW EXECUTE FUNCTION idempotency.guard_transitions('status', '
    direction LR
    [*] --> wait : place
    wait --> PAID : pay
    wait --> 取消 : cancel
    state "waiting for payment" as wait
    PAID --> [*] : done
    取消 --> [*]
    wait : until the deadline');
CREATE TRIGGER zz_parcel BEFORE INSERT OR UPDATE ON orders FOR EACH ROW EXECUTE FUNCTION idempotency.guard_transitions('parcel', E'[*] --> here\nhere --> there');
SELECT * FROM idempotency.transitions('orders');

-- the diagram, and the same one read again
SELECT idempotency.state_diagram('orders');
SELECT idempotency.state_diagram('orders', 'parcel');
SELECT line, severity, message FROM idempotency.check_state_diagram(idempotency.state_diagram('orders'));

-- with the number of rows in each state; what is in none is told
SELECT idempotency.state_diagram('orders', counts => true);
ALTER TABLE orders DISABLE TRIGGER USER;
INSERT INTO orders VALUES (1, 'PAID', 'here'), (2, 'waiting for payment', 'here'), (3, 'waiting for payment', 'here'), (4, NULL, 'here'), (5, E'LE\nGACY', 'here');
ALTER TABLE orders ENABLE TRIGGER USER;
SELECT idempotency.state_diagram('orders', counts => true);
SELECT line, severity, message FROM idempotency.check_state_diagram(idempotency.state_diagram('orders', counts => true));
BEGIN READ ONLY;
SELECT length(idempotency.state_diagram('orders', 'status', true)) > 0 AS counted;
COMMIT;

-- two triggers of one machine are one; of two machines, none is the column's
CREATE CONSTRAINT TRIGGER after_guard AFTER INSERT OR UPDATE ON orders FOR EACH ROW EXECUTE FUNCTION idempotency.guard_transitions('parcel', E'[*] --> here\nhere --> there');
SELECT count(*) FROM idempotency.transitions('orders') WHERE column_name = 'parcel';
CREATE TRIGGER zz_other BEFORE INSERT OR UPDATE ON orders FOR EACH ROW EXECUTE FUNCTION idempotency.guard_transitions('parcel', E'[*] --> here\nhere --> nowhere');
SELECT count(*) FROM idempotency.transitions('orders') WHERE column_name = 'parcel';
SELECT * FROM pg_temp.error_of($$SELECT idempotency.state_diagram('orders', 'parcel')$$);
SELECT code, message FROM pg_temp.error_of($$SELECT idempotency.fire('orders', 1, 'x', 'parcel')$$);
-- one that is disabled, or that only judges what is replicated, counts for nothing
ALTER TABLE orders ENABLE REPLICA TRIGGER zz_other;
SELECT count(*) FROM idempotency.transitions('orders') WHERE column_name = 'parcel';
ALTER TABLE orders DISABLE TRIGGER after_guard, DISABLE TRIGGER zz_parcel;
SELECT count(*) FROM idempotency.transitions('orders') WHERE column_name = 'parcel';
ALTER TABLE orders ENABLE ALWAYS TRIGGER zz_other;
SELECT idempotency.state_diagram('orders', 'parcel');
-- functions of that name in other schemas are not it
CREATE FUNCTION guard_transitions() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NEW; END $$;
CREATE TABLE other (id int PRIMARY KEY, status text);
CREATE TRIGGER zz_guard BEFORE INSERT OR UPDATE ON other FOR EACH ROW EXECUTE FUNCTION guard_transitions('status', '[*] --> A');
SELECT count(*) FROM idempotency.transitions('other');
-- a partitioned table has what its partitions have
CREATE TABLE parted (id int, status text, PRIMARY KEY (id)) PARTITION BY HASH (id);
CREATE TABLE parted_0 PARTITION OF parted FOR VALUES WITH (MODULUS 1, REMAINDER 0);
CREATE TRIGGER zz_guard BEFORE INSERT OR UPDATE ON parted FOR EACH ROW EXECUTE FUNCTION idempotency.guard_transitions('status', E'[*] --> A\nA --> B : go');
INSERT INTO parted VALUES (1, 'A'), (2, 'A');
SELECT outcome, state FROM idempotency.fire('parted', 1, 'go');
SELECT idempotency.state_diagram('parted', counts => true);
SELECT count(*) FROM idempotency.transitions('parted_0');

-- bad input
SELECT * FROM pg_temp.error_of($$SELECT idempotency.transitions(NULL)$$);
SELECT code, message FROM pg_temp.error_of($$SELECT idempotency.transitions(0)$$);
SELECT code, message FROM pg_temp.error_of($$SELECT idempotency.state_diagram(NULL)$$);
SELECT code, message FROM pg_temp.error_of($$SELECT idempotency.state_diagram('orders', NULL)$$);
SELECT code, message FROM pg_temp.error_of($$SELECT idempotency.state_diagram('orders', counts => NULL)$$);
SELECT code, message FROM pg_temp.error_of($$SELECT idempotency.state_diagram('orders', 'nothing')$$);
CREATE VIEW orders_view AS SELECT * FROM orders;
SELECT code, message FROM pg_temp.error_of($$SELECT idempotency.transitions('orders_view')$$);

-- G11 no back door: the diagram is the catalogue's, the counts are of rows that the caller may read
CREATE ROLE regress_idem_app;
SELECT idempotency.grant_use('idempotency.operation_log', 'regress_idem_app');
SET ROLE regress_idem_app;
SELECT count(*) FROM idempotency.transitions('orders');
SELECT code, message FROM pg_temp.error_of($$SELECT idempotency.state_diagram('orders', counts => true)$$);
RESET ROLE;
GRANT SELECT (status, id) ON orders TO regress_idem_app;
ALTER TABLE orders ENABLE ROW LEVEL SECURITY;
CREATE POLICY own ON orders USING (id <= 2);
SET ROLE regress_idem_app;
SELECT idempotency.state_diagram('orders', counts => true);
RESET ROLE;

DROP TABLE orders, other, parted CASCADE;
DROP OWNED BY regress_idem_app;
DROP ROLE regress_idem_app;
DROP FUNCTION guard_transitions();
DROP EXTENSION idempotency;
