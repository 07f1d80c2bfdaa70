\set id random(1, 1000)
SELECT outcome, value, applied_at FROM idempotency.accumulate('account', :id, 'balance', 1, 'known-' || :id, scope => 'bench');
