-- An application that knows of no duplicates, and stays as it is.
INSERT INTO entry_ignore_duplicates (user_id) VALUES (:user);
SELECT user_id, number FROM entry_ignore_duplicates WHERE user_id = :user;
