/*
 * accumulate.c - add to a column of one row, once per operation id
 *
 * The usual call takes the short way: look at the log, one guarded UPDATE, one
 * log row.  The UPDATE's row lock is what excludes a twin, since a twin updates
 * the same row; and the UPDATE is made by the snapshot that the log was looked
 * at by, so that it notices if a twin came between (target.c).
 *
 * If that UPDATE changes nothing, or if the wait for a twin is limited, the call
 * goes the long way: take the row's lock, look again, find out what is the case,
 * then update.  Every answer but `applied` and `duplicate` comes from there.  The
 * row is locked even where only a rejection is recorded, so that a twin looking
 * under the same lock sees it.
 */
#include "postgres.h"

#include "arguments.h"
#include "canonical_json.h"
#include "compat.h"
#include "errors.h"
#include "hold.h"
#include "operation_log.h"
#include "request_digest.h"
#include "target.h"

#include "access/xact.h"
#include "executor/spi.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/snapmgr.h"
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

typedef struct Request
{
	JsonbPair	fields[NFIELDS];
	JsonbValue	json;			/* the object of these fields */
} Request;

typedef struct Call
{
	Operation	operation;
	Request		request;
	Target		target;
	TargetRow	row;
	TargetColumn column;
	const char *column_name;
	Numeric		delta;
	Numeric		minimum;		/* or NULL */
	Numeric		maximum;		/* or NULL */
	bool		create_missing;
	OnReject	on_reject;
	int64		wait;

	/* the guarded update found the operation logged */
	bool		raced;
	LogRow		logged;

	/* the answer */
	Outcome		outcome;
	Numeric		value;			/* or NULL */
	TimestampTz applied_at;
	bool		has_applied_at;
} Call;

/* how often a row may be found missing and yet not be created, before it is someone's fault */
#define MAX_CREATE_ROUNDS 3

/* how often a row may be found and yet not be locked although nobody has it */
#define MAX_LOCK_ROUNDS 10

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
set_field(Request *request, int field, const char *name)
{
	JsonbValue *key = &request->fields[field].key;

	key->type = jbvString;
	key->val.string.val = (char *) name;
	key->val.string.len = strlen(name);
}

static void
set_number_field(Request *request, int field, const char *name, Numeric number)
{
	set_field(request, field, name);
	if (number != NULL)
		idem_canonical_json_from_numeric(number, &request->fields[field].value);
	else
		request->fields[field].value.type = jbvNull;
}

/* What the operation is asked to do; how to answer (on_reject, wait, ttl) is not part of it. */
static void
build_request(Call *call)
{
	Request    *request = &call->request;
	JsonbValue *column = &request->fields[FIELD_COLUMN_NAME].value;

	set_field(request, FIELD_COLUMN_NAME, "column_name");
	column->type = jbvString;
	column->val.string.val = (char *) call->column_name;
	column->val.string.len = strlen(call->column_name);
	set_number_field(request, FIELD_DELTA, "delta", call->delta);
	set_field(request, FIELD_KEY, "key");
	request->fields[FIELD_KEY].value = call->row.json;
	set_number_field(request, FIELD_MAXIMUM, "maximum", call->maximum);
	set_number_field(request, FIELD_MINIMUM, "minimum", call->minimum);

	request->json.type = jbvObject;
	request->json.val.object.nPairs = NFIELDS;
	request->json.val.object.pairs = request->fields;
}

/*
 * The request with the key as it was logged, if SQL calls that key equal to this
 * one's: 'ABC' and 'abc' are one key in a citext column.
 */
static const JsonbValue *
equal_request(const Operation *operation, const LogRow *logged)
{
	const Call *call = operation->caller;
	Request    *request;
	TargetRow	logged_row;

	if (logged->nulls[LOG_TARGET_KEY] ||
		!idem_target_read_logged_key(&call->row, DatumGetJsonbP(logged->values[LOG_TARGET_KEY]), &logged_row) ||
		!idem_target_same_key(&call->row, &logged_row))
		return NULL;

	request = palloc(sizeof(Request));
	*request = call->request;
	request->fields[FIELD_KEY].value = logged_row.json;
	request->json.val.object.pairs = request->fields;
	return &request->json;
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
	call->on_reject = idem_arguments_on_reject(IDEM_TEXT_OR_NULL(ARG_ON_REJECT));
	call->wait = idem_arguments_wait(IDEM_INTERVAL_OR_NULL(ARG_WAIT));
	call->operation.ttl = IDEM_INTERVAL_OR_NULL(ARG_TTL);
	idem_arguments_check_ttl(call->operation.ttl);
}

/*
 * Reads and checks everything that the log need not be asked for, opens the
 * target, and finds out which row is meant.
 */
static void
read_arguments(Call *call, FunctionCallInfo fcinfo, LOCKMODE lockmode)
{
	Operation  *operation = &call->operation;

	operation->operation_id = IDEM_TEXT_OR_NULL(ARG_OPERATION_ID);
	idem_arguments_check_operation_id(operation->operation_id);
	idem_arguments_require(fcinfo, ARG_TARGET, "target");
	idem_arguments_require(fcinfo, ARG_KEY, "key");
	idem_arguments_require(fcinfo, ARG_COLUMN_NAME, "column_name");
	idem_arguments_require(fcinfo, ARG_DELTA, "delta");
	idem_arguments_require(fcinfo, ARG_CREATE_MISSING, "create_missing");
	idem_arguments_require(fcinfo, ARG_LOG, "log");
	call->column_name = NameStr(*PG_GETARG_NAME(ARG_COLUMN_NAME));
	read_limits(call, fcinfo);
	read_options(call, fcinfo);

	operation->target = PG_GETARG_OID(ARG_TARGET);
	idem_target_open(&call->target, operation->target, lockmode);
	idem_target_read_key(&call->target, PG_GETARG_DATUM(ARG_KEY),
						 get_fn_expr_argtype(fcinfo->flinfo, ARG_KEY), &call->row);

	operation->scope = PG_ARGISNULL(ARG_SCOPE) ?
		cstring_to_text(idem_target_scope(&call->target, call->column_name)) : PG_GETARG_TEXT_PP(ARG_SCOPE);
	idem_arguments_check_scope(operation->scope);
	idem_operation_log_open(operation, PG_GETARG_OID(ARG_LOG), lockmode);

	build_request(call);
	operation->request = &call->request.json;
	operation->request_digest = idem_request_digest(operation->request);
	operation->equal_request = equal_request;
	operation->caller = call;
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
					text_to_cstring(call->operation.operation_id), what, call->column_name),
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

/*
 * Answers with what the log has.  Raises ID001 if that is another request's.
 */
static void
answer_from_log(Call *call, const LogRow *row)
{
	Outcome		outcome = idem_operation_log_outcome(row);
	Numeric		value = row->nulls[LOG_VALUE] ? NULL : DatumGetNumeric(row->values[LOG_VALUE]);
	bool		took_effect = outcome == IDEM_DUPLICATE && !row->nulls[LOG_COMPLETED_AT];

	idem_operation_log_check_request(&call->operation, row);
	if (outcome == IDEM_REJECTED && call->on_reject == IDEM_REJECT_RAISE)
		raise_limit_exceeded(call, value, "was rejected by", HINT_ON_REJECT);
	answer(call, outcome, value, took_effect ? DatumGetTimestampTz(row->values[LOG_COMPLETED_AT]) : 0);
}

static void
build_log_row(const Call *call, const char *state, TimestampTz now, Numeric value, LogRow *row)
{
	idem_log_row_init(row, state, now);
	idem_log_row_set(row, LOG_TARGET_KEY, JsonbPGetDatum(idem_canonical_json_to_jsonb(&call->row.json)));
	idem_log_row_set(row, LOG_COLUMN_NAME, CStringGetTextDatum(call->column_name));
	idem_log_row_set(row, LOG_DELTA, NumericGetDatum(call->delta));
	if (value != NULL)
		idem_log_row_set(row, LOG_VALUE, NumericGetDatum(value));
}

/*
 * Makes the rejection stick.  Nothing has changed yet, so if a twin was first
 * its answer is the answer.  (Where there is no row to hold, two twins can come
 * here at once.)  Returns whether it was recorded; if not, the call is answered.
 */
static bool
record_rejection(Call *call, Numeric value)
{
	LogRow		row;

	build_log_row(call, IDEM_STATE_REJECTED, GetCurrentTimestamp(), value, &row);
	if (idem_operation_log_try_record(&call->operation, &row))
		return true;
	if (!idem_operation_log_find_newer(&call->operation, &row))
		idem_operation_log_raise_not_recorded(&call->operation);
	answer_from_log(call, &row);
	return false;
}

/* A rule said no: nothing has changed. */
static void
reject(Call *call, Numeric value)
{
	if (call->on_reject == IDEM_REJECT_RAISE)
		raise_limit_exceeded(call, value, "would leave", HINT_ON_REJECT);
	if (call->on_reject == IDEM_REJECT_RETURN || record_rejection(call, value))
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
				 errmsg("column \"%s\" of the row is NULL", call->column_name),
				 errhint("Set it to 0, and declare the column NOT NULL DEFAULT 0.")));
	if (numeric_is_nan(value) || numeric_is_inf(value))
		ereport(ERROR,
				(errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
				 errmsg("column \"%s\" of the row is not a finite number", call->column_name),
				 errhint("Correct the row, and forbid NaN and infinity with a CHECK constraint.")));
}

/*
 * The effect is made: log it and answer.  A trigger on the target may have
 * stored something else than the sum; then the limits hold for that too.
 */
static void
applied(Call *call, Numeric value)
{
	TimestampTz now = GetCurrentTimestamp();	/* after the row was held, G5 */
	LogRow		row;

	check_countable(call, value);
	if (!within_limits(call, value))
		raise_limit_exceeded(call, value, "was made by a trigger to leave", "Change the trigger, or the limits.");
	build_log_row(call, IDEM_STATE_DONE, now, value, &row);
	idem_operation_log_record(&call->operation, &row);
	answer(call, IDEM_APPLIED, value, now);
}

/* ---------- the short way ---------- */

/*
 * The row has changed since the log was looked at, and is held now: look again,
 * by the newest snapshot.
 */
static bool
still_absent(void *argument)
{
	Call	   *call = argument;
	MemoryContext context = GetMemoryChunkContext(call);
	MemoryContext before = CurrentMemoryContext;

	SPI_connect();
	MemoryContextSwitchTo(context);
	call->raced = idem_operation_log_find_newer(&call->operation, &call->logged);
	MemoryContextSwitchTo(before);
	SPI_finish();
	return !call->raced;
}

/*
 * Returns whether it came to an answer.  If not, nothing has changed.
 */
static bool
apply_guarded(Call *call, Snapshot snapshot)
{
	Numeric		value;

	if (idem_target_add(&call->row, &call->column, call->delta, call->minimum, call->maximum,
						snapshot, still_absent, call, &value))
	{
		applied(call, value);
		return true;
	}
	if (call->raced)
		answer_from_log(call, &call->logged);
	return call->raced;
}

/* ---------- the long way ---------- */

static void
raise_row_missing(const Call *call)
{
	ereport(ERROR,
			(errcode(IDEM_TARGET_ROW_MISSING),
			 errmsg("table \"%s\" has no row with the key given", RelationGetRelationName(call->target.relation)),
			 errhint("Insert the row first, or pass create_missing => true.")));
}

static void
raise_row_suppressed(const Call *call, const char *what)
{
	ereport(ERROR,
			(errcode(IDEM_ROW_SUPPRESSED),
			 errmsg("the row of table \"%s\" was not %s", RelationGetRelationName(call->target.relation), what),
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
	if (last_round && idem_target_exists_for_owner(&call->row))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("table \"%s\" has a row with the key given that row security hides or protects",
						RelationGetRelationName(call->target.relation)),
				 errhint("Name another row, or change the policy.")));
	if (idem_target_insert(&call->row, &call->column, call->delta, last_round, &value))
	{
		applied(call, value);
		return true;
	}
	if (last_round)
		raise_row_suppressed(call, "created");
	return false;
}

/* The row is held and the operation is not logged: judge, then update. */
static void
apply_holding(Call *call, Numeric value)
{
	Numeric		sum;

	check_countable(call, value);
	sum = DatumGetNumeric(DirectFunctionCall2(numeric_add, NumericGetDatum(value), NumericGetDatum(call->delta)));
	if (!within_limits(call, sum))
	{
		reject(call, value);
		return;
	}
	if (!idem_target_add(&call->row, &call->column, call->delta, NULL, NULL, InvalidSnapshot, NULL, NULL, &value))
		raise_row_suppressed(call, "updated");
	applied(call, value);
}

/*
 * Each turn ends the call, or has waited for a transaction that has ended, or is
 * one of a few: in which a missing row could not be created, or in which a row
 * that is there could not be locked and nobody had it.  The latter is a row that
 * was replaced while it was waited for; or one that row security shows and does
 * not let be updated, which for an UPDATE is none.
 */
static void
apply_after_hold(Call *call)
{
	Hold		request = {&call->operation, &call->row, &call->column, call->wait};
	int			create_rounds = 0;
	int			lock_rounds = 0;

	for (;;)
	{
		Numeric		value;
		LogRow		logged;
		HoldResult	hold = idem_hold_row(&request, &value);

		CHECK_FOR_INTERRUPTS();
		if (hold == IDEM_HOLD_NOBODY && ++lock_rounds == MAX_LOCK_ROUNDS)
			hold = idem_target_lock(&call->row, &call->column, true, &value) == IDEM_ROW_LOCKED ? IDEM_HOLD_ROW : IDEM_HOLD_NO_ROW;
		if (hold == IDEM_HOLD_GAVE_UP)
		{
			answer(call, IDEM_IN_PROGRESS, NULL, 0);
			return;
		}
		if (idem_operation_log_find_newer(&call->operation, &logged))
		{
			answer_from_log(call, &logged);
			return;
		}
		if (hold == IDEM_HOLD_ROW)
		{
			apply_holding(call, value);
			return;
		}
		if (hold == IDEM_HOLD_NO_ROW)
		{
			if (!call->create_missing)
				raise_row_missing(call);
			if (create_row(call, ++create_rounds == MAX_CREATE_ROUNDS))
				return;
		}
	}
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
	const TargetColumn *column = &call->column;
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

/*
 * Locks target and log as the UPDATE and the INSERT will, if that needs no waiting
 * and both are as they were when the log was looked at.
 */
static bool
try_lock(const Call *call)
{
	return idem_target_try_lock(&call->target) && idem_operation_log_try_lock(&call->operation);
}

/*
 * Returns false if the call must start over with the lock mode of a writer.
 */
static bool
accumulate(Call *call, LOCKMODE lockmode)
{
	Snapshot	snapshot = RegisterSnapshot(GetTransactionSnapshot());
	LogRow		logged;
	bool		answered;

	if (idem_operation_log_find(&call->operation, snapshot, &logged))
	{
		UnregisterSnapshot(snapshot);
		answer_from_log(call, &logged);
		return true;
	}

	PreventCommandIfReadOnly("accumulate()");
	if (lockmode < RowExclusiveLock && !try_lock(call))
	{
		UnregisterSnapshot(snapshot);
		return false;
	}
	idem_target_check_writable(&call->target);
	idem_target_read_column(&call->row, call->column_name, &call->column);
	check_delta_fits(call);

	answered = call->wait == IDEM_WAIT_UNLIMITED && apply_guarded(call, snapshot);
	UnregisterSnapshot(snapshot);
	if (!answered)
		apply_after_hold(call);
	return true;
}

/*
 * One try, with target and log opened under these locks.  Under ACCESS SHARE a
 * duplicate waits for nobody, and gives the lock back.  See accumulate() for what
 * it returns.
 */
static bool
try_call(Call *call, FunctionCallInfo fcinfo, LOCKMODE lockmode)
{
	LOCKMODE	given_back = lockmode == AccessShareLock ? AccessShareLock : NoLock;
	volatile bool answered = false;

	memset(call, 0, sizeof(Call));
	read_arguments(call, fcinfo, lockmode);

	idem_operation_log_begin(&call->operation);
	PG_TRY();
	{
		answered = accumulate(call, lockmode);
	}
	PG_FINALLY();
	{
		idem_operation_log_end(&call->operation);
	}
	PG_END_TRY();

	idem_operation_log_close(&call->operation, given_back);
	idem_target_close(&call->target, given_back);
	return answered;
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
	MemoryContext caller_context = CurrentMemoryContext;
	Call	   *call;
	HeapTuple	result;

	SPI_connect();
	call = palloc(sizeof(Call));
	if (!try_call(call, fcinfo, AccessShareLock))
		(void) try_call(call, fcinfo, RowExclusiveLock);

	MemoryContextSwitchTo(caller_context);
	result = form_answer(call, fcinfo);
	SPI_finish();
	PG_RETURN_DATUM(HeapTupleGetDatum(result));
}
