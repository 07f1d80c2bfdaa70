-- insert_or_return: values of every kind, and rows that the table itself changes before it stores them.
SET client_min_messages = warning;
CREATE EXTENSION idempotency;
CREATE SCHEMA regress_insert_or_return_values;
SET search_path = regress_insert_or_return_values, public;
\i test/lib/error_of.psql
\pset null NULL
SET datestyle = ISO;
SET timezone = UTC;

-- columns of every kind are stored and returned as they were given
CREATE TYPE mood AS ENUM ('glad', 'sad');
CREATE TYPE point3 AS (x int, y numeric, label text);
CREATE DOMAIN short AS varchar(5) CHECK (VALUE <> 'bad');
CREATE TABLE kinds (
	k uuid PRIMARY KEY, b boolean, i bigint, n numeric, f float8, t text, v varchar(5), c char(3), d short, e mood, a int[], aa text[],
	p point3, r int4range, m bytea, j jsonb, j2 json, ts timestamptz, day date, iv interval, ip inet, bits bit(4), x xml);
\set row '{"k": "00000000-0000-0000-0000-000000000001", "b": true, "i": 9223372036854775807, "n": 123456789012345678901234567890.12345678901234567890, "f": 1e300, "t": "\\u00e4 \\"q\\" \\\\", "v": "12345", "c": "x", "d": "good", "e": "sad", "a": [1, null, 3], "aa": [["a", "b"], ["c", "d"]], "p": {"x": 1, "y": 2.50, "label": null}, "r": "[1,5)", "m": "\\\\x00ff", "j": {"z": [1, null, {}]}, "j2": {"b": 1, "a": 2}, "ts": "2026-01-01 00:00:00.123456+00", "day": "2026-02-28", "iv": "1 mon 2 days 03:00", "ip": "10.0.0.1/8", "bits": "0101", "x": "<a/>"}'
\x on
SELECT inserted, (stored).* FROM idempotency.insert_or_return(NULL::kinds, :'row');
\x off
-- and the retry is the same in every column that can be compared
SELECT inserted FROM idempotency.insert_or_return(NULL::kinds, :'row', must_match => '{k,b,i,n,f,t,v,c,d,e,a,aa,p,r,m,j,j2,ts,day,iv,ip,bits,x}');
SELECT * FROM pg_temp.error_of(format($$SELECT idempotency.insert_or_return(NULL::kinds, %L::jsonb || '{"n": 123456789012345678901234567890.12345678901234567891, "i": 9223372036854775806, "j2": {"a": 2, "b": 2}}', must_match => '{n, i, t, j2}')$$, :'row'));
-- equal by value, in another form
SELECT inserted FROM idempotency.insert_or_return(NULL::kinds, (:'row'::jsonb || '{"p": {"label": null, "x": 1, "y": 2.5}, "ts": "2026-01-01 01:00:00.123456+01", "j": {"z": [1.0, null, {}]}, "c": "x  ", "r": "[1,4]"}'), must_match => '{p, ts, j, c, r}');
-- what does not fit is the type's own error, and nothing is stored
SELECT code, message FROM unnest(ARRAY['{"v": "123456"}', '{"d": "bad"}', '{"e": "angry"}', '{"a": 7}', '{"r": "[5,1)"}', '{"i": 9223372036854775808}', '{"i": 1.5}', '{"day": "2026-02-30"}', '{"bits": "01"}', '{"k": null}'])
	WITH ORDINALITY bad(v, n), LATERAL pg_temp.error_of(format($$SELECT idempotency.insert_or_return(NULL::kinds, '{"k": "00000000-0000-0000-0000-000000000002"}'::jsonb || %L)$$, bad.v)) ORDER BY n;
SELECT count(*) FROM kinds;

-- each of them as a key
CREATE TABLE key_array (k int[] PRIMARY KEY);
CREATE TABLE key_composite (k point3 PRIMARY KEY);
CREATE TABLE key_range (k int4range PRIMARY KEY);
CREATE TABLE key_bytea (k bytea PRIMARY KEY);
CREATE TABLE key_jsonb (k jsonb PRIMARY KEY);
CREATE TABLE key_enum (k mood PRIMARY KEY);
CREATE TABLE key_numeric (k numeric PRIMARY KEY);
CREATE TABLE key_bigint (k bigint PRIMARY KEY);
CREATE TABLE key_float (k float8 PRIMARY KEY);
CREATE TABLE key_char (k char(4) PRIMARY KEY);
CREATE TABLE key_time (k timestamptz PRIMARY KEY);
CREATE FUNCTION pg_temp.twice(target regclass, first jsonb, second jsonb) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	answers text[];
	answer text;
	given jsonb;
BEGIN
	FOREACH given IN ARRAY ARRAY[first, second] LOOP
		EXECUTE format('SELECT CASE WHEN inserted THEN ''inserted '' ELSE ''returned '' END || (stored).k::text
			FROM idempotency.insert_or_return(NULL::%s, $1)', target) USING jsonb_build_object('k', given) INTO STRICT answer;
		answers := answers || answer;
	END LOOP;
	RETURN array_to_string(answers, ', ');
END $$;
SELECT target, pg_temp.twice(target, a, b) FROM (VALUES
	(1, 'key_array'::regclass, '[1, 2, null]'::jsonb, '[1, 2, null]'::jsonb),
	(2, 'key_composite', '{"x": 1, "y": 1.0, "label": null}', '{"y": 1.00, "x": 1}'),
	(3, 'key_range', '"[1,5)"', '"[1,4]"'),
	(4, 'key_bytea', '"\\x00ff"', '"\\x00FF"'),
	(5, 'key_jsonb', '{"a": 1, "b": [null]}', '{"b": [null], "a": 1.0}'),
	(6, 'key_jsonb', '"text"', '"text"'),
	(7, 'key_enum', '"glad"', '"glad"'),
	(8, 'key_numeric', '12345678901234567890123.50', '12345678901234567890123.5'),
	(9, 'key_bigint', '9007199254740993', '9007199254740993'),
	(10, 'key_bigint', '9007199254740992', '"9007199254740992"'),
	(11, 'key_float', '-0.0', '0'),
	(12, 'key_float', '"NaN"', '"NaN"'),
	(13, 'key_char', '"a"', '"a   "'),
	(14, 'key_time', '"2026-01-01 00:00+00"', '"2026-01-01 02:00+02"')) t(n, target, a, b) ORDER BY n;

-- null is SQL's NULL in every column, jsonb too; within jsonb it is json's; absent takes the default
CREATE TABLE nulls (k int PRIMARY KEY, j jsonb DEFAULT '{"default": true}', n int DEFAULT 5);
SELECT * FROM idempotency.insert_or_return_batch(NULL::nulls, '[{"k": 1}, {"k": 2, "j": null, "n": null}, {"k": 3, "j": {"a": null}}, {"k": 4, "j": [null]}, {"k": 5, "j": {}}, {"k": 6, "j": []}, {"k": 7, "j": ""}, {"k": 8, "j": 0}, {"k": 9, "j": false}]');
SELECT k, j, j IS NULL AS is_null, n FROM nulls ORDER BY k;

-- defaults, identity and generated columns
CREATE TABLE computed (
	id int GENERATED ALWAYS AS IDENTITY, by_default int GENERATED BY DEFAULT AS IDENTITY, k text PRIMARY KEY, price numeric, amount int DEFAULT 1,
	total numeric GENERATED ALWAYS AS (price * amount) STORED, made_by text DEFAULT 'def' || 'ault', at timestamptz DEFAULT now());
SELECT inserted, (stored).id, (stored).by_default, (stored).total, (stored).made_by, (stored).at = now() AS is_now
FROM idempotency.insert_or_return(NULL::computed, '{"k": "a", "price": 2.5}') ;
SELECT inserted, (stored).id, (stored).by_default, (stored).amount FROM idempotency.insert_or_return(NULL::computed, '{"k": "b", "by_default": 70, "amount": 3}');
SELECT inserted, (stored).id, (stored).by_default FROM idempotency.insert_or_return(NULL::computed, '{"k": "b", "by_default": 71}');
SELECT * FROM pg_temp.error_of($$SELECT idempotency.insert_or_return(NULL::computed, '{"k": "c", "id": 5}')$$);
SELECT * FROM pg_temp.error_of($$SELECT idempotency.insert_or_return(NULL::computed, '{"k": "c", "total": 5}')$$);

-- BEFORE triggers that rewrite the key: the key that is stored counts
CREATE TABLE rewritten (k text PRIMARY KEY, n int, note text);
CREATE FUNCTION tidy() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	IF NEW.k = 'suppress' THEN
		RETURN NULL;
	END IF;
	NEW.k := lower(trim(NEW.k));
	NEW.note := coalesce(NEW.note, 'noted');
	RETURN NEW;
END $$;
CREATE TRIGGER tidy BEFORE INSERT ON rewritten FOR EACH ROW EXECUTE FUNCTION tidy();
SELECT * FROM idempotency.insert_or_return(NULL::rewritten, '{"k": " Ann ", "n": 1}');
SELECT * FROM idempotency.insert_or_return(NULL::rewritten, '{"k": "ANN", "n": 2}');
SELECT * FROM idempotency.insert_or_return(NULL::rewritten, '{"k": "ann", "n": 3}');
SELECT * FROM pg_temp.error_of($$SELECT idempotency.insert_or_return(NULL::rewritten, '{"k": "ANN", "n": 2}', must_match => '{n}')$$);
SELECT item, inserted, (stored).k, (stored).n FROM idempotency.insert_or_return_batch(NULL::rewritten, '[{"k": "Bob", "n": 1}, {"k": "bOB", "n": 2}, {"k": "ANN"}]');
-- a row that a trigger suppresses
SELECT * FROM pg_temp.error_of($$SELECT idempotency.insert_or_return(NULL::rewritten, '{"k": "suppress"}')$$);
-- a key that is another one each time would not be known again
CREATE TABLE random_key (k text PRIMARY KEY);
CREATE FUNCTION longer() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.k := NEW.k || nextval('longer_seq'); RETURN NEW; END $$;
CREATE SEQUENCE longer_seq;
CREATE TRIGGER longer BEFORE INSERT ON random_key FOR EACH ROW EXECUTE FUNCTION longer();
SELECT * FROM pg_temp.error_of($$SELECT idempotency.insert_or_return(NULL::random_key, '{"k": "a"}')$$);
SELECT count(*) FROM random_key;
-- a trigger that inserts the same row itself, and one that calls back
CREATE TABLE eager (k int PRIMARY KEY, by_whom text DEFAULT 'the call');
CREATE FUNCTION eager() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	IF pg_trigger_depth() = 1 THEN
		INSERT INTO eager VALUES (NEW.k, 'the trigger');
	END IF;
	RETURN NEW;
END $$;
CREATE TRIGGER eager BEFORE INSERT ON eager FOR EACH ROW EXECUTE FUNCTION eager();
SELECT * FROM idempotency.insert_or_return(NULL::eager, '{"k": 1}');
SELECT * FROM eager;
-- an AFTER trigger sees the row, and may ask for it
CREATE TABLE asked (k int PRIMARY KEY);
CREATE FUNCTION ask() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	RAISE WARNING 'inserted again: %', (SELECT inserted FROM idempotency.insert_or_return(NULL::asked, jsonb_build_object('k', NEW.k)));
	RETURN NULL;
END $$;
CREATE TRIGGER ask AFTER INSERT ON asked FOR EACH ROW EXECUTE FUNCTION ask();
SELECT * FROM idempotency.insert_or_return(NULL::asked, '{"k": 1}');
-- a partition's own trigger
CREATE TABLE parted (k int PRIMARY KEY, n int) PARTITION BY LIST (k);
CREATE TABLE parted_1 PARTITION OF parted FOR VALUES IN (1, 2);
CREATE FUNCTION number() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.n := 42; IF NEW.k = 2 THEN RETURN NULL; END IF; RETURN NEW; END $$;
CREATE TRIGGER number BEFORE INSERT ON parted_1 FOR EACH ROW EXECUTE FUNCTION number();
SELECT * FROM idempotency.insert_or_return(NULL::parted, '{"k": 1, "n": 1}');
SELECT * FROM idempotency.insert_or_return(NULL::parted, '{"k": 1, "n": 1}');
SELECT code, message FROM pg_temp.error_of($$SELECT idempotency.insert_or_return(NULL::parted, '{"k": 2}')$$);

-- temporary and unlogged tables: the row itself is the guard, so nothing can be lost without it
CREATE TEMP TABLE temporary (k int PRIMARY KEY);
SELECT * FROM idempotency.insert_or_return(NULL::temporary, '{"k": 1}');
SELECT * FROM idempotency.insert_or_return(NULL::temporary, '{"k": 1}');
CREATE UNLOGGED TABLE unlogged (k int PRIMARY KEY);
SELECT * FROM idempotency.insert_or_return(NULL::unlogged, '{"k": 1}');
SELECT * FROM idempotency.insert_or_return(NULL::unlogged, '{"k": 1}');
-- values that are stored out of line
CREATE TABLE large (k text PRIMARY KEY, t text);
SELECT inserted, length((stored).t) FROM idempotency.insert_or_return(NULL::large, jsonb_build_object('k', 'a', 't', (SELECT string_agg(md5(i::text), '') FROM generate_series(1, 5000) i)));
SELECT inserted, length((stored).t), md5((stored).t) = (SELECT md5(t) FROM large) AS same FROM idempotency.insert_or_return(NULL::large, '{"k": "a"}');

DROP SCHEMA regress_insert_or_return_values CASCADE;
DROP EXTENSION idempotency;
