-- The requests of one connection, as statements. Expects way, connections and connection.
SELECT format('SELECT %L, request_%s(%s, %L, %L);', request_id, :'way', order_id, what, request_id)
FROM request
WHERE position % :connections = :connection
ORDER BY position;
