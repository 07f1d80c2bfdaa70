-- G10 bad input is an error, each with its own message, and nothing is lost.
SET client_min_messages = warning;
CREATE EXTENSION idempotency;
\i test/lib/error_of.psql
\pset null NULL
CREATE TABLE points (id int PRIMARY KEY, balance bigint NOT NULL DEFAULT 0);
INSERT INTO points VALUES (1);
SELECT outcome FROM idempotency.accumulate('points', 1, 'balance', 100, 'before');

-- operation ids
SELECT i.what, e.* FROM (VALUES
	('null', NULL), ('empty', ''), ('blank', '   '), ('tab', E'\t'), ('newline', E'id\n'), ('escape', E'a\x1b[0m'),
	('delete', E'a\x7f'), ('c1', E'a\u0085b'), ('too long', repeat('x', 513)), ('too long in bytes', repeat('é', 257))
) i(what, id), LATERAL pg_temp.error_of(format('SELECT idempotency.accumulate(''points'', 1, ''balance'', 1, %L)', i.id)) e;
-- taken as they are: never trimmed, folded or normalised; bytes count
SELECT i.what, a.outcome FROM (VALUES
	('longest', repeat('x', 512)), ('longest in bytes', repeat('é', 256)), ('blank before', ' a'), ('blank after', 'a '),
	('neither', 'a'), ('upper case', 'A'), ('composed', U&'\00e9'), ('decomposed', U&'e\0301'), ('no-break space', U&'\00a0'),
	('zero width space', U&'\200b'), ('emoji', '😀'), ('quote', ''''), ('percent', '%s%n'), ('json', '{"a": 1}')
) i(what, id), LATERAL idempotency.accumulate('points', 1, 'balance', 0, i.id) a;
-- what compresses well is no exception
SELECT outcome FROM idempotency.accumulate('points', 1, 'balance', 0, (SELECT string_agg(chr(33 + (i * 7919) % 90), '') FROM generate_series(1, 512) i));

-- scopes
SELECT i.what, e.code, e.message, e.detail FROM (VALUES
	('empty', ''), ('blank', ' '), ('newline', E'a\nb'), ('too long', repeat('x', 256))
) i(what, scope), LATERAL pg_temp.error_of(format('SELECT idempotency.accumulate(''points'', 1, ''balance'', 1, ''x'', scope => %L)', i.scope)) e;
SELECT outcome FROM idempotency.accumulate('points', 1, 'balance', 0, 'x', scope => repeat('s', 255));

-- everything else
SELECT c.arguments, e.* FROM (VALUES
	($$NULL, 1, 'balance', 1, 'x'$$),
	($$'points', 1, NULL, 1, 'x'$$),
	($$'points', 1, 'balance', NULL, 'x'$$),
	($$'points', 1, 'balance', 'NaN', 'x'$$),
	($$'points', 1, 'balance', 1, 'x', minimum => 'NaN'$$),
	($$'points', 1, 'balance', 1, 'x', maximum => 'NaN'$$),
	($$'points', 1, 'balance', 1, 'x', minimum => 2, maximum => 1$$),
	($$'points', 1, 'balance', 1, 'x', create_missing => NULL$$),
	($$'points', 1, 'balance', 1, 'x', on_reject => NULL$$),
	($$'points', 1, 'balance', 1, 'x', on_reject => 'Raise'$$),
	($$'points', 1, 'balance', 1, 'x', ttl => '0'$$),
	($$'points', 1, 'balance', 1, 'x', ttl => '-1 day'$$),
	($$'points', 1, 'balance', 1, 'x', ttl => '1 month -31 days'$$),
	($$'points', 1, 'balance', 1, 'x', wait => '-1 s'$$)
) c(arguments), LATERAL pg_temp.error_of(format('SELECT idempotency.accumulate(%s)', c.arguments)) e;
-- infinities came with 14
SELECT code, message FROM pg_temp.error_of($$SELECT idempotency.accumulate('points', 1, 'balance', 'Infinity', 'x')$$);
SELECT code, message FROM pg_temp.error_of($$SELECT idempotency.accumulate('points', 1, 'balance', 1, 'x', maximum => '-Infinity')$$);
-- a ttl past the end of time
SELECT code FROM pg_temp.error_of($$SELECT idempotency.accumulate('points', 1, 'balance', 1, 'x', ttl => '300000 years')$$);
-- a ttl that is positive by itself and leads back, in a month of 31 days
SELECT DISTINCT code FROM generate_series(0, 3) i, LATERAL pg_temp.error_of(format($$SELECT idempotency.accumulate('points', 1, 'balance', 1, 'x', ttl => %L)$$, '-4 mon 120 days 1 s')) e;
-- a wait of ages is one
SELECT outcome FROM idempotency.accumulate('points', 1, 'balance', 0, 'ages', wait => '170000000 years');

-- the other functions
SELECT c.command, e.code, e.message FROM (VALUES
	($$lookup(NULL, 'x')$$), ($$lookup('s', NULL)$$), ($$lookup('s', '')$$), ($$lookup('s', 'x', NULL)$$), ($$lookup('s', 'x', 'points')$$),
	($$forget(NULL, 'x')$$), ($$forget('s', ' ')$$), ($$forget('s', 'x', NULL)$$),
	($$rename_scope(NULL, 'x')$$), ($$rename_scope('x', NULL)$$), ($$rename_scope('x', '')$$), ($$rename_scope('x', 'y', NULL)$$),
	($$grant_use(NULL, 'pg_monitor')$$), ($$grant_use('idempotency.operation_log', NULL)$$), ($$grant_use('points', 'pg_monitor')$$)
) c(command), LATERAL pg_temp.error_of('SELECT idempotency.' || c.command) e;

-- nothing was lost and nothing added
SELECT balance FROM points;
SELECT operation_id FROM idempotency.operation_log WHERE delta <> 0;

DROP TABLE points;
DROP EXTENSION idempotency;
