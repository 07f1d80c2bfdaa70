/*
 * transition_call.c - what a call of transition() and its kin is asked, does and answers
 */
#include "postgres.h"

#include "compat.h"
#include "errors.h"
#include "transition.h"

#include "access/htup_details.h"
#include "funcapi.h"
#include "utils/builtins.h"
#include "utils/rel.h"
#include "utils/timestamp.h"

/* ---------- arguments ---------- */

/*
 * Reads (target, key) and the rule: an event, or (from_states, to_state).  Returns the
 * number of the argument that follows.
 */
int
idem_transition_read_rule(TransitionCall *call, FunctionCallInfo fcinfo, bool event)
{
	idem_arguments_require(fcinfo, IDEM_TRANSITION_TARGET, "target");
	idem_arguments_require(fcinfo, IDEM_TRANSITION_KEY, "key");
	idem_arguments_require(fcinfo, IDEM_TRANSITION_RULE, event ? "event" : "from_states");
	if (event)
	{
		call->rule.event = text_to_cstring(PG_GETARG_TEXT_PP(IDEM_TRANSITION_RULE));
		return IDEM_TRANSITION_RULE + 1;
	}
	idem_arguments_require(fcinfo, IDEM_TRANSITION_RULE + 1, "to_state");
	idem_transition_rule_read_states(&call->rule, PG_GETARG_ARRAYTYPE_P(IDEM_TRANSITION_RULE), PG_GETARG_TEXT_PP(IDEM_TRANSITION_RULE + 1));
	return IDEM_TRANSITION_RULE + 2;
}

/*
 * Reads (column_name, changes, on_reject, nowait) from argument n on.  Returns the
 * number of the argument that follows.
 */
int
idem_transition_read_options(TransitionCall *call, FunctionCallInfo fcinfo, int n)
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

/* ---------- answers ---------- */

/*
 * Answers the call.  Either state may be NULL.
 */
void
idem_transition_answer(TransitionCall *call, Outcome outcome, char *previous_state, char *state)
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
 * Raises ID004.  The caller reads the state by this very call, or has read it from the
 * log, so it may be shown.
 */
void
idem_transition_raise_rejected(const TransitionCall *call, const char *state, bool logged)
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

/*
 * Raises ID005.
 */
void
idem_transition_raise_row_missing(const TransitionCall *call)
{
	ereport(ERROR,
			(errcode(IDEM_TARGET_ROW_MISSING),
			 errmsg("table \"%s\" has no row with the key given", RelationGetRelationName(call->operation.target.relation)),
			 errhint("Insert the row first.")));
}

static void
raise_row_suppressed(const TransitionCall *call)
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
void
idem_transition_prepare(RowOperation *operation, Snapshot snapshot)
{
	TransitionCall *call = (TransitionCall *) operation;

	idem_target_read_state_column(&operation->target, operation->column_name, &operation->column);
	idem_target_check_not_in_key(&operation->row, operation->column.number);
	idem_transition_rule_check(&call->rule, &operation->target, &operation->column);
	if (call->changes_json != NULL)
	{
		idem_target_read_changes(&operation->row, &operation->column, call->changes_json, call->reader, &call->changes);
		call->has_changes = call->changes.given != NULL;
	}
}

/*
 * See idem_target_move(); `from` is NULL where the row is held.
 */
bool
idem_transition_move(TransitionCall *call, const char *from, const char *to, Snapshot snapshot, TargetRecheck recheck, char **stored)
{
	TargetMove	way = {
		.column = &call->operation.column,
		.from = from,
		.to = idem_target_state_value(&call->operation.column, to),
		.changes = call->has_changes ? &call->changes : NULL
	};

	return idem_target_move(&call->operation.row, &way, snapshot, recheck, call, stored);
}

/*
 * The row is held, and in this state: where it may move, moves it.  Raises ID009 if
 * it was not updated all the same.
 */
Verdict
idem_transition_move_held(TransitionCall *call, char *state, char **stored)
{
	const char *to;
	Verdict		verdict = idem_transition_rule_judge(&call->rule, state, &to);

	if (verdict == IDEM_MAY_MOVE && !idem_transition_move(call, NULL, to, InvalidSnapshot, NULL, stored))
		raise_row_suppressed(call);
	return verdict;
}

/*
 * Returns a state as idem_target_lock() reads it, or NULL.
 */
char *
idem_transition_state_of_value(Datum value)
{
	return value == (Datum) 0 ? NULL : TextDatumGetCString(value);
}

/* ---------- the result ---------- */

/*
 * Returns (outcome, previous_state, state[, changed_at]), as the function declares it.
 */
HeapTuple
idem_transition_form_answer(const TransitionCall *call, FunctionCallInfo fcinfo)
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
