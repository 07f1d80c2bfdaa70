\set id random(1, 100000)
UPDATE orders_guarded SET status = 'OPEN' WHERE id = :id AND status = 'OPEN' RETURNING status;
