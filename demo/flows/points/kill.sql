-- Cuts one consumer's connection, whichever chance picks, a few times a second until nobody listens any more.
INSERT INTO kill (pid)
SELECT pid
FROM (
	SELECT pid
	FROM pg_stat_activity
	WHERE datname = current_database() AND application_name = 'points-consumer'
	ORDER BY random()
	LIMIT 1
) consumer
WHERE pg_terminate_backend(pid)
\watch 0.4
