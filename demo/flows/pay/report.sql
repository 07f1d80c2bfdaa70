-- One line for each way. Nothing but the shop's own tables is read here.
WITH way (way, name) AS (
	VALUES ('by_hand', 'by hand'), ('guarded', 'guarded')
),
orders AS (
	SELECT 'by_hand' AS way, * FROM orders_by_hand
	UNION ALL SELECT 'guarded', * FROM orders_guarded
),
account AS (
	SELECT 'by_hand' AS way, * FROM account_by_hand
	UNION ALL SELECT 'guarded', * FROM account_guarded
),
-- a step that the business does not have, or that an order took twice
wrong_step AS (
	SELECT way, sum(CASE
		WHEN (old, new) IN (('WAIT_PAY', 'PAID'), ('WAIT_PAY', 'CANCELLED'), ('PAID', 'REFUNDED')) THEN n - 1
		ELSE n END) AS wrong_steps
	FROM (SELECT way, order_id, old, new, count(*) AS n FROM step GROUP BY 1, 2, 3, 4) s
	GROUP BY way
),
due AS (
	SELECT way, account, sum(amount) FILTER (WHERE status = 'PAID') AS paid
	FROM orders
	GROUP BY way, account
),
off AS (
	SELECT a.way, count(*) FILTER (WHERE balance <> 1000000 - coalesce(paid, 0)) AS accounts_off
	FROM account a LEFT JOIN due d ON d.way = a.way AND d.account = a.id
	GROUP BY a.way
)
SELECT w.way,
	(SELECT count(*) FROM orders o WHERE o.way = w.way AND o.status = 'PAID'),
	(SELECT count(*) FROM orders o WHERE o.way = w.way AND o.status = 'CANCELLED'),
	(SELECT count(*) FROM orders o WHERE o.way = w.way AND o.status = 'REFUNDED'),
	coalesce((SELECT wrong_steps FROM wrong_step s WHERE s.way = w.name), 0),
	f.accounts_off,
	(SELECT errors FROM run r WHERE r.way = w.way),
	(SELECT count(*) FROM answer a WHERE a.way = w.way),
	-- requests of one id that were not answered alike, but for who was first
	(SELECT count(*) FROM (SELECT request_id FROM answer a WHERE a.way = w.way AND request_id LIKE 'pay%' GROUP BY request_id
		HAVING count(*) FILTER (WHERE outcome = 'applied') > 1
			OR count(*) FILTER (WHERE outcome = 'rejected') NOT IN (0, count(*))) d)
FROM way w JOIN off f USING (way)
ORDER BY w.way;
