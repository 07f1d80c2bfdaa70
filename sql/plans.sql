-- Plans go by the keys, whatever the statistics said when they were made.
SET client_min_messages = warning;
CREATE EXTENSION idempotency;
CREATE TABLE orders (id int PRIMARY KEY, status text, balance bigint DEFAULT 0);
CREATE VIEW scans AS SELECT sum(seq_scan) AS of_tables, sum(idx_scan) AS by_index FROM pg_stat_xact_user_tables
WHERE relname IN ('operation_log', 'orders');
-- tables that are empty, and whose statistics say so: to go through all of one would seem the cheapest
VACUUM ANALYZE orders, idempotency.operation_log;
BEGIN;
INSERT INTO orders SELECT i, 'WAIT_PAY' FROM generate_series(1, 300) i;
-- what is counted so far is the making of the tables
SELECT of_tables, by_index FROM scans \gset before_
SELECT outcome, count(*) FROM generate_series(1, 100) i, LATERAL idempotency.accumulate('orders', i, 'balance', 1, 'a' || i) GROUP BY 1;
SELECT outcome, count(*) FROM generate_series(1, 100) i, LATERAL idempotency.accumulate('orders', i, 'balance', 1, 'a' || i, wait => '0') GROUP BY 1;
SELECT outcome, count(*) FROM generate_series(1, 100) i, LATERAL idempotency.transition('orders', i, '{WAIT_PAY}', 'PAID') GROUP BY 1;
SELECT outcome, count(*) FROM generate_series(1, 100) i, LATERAL idempotency.transition('orders', i, '{WAIT_PAY}', 'PAID') GROUP BY 1;
SELECT outcome, count(*) FROM generate_series(101, 200) i, LATERAL idempotency.transition_once('orders', i, '{NEW,WAIT_PAY}', 'PAID', 't' || i, nowait => true) GROUP BY 1;
SELECT outcome, count(*) FROM idempotency.transition_batch('orders', (SELECT array_agg(i) FROM generate_series(1, 300) i), '{WAIT_PAY}', 'PAID') GROUP BY 1 ORDER BY 1;
SELECT of_tables - :before_of_tables AS of_tables, by_index - :before_by_index > 700 AS by_index FROM scans;
ROLLBACK;
-- a setting of the session's is left alone, and its own statements are planned as ever
SHOW enable_seqscan;
EXPLAIN (COSTS off) SELECT * FROM orders WHERE balance = 1;
DROP VIEW scans;
DROP TABLE orders;
DROP EXTENSION idempotency;
