
-- Transition: take a row from one state to another, under its lock; once per operation id, if it is given one.

CREATE FUNCTION idempotency.transition(
	target pg_catalog.regclass,
	key "any",
	from_states pg_catalog.text[],
	to_state pg_catalog.text,
	column_name pg_catalog.name DEFAULT 'status',
	changes pg_catalog.jsonb DEFAULT NULL,
	on_reject pg_catalog.text DEFAULT 'raise',
	nowait pg_catalog.bool DEFAULT false,
	OUT outcome pg_catalog.text,
	OUT previous_state pg_catalog.text,
	OUT state pg_catalog.text)
RETURNS pg_catalog.record
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'idempotency_transition';

-- Each with the key as text, too, for parameters of unknown type, which drivers send; read by the key column's input function.
CREATE FUNCTION idempotency.transition(
	target pg_catalog.regclass,
	key pg_catalog.text,
	from_states pg_catalog.text[],
	to_state pg_catalog.text,
	column_name pg_catalog.name DEFAULT 'status',
	changes pg_catalog.jsonb DEFAULT NULL,
	on_reject pg_catalog.text DEFAULT 'raise',
	nowait pg_catalog.bool DEFAULT false,
	OUT outcome pg_catalog.text,
	OUT previous_state pg_catalog.text,
	OUT state pg_catalog.text)
RETURNS pg_catalog.record
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'idempotency_transition';

CREATE FUNCTION idempotency.transition_once(
	target pg_catalog.regclass,
	key "any",
	from_states pg_catalog.text[],
	to_state pg_catalog.text,
	operation_id pg_catalog.text,
	column_name pg_catalog.name DEFAULT 'status',
	changes pg_catalog.jsonb DEFAULT NULL,
	on_reject pg_catalog.text DEFAULT 'raise',
	nowait pg_catalog.bool DEFAULT false,
	scope pg_catalog.text DEFAULT NULL,
	ttl pg_catalog.interval DEFAULT NULL,
	wait pg_catalog.interval DEFAULT NULL,
	log pg_catalog.regclass DEFAULT 'idempotency.operation_log',
	OUT outcome pg_catalog.text,
	OUT previous_state pg_catalog.text,
	OUT state pg_catalog.text,
	OUT changed_at pg_catalog.timestamptz)
RETURNS pg_catalog.record
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'idempotency_transition_once';

CREATE FUNCTION idempotency.transition_once(
	target pg_catalog.regclass,
	key pg_catalog.text,
	from_states pg_catalog.text[],
	to_state pg_catalog.text,
	operation_id pg_catalog.text,
	column_name pg_catalog.name DEFAULT 'status',
	changes pg_catalog.jsonb DEFAULT NULL,
	on_reject pg_catalog.text DEFAULT 'raise',
	nowait pg_catalog.bool DEFAULT false,
	scope pg_catalog.text DEFAULT NULL,
	ttl pg_catalog.interval DEFAULT NULL,
	wait pg_catalog.interval DEFAULT NULL,
	log pg_catalog.regclass DEFAULT 'idempotency.operation_log',
	OUT outcome pg_catalog.text,
	OUT previous_state pg_catalog.text,
	OUT state pg_catalog.text,
	OUT changed_at pg_catalog.timestamptz)
RETURNS pg_catalog.record
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'idempotency_transition_once';

CREATE FUNCTION idempotency.fire(
	target pg_catalog.regclass,
	key "any",
	event pg_catalog.text,
	column_name pg_catalog.name DEFAULT 'status',
	changes pg_catalog.jsonb DEFAULT NULL,
	on_reject pg_catalog.text DEFAULT 'raise',
	nowait pg_catalog.bool DEFAULT false,
	OUT outcome pg_catalog.text,
	OUT previous_state pg_catalog.text,
	OUT state pg_catalog.text)
RETURNS pg_catalog.record
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'idempotency_fire';

CREATE FUNCTION idempotency.fire(
	target pg_catalog.regclass,
	key pg_catalog.text,
	event pg_catalog.text,
	column_name pg_catalog.name DEFAULT 'status',
	changes pg_catalog.jsonb DEFAULT NULL,
	on_reject pg_catalog.text DEFAULT 'raise',
	nowait pg_catalog.bool DEFAULT false,
	OUT outcome pg_catalog.text,
	OUT previous_state pg_catalog.text,
	OUT state pg_catalog.text)
RETURNS pg_catalog.record
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'idempotency_fire';

CREATE FUNCTION idempotency.fire_once(
	target pg_catalog.regclass,
	key "any",
	event pg_catalog.text,
	operation_id pg_catalog.text,
	column_name pg_catalog.name DEFAULT 'status',
	changes pg_catalog.jsonb DEFAULT NULL,
	on_reject pg_catalog.text DEFAULT 'raise',
	nowait pg_catalog.bool DEFAULT false,
	scope pg_catalog.text DEFAULT NULL,
	ttl pg_catalog.interval DEFAULT NULL,
	wait pg_catalog.interval DEFAULT NULL,
	log pg_catalog.regclass DEFAULT 'idempotency.operation_log',
	OUT outcome pg_catalog.text,
	OUT previous_state pg_catalog.text,
	OUT state pg_catalog.text,
	OUT changed_at pg_catalog.timestamptz)
RETURNS pg_catalog.record
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'idempotency_fire_once';

CREATE FUNCTION idempotency.fire_once(
	target pg_catalog.regclass,
	key pg_catalog.text,
	event pg_catalog.text,
	operation_id pg_catalog.text,
	column_name pg_catalog.name DEFAULT 'status',
	changes pg_catalog.jsonb DEFAULT NULL,
	on_reject pg_catalog.text DEFAULT 'raise',
	nowait pg_catalog.bool DEFAULT false,
	scope pg_catalog.text DEFAULT NULL,
	ttl pg_catalog.interval DEFAULT NULL,
	wait pg_catalog.interval DEFAULT NULL,
	log pg_catalog.regclass DEFAULT 'idempotency.operation_log',
	OUT outcome pg_catalog.text,
	OUT previous_state pg_catalog.text,
	OUT state pg_catalog.text,
	OUT changed_at pg_catalog.timestamptz)
RETURNS pg_catalog.record
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'idempotency_fire_once';

CREATE FUNCTION idempotency.transition_batch(
	target pg_catalog.regclass,
	keys pg_catalog.anyarray,
	from_states pg_catalog.text[],
	to_state pg_catalog.text,
	column_name pg_catalog.name DEFAULT 'status',
	changes pg_catalog.jsonb DEFAULT NULL,
	OUT item pg_catalog.int4,
	OUT outcome pg_catalog.text,
	OUT previous_state pg_catalog.text,
	OUT state pg_catalog.text)
RETURNS SETOF pg_catalog.record
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'idempotency_transition_batch';

-- A function reads the log for the view, so that it is read as the view's reader on every version.
CREATE FUNCTION idempotency.logged_transitions()
RETURNS TABLE (
	target pg_catalog.regclass,
	target_key pg_catalog.jsonb,
	column_name pg_catalog.text,
	from_state pg_catalog.text,
	to_state pg_catalog.text,
	changed_at pg_catalog.timestamptz,
	actor pg_catalog.text,
	scope pg_catalog.text,
	operation_id pg_catalog.text)
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
	SELECT l.target, l.target_key, l.column_name, l.from_state, l.to_state, l.completed_at, l.actor, l.scope, l.operation_id
	FROM idempotency.operation_log AS l
	WHERE l.state OPERATOR(pg_catalog.=) 'done' AND l.to_state IS NOT NULL
		AND (l.expires_at IS NULL OR l.expires_at OPERATOR(pg_catalog.>) pg_catalog.clock_timestamp());
END;

CREATE VIEW idempotency.transition_history AS SELECT * FROM idempotency.logged_transitions();

REVOKE ALL ON FUNCTION idempotency.transition(pg_catalog.regclass, "any", pg_catalog.text[], pg_catalog.text, pg_catalog.name, pg_catalog.jsonb, pg_catalog.text, pg_catalog.bool) FROM PUBLIC;
REVOKE ALL ON FUNCTION idempotency.transition(pg_catalog.regclass, pg_catalog.text, pg_catalog.text[], pg_catalog.text, pg_catalog.name, pg_catalog.jsonb, pg_catalog.text, pg_catalog.bool) FROM PUBLIC;
REVOKE ALL ON FUNCTION idempotency.transition_once(pg_catalog.regclass, "any", pg_catalog.text[], pg_catalog.text, pg_catalog.text, pg_catalog.name, pg_catalog.jsonb, pg_catalog.text, pg_catalog.bool, pg_catalog.text, pg_catalog.interval, pg_catalog.interval, pg_catalog.regclass) FROM PUBLIC;
REVOKE ALL ON FUNCTION idempotency.transition_once(pg_catalog.regclass, pg_catalog.text, pg_catalog.text[], pg_catalog.text, pg_catalog.text, pg_catalog.name, pg_catalog.jsonb, pg_catalog.text, pg_catalog.bool, pg_catalog.text, pg_catalog.interval, pg_catalog.interval, pg_catalog.regclass) FROM PUBLIC;
REVOKE ALL ON FUNCTION idempotency.fire(pg_catalog.regclass, "any", pg_catalog.text, pg_catalog.name, pg_catalog.jsonb, pg_catalog.text, pg_catalog.bool) FROM PUBLIC;
REVOKE ALL ON FUNCTION idempotency.fire(pg_catalog.regclass, pg_catalog.text, pg_catalog.text, pg_catalog.name, pg_catalog.jsonb, pg_catalog.text, pg_catalog.bool) FROM PUBLIC;
REVOKE ALL ON FUNCTION idempotency.fire_once(pg_catalog.regclass, "any", pg_catalog.text, pg_catalog.text, pg_catalog.name, pg_catalog.jsonb, pg_catalog.text, pg_catalog.bool, pg_catalog.text, pg_catalog.interval, pg_catalog.interval, pg_catalog.regclass) FROM PUBLIC;
REVOKE ALL ON FUNCTION idempotency.fire_once(pg_catalog.regclass, pg_catalog.text, pg_catalog.text, pg_catalog.text, pg_catalog.name, pg_catalog.jsonb, pg_catalog.text, pg_catalog.bool, pg_catalog.text, pg_catalog.interval, pg_catalog.interval, pg_catalog.regclass) FROM PUBLIC;
REVOKE ALL ON FUNCTION idempotency.transition_batch(pg_catalog.regclass, pg_catalog.anyarray, pg_catalog.text[], pg_catalog.text, pg_catalog.name, pg_catalog.jsonb) FROM PUBLIC;
REVOKE ALL ON FUNCTION idempotency.logged_transitions() FROM PUBLIC;
REVOKE ALL ON TABLE idempotency.transition_history FROM PUBLIC;

COMMENT ON FUNCTION idempotency.transition(pg_catalog.regclass, "any", pg_catalog.text[], pg_catalog.text, pg_catalog.name, pg_catalog.jsonb, pg_catalog.text, pg_catalog.bool) IS
'takes a row from one of some states to another';
COMMENT ON FUNCTION idempotency.transition(pg_catalog.regclass, pg_catalog.text, pg_catalog.text[], pg_catalog.text, pg_catalog.name, pg_catalog.jsonb, pg_catalog.text, pg_catalog.bool) IS
'takes a row from one of some states to another; the key as text';
COMMENT ON FUNCTION idempotency.transition_once(pg_catalog.regclass, "any", pg_catalog.text[], pg_catalog.text, pg_catalog.text, pg_catalog.name, pg_catalog.jsonb, pg_catalog.text, pg_catalog.bool, pg_catalog.text, pg_catalog.interval, pg_catalog.interval, pg_catalog.regclass) IS
'takes a row from one of some states to another, once per operation id';
COMMENT ON FUNCTION idempotency.transition_once(pg_catalog.regclass, pg_catalog.text, pg_catalog.text[], pg_catalog.text, pg_catalog.text, pg_catalog.name, pg_catalog.jsonb, pg_catalog.text, pg_catalog.bool, pg_catalog.text, pg_catalog.interval, pg_catalog.interval, pg_catalog.regclass) IS
'takes a row from one of some states to another, once per operation id; the key as text';
COMMENT ON FUNCTION idempotency.fire(pg_catalog.regclass, "any", pg_catalog.text, pg_catalog.name, pg_catalog.jsonb, pg_catalog.text, pg_catalog.bool) IS
'lets an event of its state diagram happen to a row';
COMMENT ON FUNCTION idempotency.fire(pg_catalog.regclass, pg_catalog.text, pg_catalog.text, pg_catalog.name, pg_catalog.jsonb, pg_catalog.text, pg_catalog.bool) IS
'lets an event of its state diagram happen to a row; the key as text';
COMMENT ON FUNCTION idempotency.fire_once(pg_catalog.regclass, "any", pg_catalog.text, pg_catalog.text, pg_catalog.name, pg_catalog.jsonb, pg_catalog.text, pg_catalog.bool, pg_catalog.text, pg_catalog.interval, pg_catalog.interval, pg_catalog.regclass) IS
'lets an event of its state diagram happen to a row, once per operation id';
COMMENT ON FUNCTION idempotency.fire_once(pg_catalog.regclass, pg_catalog.text, pg_catalog.text, pg_catalog.text, pg_catalog.name, pg_catalog.jsonb, pg_catalog.text, pg_catalog.bool, pg_catalog.text, pg_catalog.interval, pg_catalog.interval, pg_catalog.regclass) IS
'lets an event of its state diagram happen to a row, once per operation id; the key as text';
COMMENT ON FUNCTION idempotency.transition_batch(pg_catalog.regclass, pg_catalog.anyarray, pg_catalog.text[], pg_catalog.text, pg_catalog.name, pg_catalog.jsonb) IS
'takes many rows from one of some states to another';
COMMENT ON FUNCTION idempotency.logged_transitions() IS
'internal: what view transition_history shows';
COMMENT ON VIEW idempotency.transition_history IS
'the transitions that were made with an operation id: which row, from where to where, when, and by whom';
