\set id random(1, 100000)
SELECT outcome, previous_state, state FROM idempotency.transition('orders', :id, '{OPEN}', 'OPEN');
