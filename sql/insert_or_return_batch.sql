-- insert_or_return_batch: G9 results in the order of the input, repeats within the batch, errors that name the item.
SET client_min_messages = warning;
CREATE EXTENSION idempotency;
CREATE SCHEMA regress_insert_or_return_batch;
SET search_path = regress_insert_or_return_batch, public;
\i test/lib/error_of.psql
\pset null NULL
CREATE TABLE booking (sale int, customer text, seats int DEFAULT 1, id int GENERATED ALWAYS AS IDENTITY, PRIMARY KEY (sale, customer));

SELECT * FROM idempotency.insert_or_return_batch(NULL::booking, '[]');
SELECT * FROM idempotency.insert_or_return_batch(NULL::booking, '[{"sale": 2, "customer": "b"}, {"sale": 1, "customer": "z"}, {"sale": 1, "customer": "a", "seats": 3}]');
-- new ones, those that are there, and repeats; each in its place
SELECT * FROM idempotency.insert_or_return_batch(NULL::booking, '[{"sale": 1, "customer": "z"}, {"sale": 3, "customer": "c"}, {"sale": 2, "customer": "b"}, {"sale": 3, "customer": "c", "seats": 9}, {"sale": 0, "customer": "d"}]');
SELECT count(*), max(id) FROM booking;
-- all there: quiet
BEGIN READ ONLY;
SELECT item, inserted, (stored).id FROM idempotency.insert_or_return_batch(NULL::booking, '[{"sale": 3, "customer": "c"}, {"sale": 1, "customer": "a"}]');
ROLLBACK;
-- stored in the order of the keys, whatever that of the input, so that batches do not wait in a circle
CREATE TABLE ordered (k int PRIMARY KEY, id int GENERATED ALWAYS AS IDENTITY);
SELECT item, inserted, (stored).k, (stored).id FROM idempotency.insert_or_return_batch(NULL::ordered, '[{"k": 9}, {"k": 3}, {"k": 7}, {"k": 3}]');

-- items of different columns, each with the defaults of its own
SELECT item, inserted, (stored).sale, (stored).seats FROM idempotency.insert_or_return_batch(NULL::booking, '[{"sale": 10, "customer": "x", "seats": null}, {"customer": "x", "sale": 11}, {"seats": 4, "sale": 12, "customer": "x"}]');

-- G4: against what is stored, and against the first within the batch; nothing of the batch remains
SELECT * FROM pg_temp.error_of($$SELECT idempotency.insert_or_return_batch(NULL::booking, '[{"sale": 20, "customer": "x", "seats": 1}, {"sale": 12, "customer": "x", "seats": 5}]', must_match => '{seats}')$$);
SELECT * FROM pg_temp.error_of($$SELECT idempotency.insert_or_return_batch(NULL::booking, '[{"sale": 20, "customer": "x", "seats": 1}, {"sale": 20, "customer": "x", "seats": 5}]', must_match => '{seats}')$$);
SELECT count(*) FROM booking WHERE sale = 20;
SELECT item, inserted FROM idempotency.insert_or_return_batch(NULL::booking, '[{"sale": 20, "customer": "x", "seats": 1}, {"sale": 20, "customer": "x", "seats": 1}]', must_match => '{seats}');

-- the key must be given by every item; errors name theirs
SELECT * FROM pg_temp.error_of($$SELECT idempotency.insert_or_return_batch(NULL::booking, '[{"sale": 1, "customer": "x"}, {"sale": 1}]')$$);
SELECT * FROM pg_temp.error_of($$SELECT idempotency.insert_or_return_batch(NULL::booking, '{"sale": 1, "customer": "x"}')$$);
SELECT * FROM pg_temp.error_of($$SELECT idempotency.insert_or_return_batch(NULL::booking, '7')$$);
SELECT * FROM pg_temp.error_of($$SELECT idempotency.insert_or_return_batch(NULL::booking, NULL)$$);
SELECT * FROM idempotency.insert_or_return_batch(NULL::booking, '[{"sale": 1, "customer": "x"}, null]');
SELECT * FROM idempotency.insert_or_return_batch(NULL::booking, '[{"sale": 1, "customer": "x"}, {"sale": "one", "customer": "x"}]');
SELECT * FROM idempotency.insert_or_return_batch(NULL::booking, '[{"sale": 1, "customer": "x"}, {"sale": null, "customer": "x"}]');
SELECT count(*) FROM booking WHERE customer = 'x' AND sale = 1;

-- thousands in one call
CREATE TABLE many (k int PRIMARY KEY, n int);
INSERT INTO many SELECT i, -1 FROM generate_series(3, 10000, 3) i;
SELECT count(*), count(*) FILTER (WHERE inserted) AS inserted, bool_and(item = (stored).k) AS in_order, bool_and(inserted = ((stored).n = item)) AS exact
FROM idempotency.insert_or_return_batch(NULL::many, (SELECT jsonb_agg(jsonb_build_object('k', i, 'n', i) ORDER BY i) FROM generate_series(1, 10000) i));
SELECT count(*) FROM many;
-- where a set is not wanted
SELECT idempotency.insert_or_return_batch(NULL::many, '[{"k": 1}, {"k": 20000}]');

DROP SCHEMA regress_insert_or_return_batch CASCADE;
DROP EXTENSION idempotency;
