-- The queue, as the statements that a consumer runs: for each delivery the guarded one and the plain one beside it,
-- each a transaction of its own.
SELECT format('SELECT outcome FROM idempotency.accumulate(%L, %s, %L, %s, %L, scope => %L);',
		'points', user_id, 'balance', points, event_id, 'points-queue')
	|| E'\n'
	|| format('UPDATE points_unguarded SET balance = balance + %s WHERE user_id = %s;', points, user_id)
FROM delivery
ORDER BY position;
