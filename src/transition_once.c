/*
 * transition_once.c - take a row from one state to another, once per operation id
 *
 * transition_once() and fire_once() are operations on the row: their protocol is
 * row_operation.c's, and a duplicate is what the log knows, wherever the row has gone
 * since.
 */
#include "postgres.h"

#include "canonical_json.h"
#include "compat.h"
#include "transition.h"

#include "executor/spi.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

/* ---------- the request ---------- */

static JsonbValue *
add_field(TransitionCall *call, const char *name)
{
	JsonbPair  *pair = &call->fields[call->nfields++];

	Assert(call->nfields <= IDEM_TRANSITION_MAX_FIELDS);
	pair->key.type = jbvString;
	pair->key.val.string.val = (char *) name;
	pair->key.val.string.len = strlen(name);
	return &pair->value;
}

static void
add_string_field(TransitionCall *call, const char *name, const char *string)
{
	JsonbValue *value = add_field(call, name);

	value->type = jbvString;
	value->val.string.val = (char *) string;
	value->val.string.len = strlen(string);
}

/* No changes and changes to nothing are the same. */
static void
add_changes_field(TransitionCall *call)
{
	JsonbValue *value = add_field(call, "changes");

	value->type = jbvNull;
	if (call->changes_json != NULL && !(JB_ROOT_IS_OBJECT(call->changes_json) && JB_ROOT_COUNT(call->changes_json) == 0))
		idem_canonical_json_from_jsonb(call->changes_json, value);
}

/*
 * What the operation is asked to do.  An event is a part of it as such: where it
 * leads may change with the diagram, and a retry is the same request all the same.
 */
static void
build_request(TransitionCall *call)
{
	add_changes_field(call);
	add_string_field(call, "column_name", call->operation.column_name);
	if (call->rule.event != NULL)
		add_string_field(call, "event", call->rule.event);
	else
		idem_transition_rule_states_to_json(&call->rule, add_field(call, "from_states"));
	*add_field(call, "key") = call->operation.row.json;
	if (call->rule.event == NULL)
		add_string_field(call, "to_state", call->rule.to);
	idem_row_operation_set_request(&call->operation, call->fields, call->nfields);
}

/* ---------- the steps ---------- */

static void
set_state(LogRow *row, LogColumn column, const char *state)
{
	if (state != NULL)
		idem_log_row_set(row, column, CStringGetTextDatum(state));
}

static char *
get_state(const LogRow *row, LogColumn column)
{
	return row->nulls[column] ? NULL : TextDatumGetCString(row->values[column]);
}

static void
answer_logged(RowOperation *operation, const LogRow *row)
{
	TransitionCall *call = (TransitionCall *) operation;
	Outcome		outcome = idem_operation_log_outcome(row);

	if (outcome == IDEM_REJECTED)
	{
		if (operation->on_reject == IDEM_REJECT_RAISE)
			idem_transition_raise_rejected(call, get_state(row, LOG_FROM_STATE), true);
		idem_transition_answer(call, outcome, NULL, get_state(row, LOG_FROM_STATE));
		return;
	}
	idem_transition_answer(call, outcome, get_state(row, LOG_FROM_STATE), get_state(row, LOG_TO_STATE));
	call->has_changed_at = outcome == IDEM_DUPLICATE && !row->nulls[LOG_COMPLETED_AT];
	if (call->has_changed_at)
		call->changed_at = DatumGetTimestampTz(row->values[LOG_COMPLETED_AT]);
}

static void
answer_in_progress(RowOperation *operation)
{
	idem_transition_answer((TransitionCall *) operation, IDEM_IN_PROGRESS, NULL, NULL);
}

static void
build_log_row(const TransitionCall *call, const char *log_state, const char *from, const char *to, LogRow *row)
{
	idem_row_operation_init_log_row(&call->operation, log_state, row);
	set_state(row, LOG_FROM_STATE, from);
	set_state(row, LOG_TO_STATE, to);
	/* who it is for, whatever function owns the right to do it */
	idem_log_row_set(row, LOG_ACTOR, CStringGetTextDatum(GetUserNameFromId(GetOuterUserId(), false)));
}

/* The effect is made: log it and answer. */
static void
applied(TransitionCall *call, char *from, char *stored)
{
	LogRow		row;

	build_log_row(call, IDEM_STATE_DONE, from, stored, &row);
	idem_operation_log_record(&call->operation.logged, &row);
	idem_transition_answer(call, IDEM_APPLIED, from, stored);
	call->changed_at = DatumGetTimestampTz(row.values[LOG_COMPLETED_AT]);
	call->has_changed_at = true;
}

/* A rule said no: nothing has changed. */
static void
reject(TransitionCall *call, char *state)
{
	LogRow		row;

	switch (call->operation.on_reject)
	{
		case IDEM_REJECT_RAISE:
			idem_transition_raise_rejected(call, state, false);
			break;
		case IDEM_REJECT_RETURN:
			break;
		case IDEM_REJECT_RECORD:
			build_log_row(call, IDEM_STATE_REJECTED, state, NULL, &row);
			if (!idem_row_operation_try_record(&call->operation, &row))
				return;			/* it is answered */
			break;
	}
	idem_transition_answer(call, IDEM_REJECTED, NULL, state);
}

/*
 * The state is read only if the rule leaves a choice: else the UPDATE finds out
 * whether the row is in the one that it must be in.
 */
static bool
apply_guarded(RowOperation *operation, Snapshot snapshot)
{
	TransitionCall *call = (TransitionCall *) operation;
	char	   *from = (char *) idem_transition_rule_only_source(&call->rule);
	const char *to;
	char	   *stored;

	if (from == NULL && !idem_target_read_state(&operation->row, &operation->column, snapshot, &from))
		return false;
	if (idem_transition_rule_judge(&call->rule, from, &to) != IDEM_MAY_MOVE ||
		!idem_transition_move(call, from, to, snapshot, idem_row_operation_still_absent, &stored))
		return false;
	applied(call, from, stored);
	return true;
}

static void
apply_holding(RowOperation *operation, Datum value)
{
	TransitionCall *call = (TransitionCall *) operation;
	char	   *state = idem_transition_state_of_value(value);
	char	   *stored;

	if (idem_transition_move_held(call, state, &stored) == IDEM_MAY_MOVE)
		applied(call, state, stored);
	else
		reject(call, state);
}

static bool
apply_without_row(RowOperation *operation, int round)
{
	idem_transition_raise_row_missing((TransitionCall *) operation);
	return true;				/* not reached */
}

/* Reads and checks everything that the log need not be asked for. */
static void
read_once(RowOperation *operation, FunctionCallInfo fcinfo, LOCKMODE lockmode, bool event)
{
	TransitionCall *call = (TransitionCall *) operation;
	int			n = IDEM_TRANSITION_RULE + (event ? 1 : 2);
	Interval   *ttl;

	operation->logged.operation_id = IDEM_TEXT_OR_NULL(n);
	idem_arguments_check_operation_id(operation->logged.operation_id);
	(void) idem_transition_read_rule(call, fcinfo, event);
	n = idem_transition_read_options(call, fcinfo, n + 1);
	ttl = IDEM_INTERVAL_OR_NULL(n + 1);
	idem_arguments_check_ttl(ttl);
	operation->logged.ttl = ttl;
	operation->wait = idem_arguments_wait(IDEM_INTERVAL_OR_NULL(n + 2));
	idem_arguments_require(fcinfo, n + 3, "log");

	idem_row_operation_open(operation, PG_GETARG_OID(IDEM_TRANSITION_TARGET), PG_GETARG_DATUM(IDEM_TRANSITION_KEY),
							get_fn_expr_argtype(fcinfo->flinfo, IDEM_TRANSITION_KEY), IDEM_TEXT_OR_NULL(n),
							PG_GETARG_OID(n + 3), lockmode);
	build_request(call);
}

static void
read_transition_once(RowOperation *operation, FunctionCallInfo fcinfo, LOCKMODE lockmode)
{
	read_once(operation, fcinfo, lockmode, false);
}

static void
read_fire_once(RowOperation *operation, FunctionCallInfo fcinfo, LOCKMODE lockmode)
{
	read_once(operation, fcinfo, lockmode, true);
}

/* ---------- the functions ---------- */

static Datum
answer_once(FunctionCallInfo fcinfo, const RowOperationSteps *steps)
{
	MemoryContext caller_context = CurrentMemoryContext;
	TransitionCall *call;
	HeapTuple	result;

	SPI_connect();
	call = (TransitionCall *) idem_row_operation_call(steps, fcinfo);
	MemoryContextSwitchTo(caller_context);
	result = idem_transition_form_answer(call, fcinfo);
	SPI_finish();
	return HeapTupleGetDatum(result);
}

#define STEPS_OF_OPERATION \
	.size = sizeof(TransitionCall), \
	.answer_logged = answer_logged, \
	.answer_in_progress = answer_in_progress, \
	.prepare = idem_transition_prepare, \
	.apply_guarded = apply_guarded, \
	.apply_holding = apply_holding, \
	.apply_without_row = apply_without_row

IDEM_SQL_FUNCTION(idempotency_transition_once);
IDEM_SQL_FUNCTION(idempotency_fire_once);

/*
 * transition_once(target, key, from_states, to_state, operation_id, ...): see docs/reference.md
 */
Datum
idempotency_transition_once(PG_FUNCTION_ARGS)
{
	static const RowOperationSteps steps = {
		.function_name = "transition_once()",
		.read_arguments = read_transition_once,
		STEPS_OF_OPERATION
	};

	return answer_once(fcinfo, &steps);
}

/*
 * fire_once(target, key, event, operation_id, ...): see docs/reference.md
 */
Datum
idempotency_fire_once(PG_FUNCTION_ARGS)
{
	static const RowOperationSteps steps = {
		.function_name = "fire_once()",
		.read_arguments = read_fire_once,
		STEPS_OF_OPERATION
	};

	return answer_once(fcinfo, &steps);
}
