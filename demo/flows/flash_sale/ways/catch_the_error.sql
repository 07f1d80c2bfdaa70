-- An application that inserts, and looks when the unique key says that it is there.
\set ON_ERROR_STOP off
INSERT INTO entry_catch_the_error (user_id) VALUES (:user) RETURNING user_id, number;
\set ON_ERROR_STOP on
\if :ERROR
SELECT user_id, number FROM entry_catch_the_error WHERE user_id = :user;
\endif
