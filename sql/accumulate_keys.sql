-- Which row a key names.
SET client_min_messages = warning;
CREATE EXTENSION idempotency;
\i test/lib/error_of.psql
\pset null NULL

CREATE TABLE account (
	id bigint PRIMARY KEY, iban text UNIQUE, tenant int, number int, balance numeric(20, 2) NOT NULL DEFAULT 0,
	UNIQUE (tenant, number));
INSERT INTO account VALUES (1, 'DE01', 7, 1), (2, 'DE02', 7, 2), (3, NULL, NULL, 3);

-- a value of a one-column primary key, in every form it comes in
SELECT outcome, value FROM idempotency.accumulate('account', 1, 'balance', 1.50, 'as integer');
SELECT outcome, value FROM idempotency.accumulate('account', 1::bigint, 'balance', 1.50, 'as bigint');
SELECT outcome, value FROM idempotency.accumulate('account', 1::smallint, 'balance', 1.50, 'as smallint');
SELECT outcome, value FROM idempotency.accumulate('account', '1', 'balance', 1.50, 'as unknown');
SELECT outcome, value FROM idempotency.accumulate('account', '1'::text, 'balance', 1.50, 'as text');
SELECT outcome, value FROM idempotency.accumulate('account', '1'::varchar, 'balance', 1.50, 'as varchar');
SELECT outcome, value FROM idempotency.accumulate('account', 1.00, 'balance', 1.50, 'as numeric');
PREPARE by_parameter(unknown, text) AS SELECT outcome, value FROM idempotency.accumulate('account', $1, 'balance', 1.50, $2);
EXECUTE by_parameter('1', 'as parameter of unknown type');
EXECUTE by_parameter('1', 'as parameter of unknown type');
DEALLOCATE by_parameter;
-- a jsonb object of the columns of any unique key
SELECT outcome, value FROM idempotency.accumulate('account', '{"id": 1}'::jsonb, 'balance', 1.50, 'by primary key');
SELECT outcome, value FROM idempotency.accumulate('account', '{"iban": "DE01"}'::jsonb, 'balance', 1.50, 'by unique key');
SELECT outcome, value FROM idempotency.accumulate('account', '{"number": 1, "tenant": 7}'::jsonb, 'balance', 1.50, 'by composite key');
SELECT outcome, value FROM idempotency.accumulate('account', '{"tenant": 7.0, "number": "1"}'::jsonb, 'balance', 1.50, 'by composite key');
SELECT id, balance FROM account ORDER BY id;
SELECT operation_id, target_key FROM idempotency.operation_log ORDER BY created_at;

-- one operation, one way to name its row: by another key it is another request
SELECT code, detail FROM pg_temp.error_of($$SELECT idempotency.accumulate('account', '{"iban": "DE01"}'::jsonb, 'balance', 1.50, 'by primary key')$$);
-- the same way in another form is the same request
SELECT outcome FROM idempotency.accumulate('account', 1, 'balance', 1.5, 'by primary key');
SELECT outcome FROM idempotency.accumulate('account', '{"id": "1"}'::jsonb, 'balance', 1.500, 'as integer');

-- refused
SELECT * FROM pg_temp.error_of($$SELECT idempotency.accumulate('account', NULL::int, 'balance', 1, 'x')$$);
SELECT * FROM pg_temp.error_of($$SELECT idempotency.accumulate('account', NULL::text, 'balance', 1, 'x')$$);
SELECT * FROM pg_temp.error_of($$SELECT idempotency.accumulate('account', 'one', 'balance', 1, 'x')$$);
SELECT * FROM pg_temp.error_of($$SELECT idempotency.accumulate('account', '{"id": 1}', 'balance', 1, 'x')$$);
SELECT * FROM pg_temp.error_of($$SELECT idempotency.accumulate('account', 1.5, 'balance', 1, 'x')$$);
SELECT * FROM pg_temp.error_of($$SELECT idempotency.accumulate('account', 1e30, 'balance', 1, 'x')$$);
SELECT * FROM pg_temp.error_of($$SELECT idempotency.accumulate('account', true, 'balance', 1, 'x')$$);
SELECT * FROM pg_temp.error_of($$SELECT idempotency.accumulate('account', now(), 'balance', 1, 'x')$$);
SELECT * FROM pg_temp.error_of($$SELECT idempotency.accumulate('account', '[1]'::jsonb, 'balance', 1, 'x')$$);
SELECT * FROM pg_temp.error_of($$SELECT idempotency.accumulate('account', '7'::jsonb, 'balance', 1, 'x')$$);
SELECT * FROM pg_temp.error_of($$SELECT idempotency.accumulate('account', '{}'::jsonb, 'balance', 1, 'x')$$);
SELECT * FROM pg_temp.error_of($$SELECT idempotency.accumulate('account', '{"tenant": 7}'::jsonb, 'balance', 1, 'x')$$);
SELECT * FROM pg_temp.error_of($$SELECT idempotency.accumulate('account', '{"id": 1, "iban": "DE01"}'::jsonb, 'balance', 1, 'x')$$);
SELECT * FROM pg_temp.error_of($$SELECT idempotency.accumulate('account', '{"nonsense": 1}'::jsonb, 'balance', 1, 'x')$$);
SELECT * FROM pg_temp.error_of($$SELECT idempotency.accumulate('account', '{"iban": null}'::jsonb, 'balance', 1, 'x')$$);
SELECT * FROM pg_temp.error_of($$SELECT idempotency.accumulate('account', '{"tenant": null, "number": 3}'::jsonb, 'balance', 1, 'x')$$);
SELECT * FROM pg_temp.error_of($$SELECT idempotency.accumulate('account', '{"id": [1]}'::jsonb, 'balance', 1, 'x')$$);
SELECT * FROM pg_temp.error_of($$SELECT idempotency.accumulate('account', 1, 'id', 1, 'x')$$);

-- unique keys that cannot name a row, each with its reason
CREATE TABLE odd (
	n int NOT NULL DEFAULT 0, a int UNIQUE DEFERRABLE, b int, c int, d text, e int, EXCLUDE USING btree (e WITH =));
CREATE UNIQUE INDEX odd_partial ON odd (b) WHERE c > 0;
CREATE UNIQUE INDEX odd_expression ON odd (lower(d));
INSERT INTO odd VALUES (0, 1, 1, 1, 'd', 1);
SELECT * FROM pg_temp.error_of($$SELECT idempotency.accumulate('odd', 1, 'n', 1, 'x')$$);
SELECT * FROM pg_temp.error_of($$SELECT idempotency.accumulate('odd', '{"a": 1}'::jsonb, 'n', 1, 'x')$$);
SELECT * FROM pg_temp.error_of($$SELECT idempotency.accumulate('odd', '{"b": 1}'::jsonb, 'n', 1, 'x')$$);
SELECT * FROM pg_temp.error_of($$SELECT idempotency.accumulate('odd', '{"d": "d"}'::jsonb, 'n', 1, 'x')$$);
SELECT * FROM pg_temp.error_of($$SELECT idempotency.accumulate('odd', '{"e": 1}'::jsonb, 'n', 1, 'x')$$);
ALTER TABLE odd ADD PRIMARY KEY (b, c);
SELECT * FROM pg_temp.error_of($$SELECT idempotency.accumulate('odd', 1, 'n', 1, 'x')$$);
-- text where a single value cannot be meant is read as jsonb
SELECT outcome, value FROM idempotency.accumulate('odd', '{"b": 1, "c": 1}', 'n', 1, 'composite as text');
SELECT code, hint FROM pg_temp.error_of($$SELECT idempotency.accumulate('odd', '1', 'n', 1, 'x')$$);

-- keys of other types
CREATE TYPE season AS ENUM ('spring', 'autumn');
CREATE DOMAIN sku AS text CHECK (VALUE ~ '^[A-Z]+$');
CREATE TABLE by_text (k text PRIMARY KEY, n int NOT NULL DEFAULT 0);
CREATE TABLE by_char (k char(6) PRIMARY KEY, n int NOT NULL DEFAULT 0);
CREATE TABLE by_uuid (k uuid PRIMARY KEY, n int NOT NULL DEFAULT 0);
CREATE TABLE by_enum (k season PRIMARY KEY, n int NOT NULL DEFAULT 0);
CREATE TABLE by_domain (k sku PRIMARY KEY, n int NOT NULL DEFAULT 0);
CREATE TABLE by_numeric (k numeric(10, 2) PRIMARY KEY, n int NOT NULL DEFAULT 0);
CREATE TABLE by_float (k float8 PRIMARY KEY, n int NOT NULL DEFAULT 0);
CREATE TABLE by_timestamptz (k timestamptz PRIMARY KEY, n int NOT NULL DEFAULT 0);
CREATE TABLE by_jsonb (k jsonb PRIMARY KEY, n int NOT NULL DEFAULT 0);
CREATE TABLE by_array (k int[] PRIMARY KEY, n int NOT NULL DEFAULT 0);
CREATE TABLE by_included (k int, n int NOT NULL DEFAULT 0, PRIMARY KEY (k) INCLUDE (n));
INSERT INTO by_text VALUES ('a'), ('{"k": "a"}'), ('1'), ('1.0');
INSERT INTO by_char VALUES ('ab');
INSERT INTO by_uuid VALUES ('0b7d5a3e-3b1a-4a57-9f5c-1d2e3f405162');
INSERT INTO by_enum VALUES ('autumn');
INSERT INTO by_domain VALUES ('ABC');
INSERT INTO by_numeric VALUES (1.23);
INSERT INTO by_float VALUES (0.1), (0);
INSERT INTO by_timestamptz VALUES ('2026-03-04 05:06:07+00');
INSERT INTO by_jsonb VALUES ('{"a": 1}'), ('null'), ('[1]');
INSERT INTO by_array VALUES ('{1,2}');
INSERT INTO by_included VALUES (1);
SELECT outcome, value FROM idempotency.accumulate('by_text', 'a', 'n', 1, '1');
SELECT outcome, value FROM idempotency.accumulate('by_text', '{"k": "a"}', 'n', 10, '2');
SELECT outcome, value FROM idempotency.accumulate('by_text', '{"k": "a"}'::jsonb, 'n', 1, '3');
SELECT outcome, value FROM idempotency.accumulate('by_text', '{"k": 1.0}'::jsonb, 'n', 1, '4');
SELECT code FROM pg_temp.error_of($$SELECT idempotency.accumulate('by_text', 'A', 'n', 1, '5')$$);
SELECT outcome, value FROM idempotency.accumulate('by_char', 'ab', 'n', 1, '1');
SELECT outcome, value FROM idempotency.accumulate('by_char', 'ab    ', 'n', 1, '1');
SELECT outcome, value FROM idempotency.accumulate('by_uuid', '0B7D5A3E-3B1A-4A57-9F5C-1D2E3F405162', 'n', 1, '1');
SELECT outcome, value FROM idempotency.accumulate('by_uuid', '{0b7d5a3e-3b1a-4a57-9f5c-1d2e3f405162}'::uuid, 'n', 1, '1');
SELECT outcome, value FROM idempotency.accumulate('by_enum', 'autumn', 'n', 1, '1');
SELECT outcome, value FROM idempotency.accumulate('by_enum', 'autumn'::season, 'n', 1, '1');
SELECT * FROM pg_temp.error_of($$SELECT idempotency.accumulate('by_enum', 'winter', 'n', 1, '2')$$);
SELECT outcome, value FROM idempotency.accumulate('by_domain', 'ABC', 'n', 1, '1');
SELECT outcome, value FROM idempotency.accumulate('by_domain', 'ABC'::sku, 'n', 1, '1');
SELECT * FROM pg_temp.error_of($$SELECT idempotency.accumulate('by_domain', 'abc', 'n', 1, '2')$$);
SELECT outcome, value FROM idempotency.accumulate('by_numeric', 1.230, 'n', 1, '1');
SELECT code FROM pg_temp.error_of($$SELECT idempotency.accumulate('by_numeric', 1.234, 'n', 1, '2')$$);
SELECT outcome, value FROM idempotency.accumulate('by_float', 0.1::float8, 'n', 1, '1');
SELECT outcome, value FROM idempotency.accumulate('by_float', 0.1, 'n', 1, '1');
SELECT outcome, value FROM idempotency.accumulate('by_float', '-0'::float8, 'n', 1, '2');
SELECT outcome, value FROM idempotency.accumulate('by_float', 0, 'n', 1, '2');
SELECT outcome, value FROM idempotency.accumulate('by_timestamptz', '2026-03-04 06:06:07+01', 'n', 1, '1');
SELECT outcome, value FROM idempotency.accumulate('by_timestamptz', timestamptz '2026-03-04 05:06:07+00', 'n', 1, '1');
SELECT outcome, value FROM idempotency.accumulate('by_jsonb', '{"a": 1.0}', 'n', 1, '1');
SELECT outcome, value FROM idempotency.accumulate('by_jsonb', '{"k": {"a": 1}}'::jsonb, 'n', 1, '1');
SELECT outcome, value FROM idempotency.accumulate('by_jsonb', '{"k": null}'::jsonb, 'n', 1, '2');
SELECT outcome, value FROM idempotency.accumulate('by_jsonb', '{"k": [1]}'::jsonb, 'n', 1, '3');
SELECT outcome, value FROM idempotency.accumulate('by_array', '{1,2}', 'n', 1, '1');
SELECT outcome, value FROM idempotency.accumulate('by_array', ARRAY[1,2], 'n', 1, '1');
SELECT outcome, value FROM idempotency.accumulate('by_included', 1, 'n', 1, '1');

-- a key that would name another row once it is converted, rounded or cut is refused
CREATE TABLE by_real (k real PRIMARY KEY, n int NOT NULL DEFAULT 0);
CREATE TABLE by_name (k name PRIMARY KEY, n int NOT NULL DEFAULT 0);
CREATE TABLE by_bigint (k bigint PRIMARY KEY, n int NOT NULL DEFAULT 0);
CREATE TABLE by_varchar (k varchar(3) PRIMARY KEY, n int NOT NULL DEFAULT 0);
CREATE DOMAIN positive AS int CHECK (VALUE > 0);
CREATE TABLE by_positive (k positive PRIMARY KEY, n int NOT NULL DEFAULT 0);
INSERT INTO by_real VALUES (16777216);
INSERT INTO by_name VALUES (repeat('x', 63));
INSERT INTO by_bigint VALUES (1234567890123457), (1234567890123460);
SELECT * FROM pg_temp.error_of($$SELECT idempotency.accumulate('by_real', 16777217, 'n', 1, '1')$$);
SELECT outcome, value FROM idempotency.accumulate('by_real', 16777216, 'n', 1, '1');
SELECT * FROM pg_temp.error_of(format($$SELECT idempotency.accumulate('by_name', %L, 'n', 1, '1')$$, repeat('x', 70)));
SET extra_float_digits = 0;
SELECT outcome, value FROM idempotency.accumulate('by_bigint', 1234567890123457::float8, 'n', 1, '1');
RESET extra_float_digits;
SELECT * FROM by_bigint ORDER BY k;
SELECT * FROM pg_temp.error_of($$SELECT idempotency.accumulate('by_numeric', 5.678, 'n', 1, '3', create_missing => true)$$);
SELECT outcome, value FROM idempotency.accumulate('by_numeric', 5.67, 'n', 1, '3', create_missing => true);
SELECT code, message FROM pg_temp.error_of($$SELECT idempotency.accumulate('by_varchar', 'abc  ', 'n', 1, '1', create_missing => true)$$);
SELECT code, message FROM pg_temp.error_of($$SELECT idempotency.accumulate('by_positive', -5, 'n', 1, '1', create_missing => true)$$);
SELECT outcome, value FROM idempotency.accumulate('by_positive', 5, 'n', 1, '1', create_missing => true);
CREATE FUNCTION lower_key() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.k := lower(NEW.k); RETURN NEW; END $$;
CREATE TRIGGER lower_key BEFORE INSERT ON by_varchar FOR EACH ROW EXECUTE FUNCTION lower_key();
SELECT code, message FROM pg_temp.error_of($$SELECT idempotency.accumulate('by_varchar', 'ABC', 'n', 1, '2', create_missing => true)$$);
SELECT outcome, value FROM idempotency.accumulate('by_varchar', 'abc', 'n', 1, '2', create_missing => true);

-- the index's own idea of equality, where it differs from the bytes; and the key by whichever form it was logged
CREATE COLLATION folded (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
CREATE TABLE by_folded (k text COLLATE folded PRIMARY KEY, n int NOT NULL DEFAULT 0);
CREATE TABLE by_interval (k interval PRIMARY KEY, n int NOT NULL DEFAULT 0);
CREATE TABLE by_index_collation (k text, n int NOT NULL DEFAULT 0);
CREATE UNIQUE INDEX ON by_index_collation (k COLLATE folded);
INSERT INTO by_folded VALUES ('Key-A');
INSERT INTO by_interval VALUES ('24 hours');
INSERT INTO by_index_collation VALUES ('Key-A');
SELECT outcome, value FROM idempotency.accumulate('by_folded', 'key-a', 'n', 1, '1');
SELECT outcome, value FROM idempotency.accumulate('by_folded', 'KEY-A', 'n', 1, '1');
SELECT code, detail FROM pg_temp.error_of($$SELECT idempotency.accumulate('by_folded', 'KEY-B', 'n', 1, '1')$$);
SELECT code, detail FROM pg_temp.error_of($$SELECT idempotency.accumulate('by_folded', 'KEY-A', 'n', 2, '1')$$);
SELECT outcome, value FROM idempotency.accumulate('by_interval', '1 day', 'n', 1, '1');
SELECT outcome, value FROM idempotency.accumulate('by_interval', '86400 s', 'n', 1, '1');
SELECT outcome, value FROM idempotency.accumulate('by_index_collation', '{"k": "KEY-A"}'::jsonb, 'n', 1, '1');
SELECT outcome, value FROM idempotency.accumulate('by_index_collation', '{"k": "key-a"}'::jsonb, 'n', 1, '1');

-- names as people have them
CREATE SCHEMA "Läden";
CREATE TABLE "Läden"."Größe ""x""" ("Schlüssel" int, "select" int, "n'1" int NOT NULL DEFAULT 0, PRIMARY KEY ("Schlüssel", "select"));
INSERT INTO "Läden"."Größe ""x""" VALUES (1, 2);
SELECT outcome, value FROM idempotency.accumulate('"Läden"."Größe ""x"""', '{"Schlüssel": 1, "select": 2}', 'n''1', 1, 'ü');
SELECT outcome, value FROM idempotency.accumulate('"Läden"."Größe ""x"""', '{"Schlüssel": 1, "select": 2}', 'n''1', 1, 'ü');
SELECT scope, target_key FROM idempotency.operation_log WHERE operation_id = 'ü';

-- nothing depends on search_path, nor on operators somebody puts there
CREATE SCHEMA trap;
CREATE FUNCTION trap.always(text, text) RETURNS bool LANGUAGE sql AS 'SELECT true';
CREATE FUNCTION trap.never(numeric, numeric) RETURNS bool LANGUAGE sql AS 'SELECT false';
CREATE FUNCTION trap.minus(numeric, numeric) RETURNS numeric LANGUAGE sql AS 'SELECT 0::numeric';
CREATE OPERATOR trap.= (FUNCTION = trap.always, LEFTARG = text, RIGHTARG = text);
CREATE OPERATOR trap.>= (FUNCTION = trap.never, LEFTARG = numeric, RIGHTARG = numeric);
CREATE OPERATOR trap.+ (FUNCTION = trap.minus, LEFTARG = numeric, RIGHTARG = numeric);
SET search_path = trap, pg_catalog, public;
SELECT outcome, value FROM idempotency.accumulate('public.by_text', 'a', 'n', 5, 'trap', minimum => 0);
SELECT outcome, value FROM idempotency.accumulate('public.by_text', 'a', 'n', 5, 'trap', minimum => 0);
SET search_path = '';
SELECT outcome, value FROM idempotency.accumulate('public.by_text', 'a', 'n', 5, 'trap', minimum => 0);
RESET search_path;

SET client_min_messages = error;
DROP SCHEMA trap, "Läden" CASCADE;
DROP TABLE account, odd, by_text, by_char, by_uuid, by_enum, by_domain, by_numeric, by_float, by_timestamptz, by_jsonb,
	by_array, by_included, by_real, by_name, by_bigint, by_varchar, by_positive, by_folded, by_interval, by_index_collation;
DROP COLLATION folded;
DROP TYPE season;
DROP DOMAIN sku, positive;
DROP FUNCTION lower_key;
DROP EXTENSION idempotency;
