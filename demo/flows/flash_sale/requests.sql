-- What one connection sends, as a psql script. Expects the variables connection, connections and way.
SELECT format(E'\\set user %s\n\\i ways/%s.sql', user_id, :'way')
FROM request
WHERE position % :connections = :connection
ORDER BY position;
