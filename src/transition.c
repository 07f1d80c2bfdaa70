/*
 * transition.c - take a row from one state to another, under its lock
 *
 * transition() and fire() have no operation id: that the row is in the state it was
 * to go to is what tells a duplicate.  The state is read by a snapshot first; what
 * is there already is answered from that, and nothing is locked.  Otherwise one
 * UPDATE, which says itself that the row must be in the state that was read, and so
 * changes nothing if it is not any more; then the row is locked and judged anew.
 *
 * fire() takes the states from the column's state diagram.
 */
#include "postgres.h"

#include "compat.h"
#include "transition.h"

#include "access/xact.h"
#include "executor/spi.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/snapmgr.h"

/* how often a row may be found and yet not be locked although nobody has it */
#define MAX_LOCK_ROUNDS 10

/*
 * The snapshot shows the row in the state that it would go to.  What READ COMMITTED
 * has just read is so.  Where a transaction reads by one snapshot, the row may have
 * gone on since, and whoever locked it would be told so: 40001.
 */
static void
answer_is_there(TransitionCall *call, Snapshot snapshot, char *state)
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
	idem_transition_answer(call, IDEM_DUPLICATE, NULL, state);
}

static void
answer_held(TransitionCall *call, char *state)
{
	char	   *stored;

	switch (idem_transition_move_held(call, state, &stored))
	{
		case IDEM_MAY_MOVE:
			idem_transition_answer(call, IDEM_APPLIED, state, stored);
			break;
		case IDEM_IS_THERE:
			idem_transition_answer(call, IDEM_DUPLICATE, NULL, state);
			break;
		case IDEM_MAY_NOT_MOVE:
			if (call->operation.on_reject == IDEM_REJECT_RAISE)
				idem_transition_raise_rejected(call, state, false);
			idem_transition_answer(call, IDEM_REJECTED, NULL, state);
			break;
	}
}

/* The long way: lock the row, then judge.  Raises 55P03 for one that somebody has, if that is not to be waited for. */
static void
answer_after_lock(TransitionCall *call)
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
				answer_held(call, idem_transition_state_of_value(value));
				return;
			case IDEM_ROW_BUSY: /* it was replaced while it was waited for; or may not be updated */
				if (round < MAX_LOCK_ROUNDS)
					break;
				/* FALLTHROUGH */
			case IDEM_ROW_MISSING:
				idem_transition_raise_row_missing(call);
		}
	}
}

/* Returns false if the call must start over with the lock mode of a writer. */
static bool
answer_by_state(TransitionCall *call, Snapshot snapshot, LOCKMODE lockmode)
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
	if (verdict == IDEM_MAY_MOVE && !operation->nowait && idem_transition_move(call, state, to, snapshot, NULL, &stored))
		idem_transition_answer(call, IDEM_APPLIED, state, stored);
	else
		answer_after_lock(call);
	return true;
}

/* One try, with the target opened under this lock.  See answer_by_state() for what it returns. */
static bool
try_call(TransitionCall *call, FunctionCallInfo fcinfo, bool event, LOCKMODE lockmode)
{
	RowOperation *operation = &call->operation;
	Snapshot	snapshot;
	bool		answered;

	(void) idem_transition_read_options(call, fcinfo, idem_transition_read_rule(call, fcinfo, event));
	if (operation->on_reject == IDEM_REJECT_RECORD)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("a rejection can only be recorded under an operation id"),
				 errhint("Call %s_once() with an operation id, or pass on_reject => 'return'.", event ? "fire" : "transition")));
	idem_target_open(&operation->target, PG_GETARG_OID(IDEM_TRANSITION_TARGET), lockmode);
	idem_target_read_key(&operation->target, PG_GETARG_DATUM(IDEM_TRANSITION_KEY),
						 get_fn_expr_argtype(fcinfo->flinfo, IDEM_TRANSITION_KEY), &operation->row);
	idem_transition_prepare(operation, InvalidSnapshot);

	snapshot = RegisterSnapshot(GetTransactionSnapshot());
	answered = answer_by_state(call, snapshot, lockmode);
	UnregisterSnapshot(snapshot);
	idem_target_close(&operation->target, lockmode == AccessShareLock ? AccessShareLock : NoLock);
	return answered;
}

static TransitionCall *
call_by_state(const RowOperationSteps *steps, FunctionCallInfo fcinfo, bool event)
{
	for (LOCKMODE lockmode = AccessShareLock;; lockmode = RowExclusiveLock)
	{
		TransitionCall *call = palloc0(sizeof(TransitionCall));

		call->operation.steps = steps;
		if (try_call(call, fcinfo, event, lockmode))
			return call;
	}
}

/* ---------- the functions ---------- */

static Datum
answer_each_time(FunctionCallInfo fcinfo, const RowOperationSteps *steps, bool event)
{
	MemoryContext caller_context = CurrentMemoryContext;
	TransitionCall *call;
	HeapTuple	result;

	SPI_connect();
	call = call_by_state(steps, fcinfo, event);
	MemoryContextSwitchTo(caller_context);
	result = idem_transition_form_answer(call, fcinfo);
	SPI_finish();
	return HeapTupleGetDatum(result);
}

IDEM_SQL_FUNCTION(idempotency_transition);
IDEM_SQL_FUNCTION(idempotency_fire);

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
