/*
 * accumulate.c - add to a column of one row, once per operation id
 *
 * The protocol is row_operation.c's.  Here is what the effect is: one UPDATE that
 * adds within limits, or, where a row is missing and may be created, one INSERT.
 */
#include "postgres.h"

#include "arguments.h"
#include "canonical_json.h"
#include "compat.h"
#include "errors.h"
#include "operation_log.h"
#include "row_operation.h"
#include "target.h"

#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "funcapi.h"
#include "utils/builtins.h"
#include "utils/rel.h"
#include "utils/timestamp.h"

typedef enum Argument
{
	ARG_TARGET,
	ARG_KEY,
	ARG_COLUMN_NAME,
	ARG_DELTA,
	ARG_OPERATION_ID,
	ARG_MINIMUM,
	ARG_MAXIMUM,
	ARG_CREATE_MISSING,
	ARG_ON_REJECT,
	ARG_SCOPE,
	ARG_TTL,
	ARG_WAIT,
	ARG_LOG
} Argument;

/* the fields of the request, in ascending order of their names */
enum
{
	FIELD_COLUMN_NAME,
	FIELD_DELTA,
	FIELD_KEY,
	FIELD_MAXIMUM,
	FIELD_MINIMUM,
	NFIELDS
};

typedef struct Call
{
	RowOperation operation;		/* comes first */
	JsonbPair	fields[NFIELDS];	/* of the request */
	Numeric		delta;
	Numeric		minimum;		/* or NULL */
	Numeric		maximum;		/* or NULL */
	bool		create_missing;

	/* the answer */
	Outcome		outcome;
	Numeric		value;			/* or NULL */
	TimestampTz applied_at;
	bool		has_applied_at;
} Call;

/* how often a row may be found missing and yet not be created, before it is someone's fault */
#define MAX_CREATE_ROUNDS 3

/* ---------- the request ---------- */

static void
require_finite(Numeric number, const char *name)
{
	if (number != NULL && (numeric_is_nan(number) || numeric_is_inf(number)))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("argument \"%s\" must be a finite number", name),
				 errhint("Pass a number other than NaN and infinity.")));
}

static int
compare_numeric(Numeric a, Numeric b)
{
	return DatumGetInt32(DirectFunctionCall2(numeric_cmp, NumericGetDatum(a), NumericGetDatum(b)));
}

static void
set_field(Call *call, int field, const char *name)
{
	JsonbValue *key = &call->fields[field].key;

	key->type = jbvString;
	key->val.string.val = (char *) name;
	key->val.string.len = strlen(name);
}

static void
set_number_field(Call *call, int field, const char *name, Numeric number)
{
	set_field(call, field, name);
	if (number != NULL)
		idem_canonical_json_from_numeric(number, &call->fields[field].value);
	else
		call->fields[field].value.type = jbvNull;
}

/* What the operation is asked to do; how to answer (on_reject, wait, ttl) is not part of it. */
static void
build_request(Call *call)
{
	JsonbValue *column = &call->fields[FIELD_COLUMN_NAME].value;

	set_field(call, FIELD_COLUMN_NAME, "column_name");
	column->type = jbvString;
	column->val.string.val = (char *) call->operation.column_name;
	column->val.string.len = strlen(call->operation.column_name);
	set_number_field(call, FIELD_DELTA, "delta", call->delta);
	set_field(call, FIELD_KEY, "key");
	call->fields[FIELD_KEY].value = call->operation.row.json;
	set_number_field(call, FIELD_MAXIMUM, "maximum", call->maximum);
	set_number_field(call, FIELD_MINIMUM, "minimum", call->minimum);
	idem_row_operation_set_request(&call->operation, call->fields, NFIELDS);
}

/* ---------- arguments ---------- */

static void
read_limits(Call *call, FunctionCallInfo fcinfo)
{
	call->delta = PG_GETARG_NUMERIC(ARG_DELTA);
	call->minimum = PG_ARGISNULL(ARG_MINIMUM) ? NULL : PG_GETARG_NUMERIC(ARG_MINIMUM);
	call->maximum = PG_ARGISNULL(ARG_MAXIMUM) ? NULL : PG_GETARG_NUMERIC(ARG_MAXIMUM);
	require_finite(call->delta, "delta");
	require_finite(call->minimum, "minimum");
	require_finite(call->maximum, "maximum");
	if (call->minimum != NULL && call->maximum != NULL && compare_numeric(call->minimum, call->maximum) > 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("minimum must not be greater than maximum"),
				 errhint("Pass a minimum that is at most the maximum.")));
}

static void
read_options(Call *call, FunctionCallInfo fcinfo)
{
	call->create_missing = PG_GETARG_BOOL(ARG_CREATE_MISSING);
	call->operation.on_reject = idem_arguments_on_reject(IDEM_TEXT_OR_NULL(ARG_ON_REJECT));
	call->operation.wait = idem_arguments_wait(IDEM_INTERVAL_OR_NULL(ARG_WAIT));
	call->operation.logged.ttl = IDEM_INTERVAL_OR_NULL(ARG_TTL);
	idem_arguments_check_ttl(call->operation.logged.ttl);
}

/* Reads and checks everything that the log need not be asked for. */
static void
read_arguments(RowOperation *operation, FunctionCallInfo fcinfo, LOCKMODE lockmode)
{
	Call	   *call = (Call *) operation;

	operation->logged.operation_id = IDEM_TEXT_OR_NULL(ARG_OPERATION_ID);
	idem_arguments_check_operation_id(operation->logged.operation_id);
	idem_arguments_require(fcinfo, ARG_TARGET, "target");
	idem_arguments_require(fcinfo, ARG_KEY, "key");
	idem_arguments_require(fcinfo, ARG_COLUMN_NAME, "column_name");
	idem_arguments_require(fcinfo, ARG_DELTA, "delta");
	idem_arguments_require(fcinfo, ARG_CREATE_MISSING, "create_missing");
	idem_arguments_require(fcinfo, ARG_LOG, "log");
	operation->column_name = NameStr(*PG_GETARG_NAME(ARG_COLUMN_NAME));
	read_limits(call, fcinfo);
	read_options(call, fcinfo);

	idem_row_operation_open(operation, PG_GETARG_OID(ARG_TARGET), PG_GETARG_DATUM(ARG_KEY),
							get_fn_expr_argtype(fcinfo->flinfo, ARG_KEY), IDEM_TEXT_OR_NULL(ARG_SCOPE),
							PG_GETARG_OID(ARG_LOG), lockmode);
	build_request(call);
}

/* ---------- answers ---------- */

static char *
number_text(Numeric number)
{
	return number == NULL ? "none" : DatumGetCString(DirectFunctionCall1(numeric_out, NumericGetDatum(number)));
}

/*
 * `value` is the column as it stood.  The caller reads it by this very call, so it
 * may be shown.
 */
static void
raise_limit_exceeded(const Call *call, Numeric value, const char *what, const char *hint)
{
	ereport(ERROR,
			(errcode(IDEM_LIMIT_EXCEEDED),
			 errmsg("operation \"%s\" %s the limits of column \"%s\"",
					text_to_cstring(call->operation.logged.operation_id), what, call->operation.column_name),
			 errdetail("The value was %s, the delta %s, the minimum %s, the maximum %s.", number_text(value),
					   number_text(call->delta), number_text(call->minimum), number_text(call->maximum)),
			 errhint("%s", hint)));
}

#define HINT_ON_REJECT "Pass on_reject => 'return' or 'record' to get the outcome \"rejected\" in place of an error."

static void
answer(Call *call, Outcome outcome, Numeric value, TimestampTz applied_at)
{
	call->outcome = outcome;
	call->value = value;
	call->applied_at = applied_at;
	call->has_applied_at = applied_at != 0;
}

static void
answer_logged(RowOperation *operation, const LogRow *row)
{
	Call	   *call = (Call *) operation;
	Outcome		outcome = idem_operation_log_outcome(row);
	Numeric		value = row->nulls[LOG_VALUE] ? NULL : DatumGetNumeric(row->values[LOG_VALUE]);
	bool		took_effect = outcome == IDEM_DUPLICATE && !row->nulls[LOG_COMPLETED_AT];

	if (outcome == IDEM_REJECTED && operation->on_reject == IDEM_REJECT_RAISE)
		raise_limit_exceeded(call, value, "was rejected by", HINT_ON_REJECT);
	answer(call, outcome, value, took_effect ? DatumGetTimestampTz(row->values[LOG_COMPLETED_AT]) : 0);
}

static void
answer_in_progress(RowOperation *operation)
{
	answer((Call *) operation, IDEM_IN_PROGRESS, NULL, 0);
}

static void
build_log_row(const Call *call, const char *state, Numeric value, LogRow *row)
{
	idem_row_operation_init_log_row(&call->operation, state, row);
	idem_log_row_set(row, LOG_DELTA, NumericGetDatum(call->delta));
	if (value != NULL)
		idem_log_row_set(row, LOG_VALUE, NumericGetDatum(value));
}

/* Makes the rejection stick.  Returns false if the call is answered. */
static bool
record_rejection(Call *call, Numeric value)
{
	LogRow		row;

	build_log_row(call, IDEM_STATE_REJECTED, value, &row);
	return idem_row_operation_try_record(&call->operation, &row);
}

/* A rule said no: nothing has changed. */
static void
reject(Call *call, Numeric value)
{
	if (call->operation.on_reject == IDEM_REJECT_RAISE)
		raise_limit_exceeded(call, value, "would leave", HINT_ON_REJECT);
	if (call->operation.on_reject == IDEM_REJECT_RETURN || record_rejection(call, value))
		answer(call, IDEM_REJECTED, value, 0);
}

static bool
within_limits(const Call *call, Numeric value)
{
	return (call->minimum == NULL || compare_numeric(value, call->minimum) >= 0) &&
		(call->maximum == NULL || compare_numeric(value, call->maximum) <= 0);
}

static void
check_countable(const Call *call, Numeric value)
{
	if (value == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("column \"%s\" of the row is NULL", call->operation.column_name),
				 errhint("Set it to 0, and declare the column NOT NULL DEFAULT 0.")));
	if (numeric_is_nan(value) || numeric_is_inf(value))
		ereport(ERROR,
				(errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
				 errmsg("column \"%s\" of the row is not a finite number", call->operation.column_name),
				 errhint("Correct the row, and forbid NaN and infinity with a CHECK constraint.")));
}

/*
 * The effect is made: log it and answer.  A trigger on the target may have
 * stored something else than the sum; then the limits hold for that too.
 */
static void
applied(Call *call, Numeric value)
{
	LogRow		row;

	check_countable(call, value);
	if (!within_limits(call, value))
		raise_limit_exceeded(call, value, "was made by a trigger to leave", "Change the trigger, or the limits.");
	build_log_row(call, IDEM_STATE_DONE, value, &row);
	idem_operation_log_record(&call->operation.logged, &row);
	answer(call, IDEM_APPLIED, value, DatumGetTimestampTz(row.values[LOG_COMPLETED_AT]));
}

/* ---------- the effect ---------- */

static bool
apply_guarded(RowOperation *operation, Snapshot snapshot)
{
	Call	   *call = (Call *) operation;
	Numeric		value;

	if (!idem_target_add(&operation->row, &operation->column, call->delta, call->minimum, call->maximum,
						 snapshot, idem_row_operation_still_absent, operation, &value))
		return false;
	applied(call, value);
	return true;
}

static void
raise_row_missing(const Call *call)
{
	ereport(ERROR,
			(errcode(IDEM_TARGET_ROW_MISSING),
			 errmsg("table \"%s\" has no row with the key given", RelationGetRelationName(call->operation.target.relation)),
			 errhint("Insert the row first, or pass create_missing => true.")));
}

static void
raise_row_suppressed(const Call *call, const char *what)
{
	ereport(ERROR,
			(errcode(IDEM_ROW_SUPPRESSED),
			 errmsg("the row of table \"%s\" was not %s", RelationGetRelationName(call->operation.target.relation), what),
			 errdetail("A BEFORE trigger or row security kept it from being stored."),
			 errhint("Change the trigger or the policy, or name another row.")));
}

/*
 * There is no row: make one that counts from zero.  Returns false if somebody
 * else was first, or seems to have been.
 */
static bool
create_row(Call *call, bool last_round)
{
	Numeric		zero = int64_to_numeric(0);
	Numeric		value;

	if (!within_limits(call, call->delta))
	{
		reject(call, zero);
		return true;
	}
	/* in the last round what keeps the row out is told as it is */
	if (last_round && idem_target_exists_for_owner(&call->operation.row))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("table \"%s\" has a row with the key given that row security hides or protects",
						RelationGetRelationName(call->operation.target.relation)),
				 errhint("Name another row, or change the policy.")));
	if (idem_target_insert(&call->operation.row, &call->operation.column, call->delta, last_round, &value))
	{
		applied(call, value);
		return true;
	}
	if (last_round)
		raise_row_suppressed(call, "created");
	return false;
}

static bool
apply_without_row(RowOperation *operation, int round)
{
	Call	   *call = (Call *) operation;

	if (!call->create_missing)
		raise_row_missing(call);
	return create_row(call, round == MAX_CREATE_ROUNDS);
}

/* The row is held and the operation is not logged: judge, then update. */
static void
apply_holding(RowOperation *operation, Datum column)
{
	Call	   *call = (Call *) operation;
	Numeric		value = column == (Datum) 0 ? NULL : DatumGetNumeric(column);
	Numeric		sum;

	check_countable(call, value);
	sum = DatumGetNumeric(DirectFunctionCall2(numeric_add, NumericGetDatum(value), NumericGetDatum(call->delta)));
	if (!within_limits(call, sum))
	{
		reject(call, value);
		return;
	}
	if (!idem_target_add(&operation->row, &operation->column, call->delta, NULL, NULL, InvalidSnapshot, NULL, NULL, &value))
		raise_row_suppressed(call, "updated");
	applied(call, value);
}

/* ---------- the call ---------- */

/*
 * Raises 22003 if the column would not keep the delta as it is.  Not earlier
 * than here: the column may have changed since the operation was done, and its
 * retry is a duplicate all the same.
 */
static void
check_delta_fits(const Call *call)
{
	const TargetColumn *column = &call->operation.column;
	int			scale;
	Datum		rounded;

	if (column->base_type != NUMERICOID)
		scale = 0;
	else if (column->typmod >= (int32) VARHDRSZ)
		scale = IDEM_NUMERIC_TYPMOD_SCALE(column->typmod);
	else
		return;

	rounded = DirectFunctionCall2(numeric_round, NumericGetDatum(call->delta), Int32GetDatum(scale));
	if (compare_numeric(DatumGetNumeric(rounded), call->delta) != 0)
		ereport(ERROR,
				(errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
				 errmsg("delta %s would be rounded in column \"%s\" of type %s", number_text(call->delta),
						column->name, format_type_with_typemod(column->base_type, column->typmod)),
				 errhint("Round the delta where it is made, so that all copies of the request agree.")));
}

static void
prepare(RowOperation *operation, Snapshot snapshot)
{
	idem_target_read_column(&operation->row, operation->column_name, &operation->column);
	check_delta_fits((Call *) operation);
}

static HeapTuple
form_answer(const Call *call, FunctionCallInfo fcinfo)
{
	TupleDesc	desc;
	Datum		values[3];
	bool		nulls[3] = {false, call->value == NULL, !call->has_applied_at};

	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");	/* its declaration says so */
	values[0] = CStringGetTextDatum(idem_outcome_name(call->outcome));
	values[1] = NumericGetDatum(call->value);
	values[2] = TimestampTzGetDatum(call->applied_at);
	return heap_form_tuple(BlessTupleDesc(desc), values, nulls);
}

IDEM_SQL_FUNCTION(idempotency_accumulate);

/*
 * accumulate(target, key, column_name, delta, operation_id, ...): see docs/reference.md
 */
Datum
idempotency_accumulate(PG_FUNCTION_ARGS)
{
	static const RowOperationSteps steps = {
		.function_name = "accumulate()",
		.size = sizeof(Call),
		.read_arguments = read_arguments,
		.answer_logged = answer_logged,
		.answer_in_progress = answer_in_progress,
		.prepare = prepare,
		.apply_guarded = apply_guarded,
		.apply_holding = apply_holding,
		.apply_without_row = apply_without_row
	};
	MemoryContext caller_context = CurrentMemoryContext;
	Call	   *call;
	HeapTuple	result;

	SPI_connect();
	call = (Call *) idem_row_operation_call(&steps, fcinfo);

	MemoryContextSwitchTo(caller_context);
	result = form_answer(call, fcinfo);
	SPI_finish();
	PG_RETURN_DATUM(HeapTupleGetDatum(result));
}
