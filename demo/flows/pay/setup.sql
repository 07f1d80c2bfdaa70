-- The shop's own tables, once for each way. Expects the variable events: how many orders there are to be.

CREATE TABLE account_by_hand (id integer PRIMARY KEY, balance numeric(20, 2) NOT NULL);
INSERT INTO account_by_hand SELECT n, 1000000 FROM generate_series(1, 50) n;
CREATE TABLE orders_by_hand (
	id integer PRIMARY KEY,
	account integer NOT NULL REFERENCES account_by_hand,
	amount numeric(20, 2) NOT NULL,
	status text NOT NULL DEFAULT 'WAIT_PAY'
);
INSERT INTO orders_by_hand SELECT n, 1 + n % 50, 1 + n % 99 FROM generate_series(1, :events) n;

CREATE TABLE account_guarded (LIKE account_by_hand INCLUDING ALL);
INSERT INTO account_guarded SELECT * FROM account_by_hand;
CREATE TABLE orders_guarded (LIKE orders_by_hand INCLUDING ALL);
INSERT INTO orders_guarded SELECT * FROM orders_by_hand;
CREATE TRIGGER zz_guard BEFORE INSERT OR UPDATE ON orders_guarded
	FOR EACH ROW EXECUTE FUNCTION idempotency.guard_transitions('status', '
		[*] --> WAIT_PAY
		WAIT_PAY --> PAID : pay
		WAIT_PAY --> CANCELLED : cancel
		PAID --> REFUNDED : refund
		CANCELLED --> [*]
		REFUNDED --> [*]');

-- What happened to the orders, written down by the shop: from this alone follows what is right.
CREATE TABLE step (way text NOT NULL, order_id integer NOT NULL, old text NOT NULL, new text NOT NULL);
CREATE FUNCTION note_step() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO step VALUES (TG_ARGV[0], NEW.id, OLD.status, NEW.status);
	RETURN NULL;
END $$;
CREATE TRIGGER note_step AFTER UPDATE ON orders_by_hand FOR EACH ROW EXECUTE FUNCTION note_step('by hand');
CREATE TRIGGER note_step AFTER UPDATE ON orders_guarded FOR EACH ROW EXECUTE FUNCTION note_step('guarded');

-- Looks at the order, and if it may be done, does it. Between the two somebody else does the same.
CREATE FUNCTION request_by_hand(order_id integer, what text, request_id text) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
	o orders_by_hand;
BEGIN
	SELECT * INTO o FROM orders_by_hand WHERE id = order_id;
	CASE
		WHEN what = 'pay' AND o.status = 'WAIT_PAY' THEN
			UPDATE orders_by_hand SET status = 'PAID' WHERE id = order_id;
			UPDATE account_by_hand SET balance = balance - o.amount WHERE id = o.account;
		WHEN what = 'cancel' AND o.status = 'WAIT_PAY' THEN
			UPDATE orders_by_hand SET status = 'CANCELLED' WHERE id = order_id;
		WHEN what = 'refund' AND o.status = 'PAID' THEN
			UPDATE orders_by_hand SET status = 'REFUNDED' WHERE id = order_id;
			UPDATE account_by_hand SET balance = balance + o.amount WHERE id = o.account;
		ELSE
			RETURN 'rejected';
	END CASE;
	RETURN 'applied';
END $$;

-- The order's state and the money move under one id, in one transaction.
CREATE FUNCTION request_guarded(order_id integer, what text, request_id text) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
	result text;
BEGIN
	SELECT outcome INTO result
	FROM idempotency.fire_once('orders_guarded', order_id, what, request_id, on_reject => 'return', scope => 'order');
	IF result = 'applied' AND what IN ('pay', 'refund') THEN
		PERFORM idempotency.accumulate('account_guarded', account, 'balance',
			CASE what WHEN 'pay' THEN -amount ELSE amount END, request_id, minimum => 0, scope => 'money')
		FROM orders_guarded WHERE id = order_id;
	END IF;
	RETURN result;
END $$;

-- Every order is paid for; a tenth by a second payment, too; a fifth is cancelled, and a fourth refunded. Each request
-- comes one to four times, those of one order follow one another at once, and each goes to the next connection.
CREATE TABLE request AS
SELECT row_number() OVER (ORDER BY order_id / 8, md5(request_id || copy)) AS position, order_id, what, request_id
FROM (
	SELECT n AS order_id, 'pay' AS what, 'pay-' || n AS request_id FROM generate_series(1, :events) n
	UNION ALL SELECT n, 'pay', 'pay-again-' || n FROM generate_series(10, :events, 10) n
	UNION ALL SELECT n, 'cancel', 'cancel-' || n FROM generate_series(5, :events, 5) n
	UNION ALL SELECT n, 'refund', 'refund-' || n FROM generate_series(4, :events, 4) n
) r, generate_series(1, 1 + ('x' || left(md5(request_id), 7))::bit(28)::integer % 4) copy;

CREATE TABLE answer (way text NOT NULL, request_id text NOT NULL, outcome text NOT NULL);
CREATE TABLE run (way text PRIMARY KEY, errors integer NOT NULL);

ANALYZE;
