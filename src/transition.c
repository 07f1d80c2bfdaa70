/*
 * transition.c - take a row from one state to another, under its lock
 *
 * transition() and fire() have no operation id: that the row is in the state it was
 * to go to is what tells a duplicate.  The state is read by a snapshot first; what
 * is there already is answered from that, and nothing is locked.  Otherwise one
 * UPDATE, which says itself that the row must be in the state that was read, and so
 * changes nothing if it is not any more; then the row is locked and judged anew.
 *
 * transition_once() and fire_once() are operations on the row: their protocol is
 * row_operation.c's, and a duplicate is what the log knows, wherever the row has
 * gone since.
 *
 * fire() and fire_once() take the states from the column's state diagram.
 */
#include "postgres.h"

#include "arguments.h"
#include "canonical_json.h"
#include "compat.h"
#include "errors.h"
#include "operation_log.h"
#include "row_operation.h"
#include "target.h"
#include "transition.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "executor/spi.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

/* the first arguments; which others follow depends on the function */
enum
{
	ARG_TARGET,
	ARG_KEY,
	ARG_RULE
};

/* the most fields that a request has */
#define MAX_FIELDS 5

typedef struct Call
{
	RowOperation operation;		/* comes first; without an operation id only its target, row and column count */
	TransitionRule rule;
	TargetReader *reader;
	Jsonb	   *changes_json;	/* or NULL */
	TargetNewRow changes;
	bool		has_changes;
	JsonbPair	fields[MAX_FIELDS]; /* of the request */
	int			nfields;

	/* the answer */
	Outcome		outcome;
	char	   *previous_state; /* or NULL */
	char	   *state;			/* or NULL */
	TimestampTz changed_at;
	bool		has_changed_at;
} Call;

/* how often a row may be found and yet not be locked although nobody has it */
#define MAX_LOCK_ROUNDS 10

/* ---------- arguments ---------- */

/* Returns the number of the argument that follows. */
static int
read_rule(Call *call, FunctionCallInfo fcinfo, bool event)
{
	idem_arguments_require(fcinfo, ARG_TARGET, "target");
	idem_arguments_require(fcinfo, ARG_KEY, "key");
	idem_arguments_require(fcinfo, ARG_RULE, event ? "event" : "from_states");
	if (event)
	{
		call->rule.event = text_to_cstring(PG_GETARG_TEXT_PP(ARG_RULE));
		return ARG_RULE + 1;
	}
	idem_arguments_require(fcinfo, ARG_RULE + 1, "to_state");
	idem_transition_rule_read_states(&call->rule, PG_GETARG_ARRAYTYPE_P(ARG_RULE), PG_GETARG_TEXT_PP(ARG_RULE + 1));
	return ARG_RULE + 2;
}

/* Reads (column_name, changes, on_reject, nowait) and returns the number of the argument that follows. */
static int
read_options(Call *call, FunctionCallInfo fcinfo, int n)
{
	RowOperation *operation = &call->operation;

	idem_arguments_require(fcinfo, n, "column_name");
	idem_arguments_require(fcinfo, n + 3, "nowait");
	operation->column_name = NameStr(*PG_GETARG_NAME(n));
	call->changes_json = PG_ARGISNULL(n + 1) ? NULL : PG_GETARG_JSONB_P(n + 1);
	operation->on_reject = idem_arguments_on_reject(IDEM_TEXT_OR_NULL(n + 2));
	operation->nowait = PG_GETARG_BOOL(n + 3);
	call->reader = idem_transition_reader(fcinfo->flinfo);
	return n + 4;
}

/* ---------- the request ---------- */

static JsonbValue *
add_field(Call *call, const char *name)
{
	JsonbPair  *pair = &call->fields[call->nfields++];

	Assert(call->nfields <= MAX_FIELDS);
	pair->key.type = jbvString;
	pair->key.val.string.val = (char *) name;
	pair->key.val.string.len = strlen(name);
	return &pair->value;
}

static void
add_string_field(Call *call, const char *name, const char *string)
{
	JsonbValue *value = add_field(call, name);

	value->type = jbvString;
	value->val.string.val = (char *) string;
	value->val.string.len = strlen(string);
}

/* No changes and changes to nothing are the same. */
static void
add_changes_field(Call *call)
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
build_request(Call *call)
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

/* ---------- answers ---------- */

static void
answer(Call *call, Outcome outcome, char *previous_state, char *state)
{
	call->outcome = outcome;
	call->previous_state = previous_state;
	call->state = state;
}

static char *
quoted(const char *state)
{
	return state != NULL ? psprintf("\"%s\"", state) : "NULL";
}

/*
 * The caller reads the state by this very call, or has read it from the log, so it
 * may be shown.
 */
static void
raise_rejected(const Call *call, const char *state, bool logged)
{
	const RowOperation *operation = &call->operation;
	const TransitionRule *rule = &call->rule;
	char	   *detail;
	const char *to;

	if (logged)
		detail = psprintf("The operation was rejected before, when its %s was %s.", operation->column_name, quoted(state));
	else if (idem_transition_rule_judge(rule, state, &to) == IDEM_IS_THERE)
		detail = psprintf("Its %s is %s already, and it was not operation \"%s\" that took it there.", operation->column_name,
						  quoted(state), text_to_cstring(operation->logged.operation_id));
	else
		detail = psprintf("Its %s is %s, and would have to be: %s.", operation->column_name, quoted(state),
						  idem_transition_rule_sources(rule));
	ereport(ERROR,
			(errcode(IDEM_ILLEGAL_TRANSITION),
			 rule->event != NULL ?
			 errmsg("event \"%s\" cannot happen to the row of table \"%s\"", rule->event,
					RelationGetRelationName(operation->target.relation)) :
			 errmsg("the row of table \"%s\" cannot go to %s \"%s\"",
					RelationGetRelationName(operation->target.relation), operation->column_name, rule->to),
			 errdetail("%s", detail),
			 operation->logged.operation_id != NULL ?
			 errhint("Pass on_reject => 'return' or 'record' to get the outcome \"rejected\" in place of an error.") :
			 errhint("Pass on_reject => 'return' to get the outcome \"rejected\" in place of an error.")));
}

static void
raise_row_missing(const Call *call)
{
	ereport(ERROR,
			(errcode(IDEM_TARGET_ROW_MISSING),
			 errmsg("table \"%s\" has no row with the key given", RelationGetRelationName(call->operation.target.relation)),
			 errhint("Insert the row first.")));
}

static void
raise_row_suppressed(const Call *call)
{
	ereport(ERROR,
			(errcode(IDEM_ROW_SUPPRESSED),
			 errmsg("the row of table \"%s\" was not updated", RelationGetRelationName(call->operation.target.relation)),
			 errdetail("A BEFORE trigger or row security kept it from being stored."),
			 errhint("Change the trigger or the policy, or name another row.")));
}

/* ---------- the effect ---------- */

/*
 * Looks up the column, and makes sure that the call is about states and columns that
 * there are.  Not earlier than here, with an operation id: the table may have changed
 * since the operation was done, and its retry is a duplicate all the same.
 */
static void
prepare(RowOperation *operation, Snapshot snapshot)
{
	Call	   *call = (Call *) operation;

	idem_target_read_state_column(&operation->target, operation->column_name, &operation->column);
	idem_target_check_not_in_key(&operation->row, operation->column.number);
	idem_transition_rule_check(&call->rule, &operation->target, &operation->column);
	if (call->changes_json != NULL)
	{
		idem_target_read_changes(&operation->row, &operation->column, call->changes_json, call->reader, &call->changes);
		call->has_changes = call->changes.given != NULL;
	}
}

/* See idem_target_move(); `from` is NULL where the row is held. */
static bool
move(Call *call, const char *from, const char *to, Snapshot snapshot, TargetRecheck recheck, char **stored)
{
	TargetMove	way = {
		.column = &call->operation.column,
		.from = from,
		.to = idem_target_state_value(&call->operation.column, to),
		.changes = call->has_changes ? &call->changes : NULL
	};

	return idem_target_move(&call->operation.row, &way, snapshot, recheck, call, stored);
}

/* The row is held, and in this state: where it may move, moves it. */
static Verdict
move_held(Call *call, char *state, char **stored)
{
	const char *to;
	Verdict		verdict = idem_transition_rule_judge(&call->rule, state, &to);

	if (verdict == IDEM_MAY_MOVE && !move(call, NULL, to, InvalidSnapshot, NULL, stored))
		raise_row_suppressed(call);
	return verdict;
}

static char *
state_of_value(Datum value)
{
	return value == (Datum) 0 ? NULL : TextDatumGetCString(value);
}

/* ---------- with an operation id ---------- */

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
	Call	   *call = (Call *) operation;
	Outcome		outcome = idem_operation_log_outcome(row);

	if (outcome == IDEM_REJECTED)
	{
		if (operation->on_reject == IDEM_REJECT_RAISE)
			raise_rejected(call, get_state(row, LOG_FROM_STATE), true);
		answer(call, outcome, NULL, get_state(row, LOG_FROM_STATE));
		return;
	}
	answer(call, outcome, get_state(row, LOG_FROM_STATE), get_state(row, LOG_TO_STATE));
	call->has_changed_at = outcome == IDEM_DUPLICATE && !row->nulls[LOG_COMPLETED_AT];
	if (call->has_changed_at)
		call->changed_at = DatumGetTimestampTz(row->values[LOG_COMPLETED_AT]);
}

static void
answer_in_progress(RowOperation *operation)
{
	answer((Call *) operation, IDEM_IN_PROGRESS, NULL, NULL);
}

static void
build_log_row(const Call *call, const char *log_state, const char *from, const char *to, LogRow *row)
{
	idem_row_operation_init_log_row(&call->operation, log_state, row);
	set_state(row, LOG_FROM_STATE, from);
	set_state(row, LOG_TO_STATE, to);
	/* who it is for, whatever function owns the right to do it */
	idem_log_row_set(row, LOG_ACTOR, CStringGetTextDatum(GetUserNameFromId(GetOuterUserId(), false)));
}

/* The effect is made: log it and answer. */
static void
applied(Call *call, char *from, char *stored)
{
	LogRow		row;

	build_log_row(call, IDEM_STATE_DONE, from, stored, &row);
	idem_operation_log_record(&call->operation.logged, &row);
	answer(call, IDEM_APPLIED, from, stored);
	call->changed_at = DatumGetTimestampTz(row.values[LOG_COMPLETED_AT]);
	call->has_changed_at = true;
}

/* A rule said no: nothing has changed. */
static void
reject(Call *call, char *state)
{
	LogRow		row;

	switch (call->operation.on_reject)
	{
		case IDEM_REJECT_RAISE:
			raise_rejected(call, state, false);
			break;
		case IDEM_REJECT_RETURN:
			break;
		case IDEM_REJECT_RECORD:
			build_log_row(call, IDEM_STATE_REJECTED, state, NULL, &row);
			if (!idem_row_operation_try_record(&call->operation, &row))
				return;			/* it is answered */
			break;
	}
	answer(call, IDEM_REJECTED, NULL, state);
}

/*
 * The state is read only if the rule leaves a choice: else the UPDATE finds out
 * whether the row is in the one that it must be in.
 */
static bool
apply_guarded(RowOperation *operation, Snapshot snapshot)
{
	Call	   *call = (Call *) operation;
	char	   *from = (char *) idem_transition_rule_only_source(&call->rule);
	const char *to;
	char	   *stored;

	if (from == NULL && !idem_target_read_state(&operation->row, &operation->column, snapshot, &from))
		return false;
	if (idem_transition_rule_judge(&call->rule, from, &to) != IDEM_MAY_MOVE ||
		!move(call, from, to, snapshot, idem_row_operation_still_absent, &stored))
		return false;
	applied(call, from, stored);
	return true;
}

static void
apply_holding(RowOperation *operation, Datum value)
{
	Call	   *call = (Call *) operation;
	char	   *state = state_of_value(value);
	char	   *stored;

	if (move_held(call, state, &stored) == IDEM_MAY_MOVE)
		applied(call, state, stored);
	else
		reject(call, state);
}

static bool
apply_without_row(RowOperation *operation, int round)
{
	raise_row_missing((Call *) operation);
	return true;				/* not reached */
}

/* Reads and checks everything that the log need not be asked for. */
static void
read_once(RowOperation *operation, FunctionCallInfo fcinfo, LOCKMODE lockmode, bool event)
{
	Call	   *call = (Call *) operation;
	int			n = ARG_RULE + (event ? 1 : 2);
	Interval   *ttl;

	operation->logged.operation_id = IDEM_TEXT_OR_NULL(n);
	idem_arguments_check_operation_id(operation->logged.operation_id);
	(void) read_rule(call, fcinfo, event);
	n = read_options(call, fcinfo, n + 1);
	ttl = IDEM_INTERVAL_OR_NULL(n + 1);
	idem_arguments_check_ttl(ttl);
	operation->logged.ttl = ttl;
	operation->wait = idem_arguments_wait(IDEM_INTERVAL_OR_NULL(n + 2));
	idem_arguments_require(fcinfo, n + 3, "log");

	idem_row_operation_open(operation, PG_GETARG_OID(ARG_TARGET), PG_GETARG_DATUM(ARG_KEY),
							get_fn_expr_argtype(fcinfo->flinfo, ARG_KEY), IDEM_TEXT_OR_NULL(n),
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

/* ---------- without an operation id ---------- */

/*
 * The snapshot shows the row in the state that it would go to.  What READ COMMITTED
 * has just read is so.  Where a transaction reads by one snapshot, the row may have
 * gone on since, and whoever locked it would be told so: 40001.
 */
static void
answer_is_there(Call *call, Snapshot snapshot, char *state)
{
	RowOperation *operation = &call->operation;

	if (IsolationUsesXactSnapshot())
	{
		Snapshot	newest = RegisterSnapshot(GetLatestSnapshot());
		char	   *state_now = NULL;

		if (!idem_target_read_state(&operation->row, &operation->column, newest, &state_now) ||
			state_now == NULL || strcmp(state_now, state) != 0)
			ereport(ERROR,
					(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
					 errmsg("could not serialize access due to concurrent update"),
					 errhint("The transaction might succeed if retried.")));
		idem_target_flush(&operation->row, newest);
		UnregisterSnapshot(newest);
	}
	else
		idem_target_flush(&operation->row, snapshot);
	answer(call, IDEM_DUPLICATE, NULL, state);
}

static void
answer_held(Call *call, char *state)
{
	char	   *stored;

	switch (move_held(call, state, &stored))
	{
		case IDEM_MAY_MOVE:
			answer(call, IDEM_APPLIED, state, stored);
			break;
		case IDEM_IS_THERE:
			answer(call, IDEM_DUPLICATE, NULL, state);
			break;
		case IDEM_MAY_NOT_MOVE:
			reject(call, state);
			break;
	}
}

/* The long way: lock the row, then judge.  Raises 55P03 for one that somebody has, if that is not to be waited for. */
static void
answer_after_lock(Call *call)
{
	RowOperation *operation = &call->operation;

	for (int round = 1;; round++)
	{
		Datum		value;

		CHECK_FOR_INTERRUPTS();
		switch (idem_target_lock(&operation->row, &operation->column,
								 operation->nowait ? IDEM_LOCK_NOWAIT : IDEM_LOCK_WAIT, &value))
		{
			case IDEM_ROW_LOCKED:
				answer_held(call, state_of_value(value));
				return;
			case IDEM_ROW_BUSY: /* it was replaced while it was waited for; or may not be updated */
				if (round < MAX_LOCK_ROUNDS)
					break;
				/* FALLTHROUGH */
			case IDEM_ROW_MISSING:
				raise_row_missing(call);
		}
	}
}

/* Returns false if the call must start over with the lock mode of a writer. */
static bool
answer_by_state(Call *call, Snapshot snapshot, LOCKMODE lockmode)
{
	RowOperation *operation = &call->operation;
	char	   *state;
	char	   *stored;
	const char *to;
	bool		found = idem_target_read_state(&operation->row, &operation->column, snapshot, &state);
	Verdict		verdict = found ? idem_transition_rule_judge(&call->rule, state, &to) : IDEM_MAY_NOT_MOVE;

	if (verdict == IDEM_IS_THERE)
	{
		answer_is_there(call, snapshot, state);
		return true;
	}
	PreventCommandIfReadOnly(operation->steps->function_name);
	if (lockmode < RowExclusiveLock && !idem_target_try_lock(&operation->target))
		return false;
	idem_target_check_insertable(&operation->target);
	if (verdict == IDEM_MAY_MOVE && !operation->nowait && move(call, state, to, snapshot, NULL, &stored))
		answer(call, IDEM_APPLIED, state, stored);
	else
		answer_after_lock(call);
	return true;
}

/* One try, with the target opened under this lock.  See answer_by_state() for what it returns. */
static bool
try_call(Call *call, FunctionCallInfo fcinfo, bool event, LOCKMODE lockmode)
{
	RowOperation *operation = &call->operation;
	Snapshot	snapshot;
	bool		answered;

	(void) read_options(call, fcinfo, read_rule(call, fcinfo, event));
	if (operation->on_reject == IDEM_REJECT_RECORD)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("a rejection can only be recorded under an operation id"),
				 errhint("Call %s_once() with an operation id, or pass on_reject => 'return'.", event ? "fire" : "transition")));
	idem_target_open(&operation->target, PG_GETARG_OID(ARG_TARGET), lockmode);
	idem_target_read_key(&operation->target, PG_GETARG_DATUM(ARG_KEY),
						 get_fn_expr_argtype(fcinfo->flinfo, ARG_KEY), &operation->row);
	prepare(operation, InvalidSnapshot);

	snapshot = RegisterSnapshot(GetTransactionSnapshot());
	answered = answer_by_state(call, snapshot, lockmode);
	UnregisterSnapshot(snapshot);
	idem_target_close(&operation->target, lockmode == AccessShareLock ? AccessShareLock : NoLock);
	return answered;
}

static Call *
call_by_state(const RowOperationSteps *steps, FunctionCallInfo fcinfo, bool event)
{
	for (LOCKMODE lockmode = AccessShareLock;; lockmode = RowExclusiveLock)
	{
		Call	   *call = palloc0(sizeof(Call));

		call->operation.steps = steps;
		if (try_call(call, fcinfo, event, lockmode))
			return call;
	}
}

/* ---------- the functions ---------- */

/* Forms (outcome, previous_state, state[, changed_at]). */
static HeapTuple
form_answer(const Call *call, FunctionCallInfo fcinfo)
{
	TupleDesc	desc;
	Datum		values[4] = {0};
	bool		nulls[4] = {false, call->previous_state == NULL, call->state == NULL, !call->has_changed_at};

	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");	/* its declaration says so */
	values[0] = CStringGetTextDatum(idem_outcome_name(call->outcome));
	if (call->previous_state != NULL)
		values[1] = CStringGetTextDatum(call->previous_state);
	if (call->state != NULL)
		values[2] = CStringGetTextDatum(call->state);
	values[3] = TimestampTzGetDatum(call->changed_at);
	return heap_form_tuple(BlessTupleDesc(desc), values, nulls);
}

static Datum
answer_once(FunctionCallInfo fcinfo, const RowOperationSteps *steps)
{
	MemoryContext caller_context = CurrentMemoryContext;
	Call	   *call;
	HeapTuple	result;

	SPI_connect();
	call = (Call *) idem_row_operation_call(steps, fcinfo);
	MemoryContextSwitchTo(caller_context);
	result = form_answer(call, fcinfo);
	SPI_finish();
	return HeapTupleGetDatum(result);
}

static Datum
answer_each_time(FunctionCallInfo fcinfo, const RowOperationSteps *steps, bool event)
{
	MemoryContext caller_context = CurrentMemoryContext;
	Call	   *call;
	HeapTuple	result;

	SPI_connect();
	call = call_by_state(steps, fcinfo, event);
	MemoryContextSwitchTo(caller_context);
	result = form_answer(call, fcinfo);
	SPI_finish();
	return HeapTupleGetDatum(result);
}

#define STEPS_OF_OPERATION \
	.size = sizeof(Call), \
	.answer_logged = answer_logged, \
	.answer_in_progress = answer_in_progress, \
	.prepare = prepare, \
	.apply_guarded = apply_guarded, \
	.apply_holding = apply_holding, \
	.apply_without_row = apply_without_row

IDEM_SQL_FUNCTION(idempotency_transition);
IDEM_SQL_FUNCTION(idempotency_transition_once);
IDEM_SQL_FUNCTION(idempotency_fire);
IDEM_SQL_FUNCTION(idempotency_fire_once);

/*
 * transition(target, key, from_states, to_state, ...): see docs/reference.md
 */
Datum
idempotency_transition(PG_FUNCTION_ARGS)
{
	static const RowOperationSteps steps = {.function_name = "transition()"};

	return answer_each_time(fcinfo, &steps, false);
}

/*
 * fire(target, key, event, ...): see docs/reference.md
 */
Datum
idempotency_fire(PG_FUNCTION_ARGS)
{
	static const RowOperationSteps steps = {.function_name = "fire()"};

	return answer_each_time(fcinfo, &steps, true);
}

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
