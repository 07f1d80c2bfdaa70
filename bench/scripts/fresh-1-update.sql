\set id random(1, 100000)
UPDATE account SET balance = balance + 1 WHERE id = :id RETURNING balance;
