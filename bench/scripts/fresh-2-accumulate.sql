\set id random(1, 100000)
\set operation random(1, 1000000000000000)
SELECT outcome, value, applied_at FROM idempotency.accumulate('account', :id, 'balance', 1, :operation::text, scope => 'bench');
