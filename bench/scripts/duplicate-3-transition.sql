\set id random(1, 1000)
SELECT outcome, previous_state, state FROM idempotency.transition('orders', :id, '{WAIT_PAY}', 'OPEN');
