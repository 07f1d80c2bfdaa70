-- The shop's own tables, one for each way to join. Expects the variable events: how many users join.

-- The first way has no unique key, as tables do whose application takes care of that.
CREATE TABLE entry_look_then_insert (
	number bigserial,
	user_id bigint NOT NULL
);
CREATE INDEX ON entry_look_then_insert (user_id);

CREATE TABLE entry_catch_the_error (
	number bigserial,
	user_id bigint PRIMARY KEY
);

CREATE TABLE entry_insert_or_return (
	number bigserial,
	user_id bigint PRIMARY KEY
);

CREATE TABLE entry_ignore_duplicates (
	number bigserial,
	user_id bigint PRIMARY KEY
);

CREATE TRIGGER zz_ignore_duplicates BEFORE INSERT ON entry_ignore_duplicates
	FOR EACH ROW EXECUTE FUNCTION idempotency.ignore_duplicates('user_id');

-- What each request was answered, and how the statements of a way went.
CREATE TABLE answer (
	way text NOT NULL,
	user_id bigint NOT NULL,
	number bigint NOT NULL
);

CREATE TABLE run (
	way text PRIMARY KEY,
	errors integer NOT NULL
);

-- Pseudo-random, and the same in every run.
CREATE FUNCTION dice(seed text, sides integer) RETURNS integer
LANGUAGE sql IMMUTABLE
RETURN 1 + ('x' || left(md5(seed), 7))::bit(28)::integer % sides;

-- Each user's request arrives one to four times, one right after the other: an impatient finger.
CREATE TABLE request AS
SELECT row_number() OVER (ORDER BY md5('user' || user_id), copy) AS position, user_id
FROM generate_series(1, :events) user_id, generate_series(1, dice('copies' || user_id, 4)) copy;

ANALYZE;
