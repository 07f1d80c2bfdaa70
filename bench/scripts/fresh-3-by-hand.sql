\set id random(1, 100000)
\set operation random(1, 1000000000000000)
SELECT accumulate_by_hand(:id, 1, :operation::text);
