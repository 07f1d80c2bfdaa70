\set id random(1, 100000)
\set operation random(1, 1000000000000000)
SELECT outcome, previous_state, state, changed_at FROM idempotency.transition_once('orders', :id, '{OPEN}', 'OPEN', :operation::text, scope => 'bench');
