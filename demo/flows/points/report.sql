-- Nothing but the shop's own tables is read here.
WITH expected AS (
	SELECT user_id, coalesce(sum(points), 0) AS balance
	FROM points LEFT JOIN events USING (user_id)
	GROUP BY user_id
),
checked AS (
	SELECT sum(e.balance) AS expected,
		sum(g.balance) AS guarded, count(*) FILTER (WHERE g.balance <> e.balance) AS guarded_off,
		sum(u.balance) AS unguarded, count(*) FILTER (WHERE u.balance <> e.balance) AS unguarded_off
	FROM expected e JOIN points g USING (user_id) JOIN points_unguarded u USING (user_id)
)
SELECT (SELECT count(*) FROM events), (SELECT count(*) FROM delivery),
	(SELECT sum(deliveries) FROM chunk_sent), (SELECT count(*) FROM chunk_sent WHERE NOT finished),
	(SELECT count(*) FROM kill),
	expected, guarded, guarded_off, unguarded, unguarded_off, (SELECT count(*) FROM points)
FROM checked;
