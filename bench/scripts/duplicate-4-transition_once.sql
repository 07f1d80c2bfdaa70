\set id random(1, 1000)
SELECT outcome, previous_state, state, changed_at FROM idempotency.transition_once('orders', :id, '{OPEN}', 'OPEN', 'moved-' || :id, scope => 'bench');
