-- An application that has nothing to decide.
SELECT (stored).user_id, (stored).number
FROM idempotency.insert_or_return(NULL::entry_insert_or_return, jsonb_build_object('user_id', :user));
