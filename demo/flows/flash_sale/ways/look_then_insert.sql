-- An application that looks first, and inserts if nothing is there. Between the two somebody else does the same.
SELECT count(*) > 0 AS is_there FROM entry_look_then_insert WHERE user_id = :user
\gset
\if :is_there
\else
INSERT INTO entry_look_then_insert (user_id) VALUES (:user);
\endif
SELECT user_id, number FROM entry_look_then_insert WHERE user_id = :user ORDER BY number LIMIT 1;
