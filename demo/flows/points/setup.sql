-- The shop's own tables. Expects the variable events: how many there are to be.

CREATE TABLE points (
	user_id bigint PRIMARY KEY,
	balance bigint NOT NULL DEFAULT 0
);

CREATE TABLE points_unguarded (LIKE points INCLUDING ALL);

-- What happened, once each. From this alone follows what the balances have to be.
CREATE TABLE events (
	event_id text PRIMARY KEY,
	user_id bigint NOT NULL REFERENCES points,
	points integer NOT NULL
);

-- What the consumers were sent: one row for each time a chunk went out.
CREATE TABLE chunk_sent (
	chunk text NOT NULL,
	deliveries integer NOT NULL,
	finished boolean NOT NULL
);

CREATE TABLE kill (
	at timestamptz NOT NULL DEFAULT clock_timestamp(),
	pid integer NOT NULL
);

INSERT INTO points (user_id) SELECT generate_series(1, 500);
INSERT INTO points_unguarded SELECT * FROM points;

-- Pseudo-random, and the same in every run. Every third event is for one of ten busy accounts, so that consumers meet
-- at the same rows.
CREATE FUNCTION dice(seed text, sides integer) RETURNS integer
LANGUAGE sql IMMUTABLE
RETURN 1 + ('x' || left(md5(seed), 7))::bit(28)::integer % sides;

INSERT INTO events
SELECT 'order-' || n, CASE WHEN dice('busy' || n, 3) = 1 THEN dice('user' || n, 10) ELSE dice('user' || n, 500) END,
	dice('points' || n, 100)
FROM generate_series(1, :events) n;

-- Each event arrives one to four times, in no order.
CREATE TABLE delivery AS
SELECT row_number() OVER (ORDER BY md5(event_id || copy)) AS position, event_id, user_id, points
FROM events, generate_series(1, dice('copies' || event_id, 4)) copy;

ANALYZE;
