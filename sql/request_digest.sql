-- The digest of a request: by value, the same in every session, stable for ever (docs/request-digest.md).
SET client_min_messages = warning;
CREATE EXTENSION idempotency;

-- Test vectors.  A change here is a change of what every user has stored: never update them.
SELECT v.request, encode(idempotency.request_digest(v.request::jsonb), 'hex') AS digest
FROM (VALUES
	(1, 'null'), (2, 'true'), (3, 'false'), (4, '0'), (5, '1'), (6, '-1.5'), (7, '1e20'), (8, '0.00000001'),
	(9, '123456789012345678901234567890.123456789'),
	(10, '""'), (11, '"a"'), (12, '"\u00e9"'), (13, '"\ud83d\ude00"'),
	(14, '[]'), (15, '[1, 2]'), (16, '[2, 1]'), (17, '[[1], 2]'),
	(18, '{}'), (19, '{"a": 1}'), (20, '{"b": 2, "a": 1}'), (21, '{"bb": 1, "c": null}'),
	(22, '{"a": {"z": [], "y": "x"}}'),
	(23, '{"column_name": "balance", "delta": 5, "key": {"id": 1}, "maximum": null, "minimum": null}')
) AS v(n, request) ORDER BY v.n;

-- equal by value, so equal: the order of keys, 1 and 1.0, -0.0, repeated keys, white space
SELECT v.a, v.b, idempotency.request_digest(v.a::jsonb) = idempotency.request_digest(v.b::jsonb) AS same
FROM (VALUES
	('{"a": 1, "b": 2}', '{"b":2,"a":1}'),
	('{"x": {"a": 1, "bb": [{"c": 1, "d": 2}]}}', '{"x": {"bb": [{"d": 2, "c": 1}], "a": 1}}'),
	('1', '1.0'), ('1', '1e0'), ('100', '1e2'), ('0', '-0.0'), ('0.10', '0.1'),
	('{"a": 1, "a": 2}', '{"a": 2}')
) AS v(a, b);

-- different, so different
SELECT v.a, v.b, idempotency.request_digest(v.a::jsonb) <> idempotency.request_digest(v.b::jsonb) AS differ
FROM (VALUES
	('[1, 2]', '[2, 1]'), ('1', '"1"'), ('null', '"null"'), ('{}', '[]'), ('""', 'null'), ('{"a": null}', '{}'),
	('["a", "b"]', '["ab"]'), ('["a", ""]', '["", "a"]'), ('[[], 1]', '[[1]]'), ('{"a": "b"}', '["a", "b"]'),
	('"a"', '"A"'), ('"a"', '"a "'), (E'"\u00e9"', E'"e\u0301"')
) AS v(a, b);

-- no pair of these agrees
WITH d AS (SELECT idempotency.request_digest(to_jsonb(i)) AS digest FROM generate_series(1, 20000) i)
SELECT count(DISTINCT digest) FROM d;

SELECT idempotency.request_digest(NULL) IS NULL AS null_in_null_out;

-- G4 no impostor: a key's digest is moved by no setting, for any type that a key can be of
CREATE TYPE mood AS ENUM ('sad', 'happy');
CREATE DOMAIN amount AS numeric(10, 2);
CREATE TABLE kinds (
	n int NOT NULL DEFAULT 0,
	k_int8 int8 UNIQUE, k_numeric numeric UNIQUE, k_float4 float4 UNIQUE, k_float8 float8 UNIQUE, k_bool bool UNIQUE,
	k_text text UNIQUE, k_char char(5) UNIQUE, k_name name UNIQUE, k_bytea bytea UNIQUE, k_uuid uuid UNIQUE,
	k_date date UNIQUE, k_time time UNIQUE, k_timetz timetz UNIQUE, k_timestamp timestamp UNIQUE,
	k_timestamptz timestamptz UNIQUE, k_interval interval UNIQUE, k_jsonb jsonb UNIQUE, k_mood mood UNIQUE,
	k_amount amount UNIQUE, k_int4s int4[] UNIQUE, k_range tstzrange UNIQUE, k_money money UNIQUE, k_inet inet UNIQUE);
SET timezone = 'UTC';
SET datestyle = 'ISO, MDY';
INSERT INTO kinds VALUES (0, 7, 1.50, 0.1, 1e-7, true, 'é', 'ab', 'n', '\x00ff', '0b7d5a3e-3b1a-4a57-9f5c-1d2e3f405162',
	'2026-03-04', '12:34:56.789', '12:34:56+02', '2026-03-04 05:06:07', '2026-03-04 05:06:07+00', '1 day 02:03:04',
	'{"b": [1.0, null], "a": "x"}', 'happy', 12.30, '{1,2}', '[2026-03-04 05:06:07+00,2026-03-05 00:00:00+00)', '12.5', '10.0.0.1/8');

CREATE PROCEDURE add_by_every_key(suffix text) LANGUAGE plpgsql AS $$
DECLARE
	column_name name;
	key jsonb;
	outcome text;
BEGIN
	FOR column_name IN SELECT attname FROM pg_attribute WHERE attrelid = 'kinds'::regclass AND attname LIKE 'k\_%' ORDER BY attnum LOOP
		-- the key as this session writes it
		EXECUTE format('SELECT CASE WHEN %1$L = ''k_jsonb'' THEN jsonb_build_object(%1$L, %1$I)'
					   ' ELSE jsonb_build_object(%1$L, %1$I::text) END FROM kinds', column_name) INTO key;
		SELECT a.outcome INTO outcome FROM idempotency.accumulate('kinds', key, 'n', 1, column_name, scope => 'kinds') a;
		IF outcome IS DISTINCT FROM suffix THEN
			RAISE NOTICE '%: %', column_name, outcome;
		END IF;
	END LOOP;
END $$;

CALL add_by_every_key('applied');
SELECT operation_id, target_key, encode(request_digest, 'hex') AS digest FROM idempotency.operation_log WHERE scope = 'kinds' ORDER BY 1;

SET timezone = 'America/New_York';
SET datestyle = 'SQL, DMY';
SET intervalstyle = 'iso_8601';
SET extra_float_digits = 0;
SET bytea_output = 'escape';
SET client_encoding = 'LATIN1';
CALL add_by_every_key('duplicate');
RESET client_encoding;
SELECT n FROM kinds;
-- the caller's settings are as they were
SHOW timezone;
SHOW intervalstyle;

DROP TABLE kinds;
DROP PROCEDURE add_by_every_key;
DROP TYPE mood;
DROP DOMAIN amount;
DROP EXTENSION idempotency;
