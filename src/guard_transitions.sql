
-- Guard transitions: a trigger that holds a column to its state diagram, whoever writes.

CREATE FUNCTION idempotency.guard_transitions()
RETURNS pg_catalog.trigger
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'idempotency_guard_transitions';

REVOKE ALL ON FUNCTION idempotency.guard_transitions() FROM PUBLIC;

COMMENT ON FUNCTION idempotency.guard_transitions() IS
'trigger on INSERT OR UPDATE: refuses what a state diagram does not allow; arguments: the column, the diagram in Mermaid''s syntax';
