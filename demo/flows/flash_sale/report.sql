-- One line for each way. Nothing but the shop's own tables is read here.
WITH entry AS (
	SELECT 'look_then_insert' AS way, * FROM entry_look_then_insert
	UNION ALL SELECT 'catch_the_error', * FROM entry_catch_the_error
	UNION ALL SELECT 'insert_or_return', * FROM entry_insert_or_return
	UNION ALL SELECT 'ignore_duplicates', * FROM entry_ignore_duplicates
),
numbers (way, used) AS (
	SELECT 'look_then_insert', last_value FROM entry_look_then_insert_number_seq
	UNION ALL SELECT 'catch_the_error', last_value FROM entry_catch_the_error_number_seq
	UNION ALL SELECT 'insert_or_return', last_value FROM entry_insert_or_return_number_seq
	UNION ALL SELECT 'ignore_duplicates', last_value FROM entry_ignore_duplicates_number_seq
),
entered AS (
	SELECT way, count(*) AS entries, count(DISTINCT user_id) AS users FROM entry GROUP BY way
),
answered AS (
	SELECT way, count(*) AS answers, count(*) FILTER (WHERE entry.number IS NULL) AS wrong
	FROM answer LEFT JOIN entry USING (way, user_id, number)
	GROUP BY way
)
SELECT way, entries, users, answers, wrong, errors, used
FROM run JOIN entered USING (way) JOIN answered USING (way) JOIN numbers USING (way)
ORDER BY array_position(ARRAY['look_then_insert', 'catch_the_error', 'insert_or_return', 'ignore_duplicates'], way);
