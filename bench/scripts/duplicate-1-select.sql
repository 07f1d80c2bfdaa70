\set id random(1, 1000)
SELECT id, balance FROM account WHERE id = :id;
