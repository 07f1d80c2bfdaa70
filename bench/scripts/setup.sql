-- The tables of the benchmark; it runs in a database of its own.
CREATE EXTENSION idempotency;
CREATE TABLE account (id int PRIMARY KEY, balance bigint NOT NULL DEFAULT 0) WITH (fillfactor = 50);
INSERT INTO account SELECT i FROM generate_series(1, 100000) i;
-- a state that leads to itself: each move is one, and the row can be moved again
CREATE TABLE orders (id int PRIMARY KEY, status text NOT NULL, placed_at timestamptz DEFAULT now()) WITH (fillfactor = 50);
INSERT INTO orders SELECT i, 'OPEN' FROM generate_series(1, 100000) i;
CREATE TABLE orders_guarded (LIKE orders INCLUDING ALL) WITH (fillfactor = 50);
INSERT INTO orders_guarded SELECT * FROM orders;
CREATE TRIGGER zz_guard BEFORE INSERT OR UPDATE ON orders_guarded FOR EACH ROW EXECUTE FUNCTION
	idempotency.guard_transitions('status', E'[*] --> OPEN\nOPEN --> OPEN : again\nOPEN --> DONE : end\nDONE --> [*]');
-- the guard that people write by hand
CREATE TABLE hand_log (operation_id text PRIMARY KEY, delta bigint, value bigint);
CREATE FUNCTION accumulate_by_hand(account_id int, delta bigint, operation_id text) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
	result bigint;
BEGIN
	PERFORM FROM account WHERE id = account_id FOR NO KEY UPDATE;
	SELECT l.value INTO result FROM hand_log l WHERE l.operation_id = accumulate_by_hand.operation_id;
	IF NOT FOUND THEN
		UPDATE account SET balance = balance + delta WHERE id = account_id RETURNING balance INTO result;
		INSERT INTO hand_log VALUES (operation_id, delta, result);
	END IF;
	RETURN result;
END $$;
SELECT count(*) FROM generate_series(1, 1000) i,
	LATERAL idempotency.accumulate('account', i, 'balance', 1, 'known-' || i, scope => 'bench');
SELECT count(*) FROM generate_series(1, 1000) i,
	LATERAL idempotency.transition_once('orders', i, '{OPEN}', 'OPEN', 'moved-' || i, scope => 'bench');
VACUUM ANALYZE;
SELECT pg_stat_reset();
