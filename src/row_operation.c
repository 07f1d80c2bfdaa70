/*
 * row_operation.c - one call of an operation on one row: the log's protocol, step by step
 *
 * The usual call takes the short way: look at the log, one guarded UPDATE, one
 * log row.  The UPDATE's row lock is what excludes a twin, since a twin updates
 * the same row; and the UPDATE is made by the snapshot that the log was looked
 * at by, so that it notices if a twin came between (target_row.c).
 *
 * If that UPDATE changes nothing, or if the wait for a twin or for the row is
 * limited, the call goes the long way: take the row's lock, look again, find out
 * what is the case, then update.  Every answer but `applied` and `duplicate` comes
 * from there.  The row is locked even where only a rejection is recorded, so that a
 * twin looking under the same lock sees it.
 *
 * What the effect is, and how it is answered, is the concept's: see RowOperationSteps.
 */
#include "postgres.h"

#include "canonical_json.h"
#include "hold.h"
#include "request_digest.h"
#include "row_operation.h"

#include "executor/spi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

/* how often a row may be found and yet not be locked although nobody has it */
#define MAX_LOCK_ROUNDS 10

/* ---------- the request ---------- */

/*
 * The request with the key as it was logged, if SQL calls that key equal to this
 * one's: 'ABC' and 'abc' are one key in a citext column.
 */
static const JsonbValue *
equal_request(const Operation *logged, const LogRow *row)
{
	const RowOperation *operation = logged->caller;
	const JsonbValue *own = &operation->request;
	TargetRow	logged_row;
	JsonbValue *request;

	if (row->nulls[LOG_TARGET_KEY] ||
		!idem_target_read_logged_key(&operation->row, DatumGetJsonbP(row->values[LOG_TARGET_KEY]), &logged_row) ||
		!idem_target_same_key(&operation->row, &logged_row))
		return NULL;

	request = palloc(sizeof(JsonbValue));
	*request = *own;
	request->val.object.pairs = palloc(sizeof(JsonbPair) * own->val.object.nPairs);
	for (int i = 0; i < own->val.object.nPairs; i++)
	{
		JsonbPair  *pair = &request->val.object.pairs[i];

		*pair = own->val.object.pairs[i];
		if (pair->key.val.string.len == strlen("key") && memcmp(pair->key.val.string.val, "key", strlen("key")) == 0)
			pair->value = logged_row.json;
	}
	return request;
}

/*
 * Says what the operation is asked to do: how to answer is not part of it.  The
 * fields are in the order of their names, one of them is "key".
 */
void
idem_row_operation_set_request(RowOperation *operation, JsonbPair *fields, int nfields)
{
	operation->request.type = jbvObject;
	operation->request.val.object.nPairs = nfields;
	operation->request.val.object.pairs = fields;

	operation->logged.request = &operation->request;
	operation->logged.request_digest = idem_request_digest(&operation->request);
	operation->logged.equal_request = equal_request;
	operation->logged.caller = operation;
}

/*
 * Opens the target and the log, and finds out which row is meant.  The operation's
 * id, ttl and column have been read.  A scope of NULL is that of the column.
 */
void
idem_row_operation_open(RowOperation *operation, Oid target, Datum key, Oid key_type,
						text *scope, Oid log, LOCKMODE lockmode)
{
	Operation  *logged = &operation->logged;

	logged->target = target;
	idem_target_open(&operation->target, target, lockmode);
	idem_target_read_key(&operation->target, key, key_type, &operation->row);
	logged->scope = scope != NULL ? scope :
		cstring_to_text(idem_target_scope(&operation->target, operation->column_name));
	idem_arguments_check_scope(logged->scope);
	idem_operation_log_open(logged, log, lockmode);
}

/* ---------- the log ---------- */

/* Answers with what the log has.  Raises ID001 if that is another request's. */
static void
answer_logged(RowOperation *operation, const LogRow *row)
{
	idem_operation_log_check_request(&operation->logged, row);
	operation->steps->answer_logged(operation, row);
}

/*
 * Starts the operation's log row, complete now: the clock is read after the row was
 * held (G5).
 */
void
idem_row_operation_init_log_row(const RowOperation *operation, const char *state, LogRow *row)
{
	idem_log_row_init(row, state, GetCurrentTimestamp());
	idem_log_row_set(row, LOG_TARGET_KEY, JsonbPGetDatum(idem_canonical_json_to_jsonb(&operation->row.json)));
	idem_log_row_set(row, LOG_COLUMN_NAME, CStringGetTextDatum(operation->column_name));
}

/*
 * Records an operation that has had no effect.  If a twin was first its answer is
 * the answer.  (Where there is no row to hold, two twins can come here at once.)
 * Returns whether it was recorded; if not, the call is answered.
 */
bool
idem_row_operation_try_record(RowOperation *operation, LogRow *row)
{
	LogRow		other;

	if (idem_operation_log_try_record(&operation->logged, row))
		return true;
	if (!idem_operation_log_find_newer(&operation->logged, &other))
		idem_operation_log_raise_not_recorded(&operation->logged);
	answer_logged(operation, &other);
	return false;
}

/*
 * The recheck of a guarded update.  The row has changed since the log was looked
 * at, and is held now: look again, by the newest snapshot.
 */
bool
idem_row_operation_still_absent(void *argument)
{
	RowOperation *operation = argument;
	MemoryContext context = GetMemoryChunkContext(operation);
	MemoryContext before = CurrentMemoryContext;

	SPI_connect();
	MemoryContextSwitchTo(context);
	operation->raced = idem_operation_log_find_newer(&operation->logged, &operation->raced_row);
	MemoryContextSwitchTo(before);
	SPI_finish();
	return !operation->raced;
}

/* ---------- the short and the long way ---------- */

/* Returns whether it came to an answer.  If not, nothing has changed. */
static bool
apply_guarded(RowOperation *operation, Snapshot snapshot)
{
	if (operation->wait != IDEM_WAIT_UNLIMITED || operation->nowait)
		return false;
	if (operation->steps->apply_guarded(operation, snapshot))
		return true;
	if (operation->raced)
		answer_logged(operation, &operation->raced_row);
	return operation->raced;
}

/*
 * Each turn ends the call, or has waited for a transaction that has ended, or is
 * one of a few: in which a missing row could not be created, or in which a row
 * that is there could not be locked and nobody had it.  The latter is a row that
 * was replaced while it was waited for; or one that row security shows and does
 * not let be updated, which for an UPDATE is none.
 */
static void
apply_after_hold(RowOperation *operation)
{
	Hold		request = {&operation->logged, &operation->row, &operation->column, operation->wait, operation->nowait};
	int			rounds_without_row = 0;
	int			lock_rounds = 0;

	for (;;)
	{
		Datum		value;
		LogRow		row;
		HoldResult	hold = idem_hold_row(&request, &value);

		CHECK_FOR_INTERRUPTS();
		if (hold == IDEM_HOLD_NOBODY && ++lock_rounds == MAX_LOCK_ROUNDS)
			hold = idem_target_lock(&operation->row, &operation->column, IDEM_LOCK_WAIT, &value) == IDEM_ROW_LOCKED ?
				IDEM_HOLD_ROW : IDEM_HOLD_NO_ROW;
		if (hold == IDEM_HOLD_GAVE_UP)
		{
			operation->steps->answer_in_progress(operation);
			return;
		}
		if (idem_operation_log_find_newer(&operation->logged, &row))
		{
			answer_logged(operation, &row);
			return;
		}
		if (hold == IDEM_HOLD_ROW)
		{
			operation->steps->apply_holding(operation, value);
			return;
		}
		if (hold == IDEM_HOLD_NO_ROW && operation->steps->apply_without_row(operation, ++rounds_without_row))
			return;
	}
}

/* ---------- the call ---------- */

/*
 * Locks target and log as the UPDATE and the INSERT will, if that needs no waiting
 * and both are as they were when the log was looked at.
 */
static bool
try_lock(const RowOperation *operation)
{
	return idem_target_try_lock(&operation->target) && idem_operation_log_try_lock(&operation->logged);
}

/*
 * Returns false if the call must start over with the lock mode of a writer.
 */
static bool
answer(RowOperation *operation, LOCKMODE lockmode)
{
	Snapshot	snapshot = RegisterSnapshot(GetTransactionSnapshot());
	LogRow		row;
	bool		answered;

	if (idem_operation_log_find(&operation->logged, snapshot, &row))
	{
		UnregisterSnapshot(snapshot);
		answer_logged(operation, &row);
		return true;
	}

	PreventCommandIfReadOnly(operation->steps->function_name);
	if (lockmode < RowExclusiveLock && !try_lock(operation))
	{
		UnregisterSnapshot(snapshot);
		return false;
	}
	idem_target_check_writable(&operation->target);
	operation->steps->prepare(operation, snapshot);

	answered = apply_guarded(operation, snapshot);
	UnregisterSnapshot(snapshot);
	if (!answered)
		apply_after_hold(operation);
	return true;
}

/*
 * One try, with target and log opened under these locks.  Under ACCESS SHARE a
 * duplicate waits for nobody, and gives the lock back.  See answer() for what it
 * returns.
 */
static bool
try_call(RowOperation *operation, FunctionCallInfo fcinfo, LOCKMODE lockmode)
{
	LOCKMODE	given_back = lockmode == AccessShareLock ? AccessShareLock : NoLock;
	volatile bool answered = false;

	operation->steps->read_arguments(operation, fcinfo, lockmode);

	idem_operation_log_begin(&operation->logged);
	PG_TRY();
	{
		answered = answer(operation, lockmode);
	}
	PG_FINALLY();
	{
		idem_operation_log_end(&operation->logged);
	}
	PG_END_TRY();

	idem_operation_log_close(&operation->logged, given_back);
	idem_target_close(&operation->target, given_back);
	return answered;
}

/*
 * Answers a call; the caller is connected to SPI.  Returns the concept's own call,
 * which belongs to SPI's memory.
 */
RowOperation *
idem_row_operation_call(const RowOperationSteps *steps, FunctionCallInfo fcinfo)
{
	RowOperation *operation = palloc0(steps->size);

	operation->steps = steps;
	if (try_call(operation, fcinfo, AccessShareLock))
		return operation;
	memset(operation, 0, steps->size);
	operation->steps = steps;
	(void) try_call(operation, fcinfo, RowExclusiveLock);
	return operation;
}
