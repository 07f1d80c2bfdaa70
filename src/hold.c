/*
 * hold.c - getting hold of a target's row, with a wait that bounds the twin alone
 *
 * With an unlimited wait a call queues for the row as any UPDATE does.  It could
 * not leave that queue without an error, so with a limited one it does not enter
 * it: it asks who has the row, and waits for that transaction in ways that it can
 * leave.  That wait is for the twin: who does not want to wait for others is told of
 * them by the error that NOWAIT raises.
 */
#include "postgres.h"

#include "arguments.h"
#include "compat.h"
#include "hold.h"
#include "transactions.h"

#include "miscadmin.h"
#include "storage/lmgr.h"
#include "storage/proc.h"
#include "utils/timestamp.h"

/* Where a deadlock is found, which asking does not. */
static void
queue_for_end(void *xid)
{
	XactLockTableWait(*(TransactionId *) xid, NULL, NULL, XLTW_None);
}

/*
 * Waits for the end of a twin's transaction.  The time that `wait` gives starts
 * when there is a twin to wait for.
 */
static HoldResult
wait_for_twin(Hold *hold, TransactionId twin)
{
	if (hold->wait == IDEM_WAIT_UNLIMITED)
	{
		XactLockTableWait(twin, NULL, NULL, XLTW_None);
		return IDEM_HOLD_NOT_YET;
	}
	if (hold->wait_until == 0)
		hold->wait_until = GetCurrentTimestamp() + hold->wait;
	return idem_transactions_ask_for_end(twin, hold->wait_until) ? IDEM_HOLD_NOT_YET : IDEM_HOLD_GAVE_UP;
}

/*
 * Waits for whoever has the row and has not logged our id.  It may turn out to
 * be the twin, between its update and its log row, or having locked the row
 * first; so the wait is cut into turns, and after each the log is asked again.
 * In every other turn the wait is in the lock manager's queue, long enough for a
 * deadlock to be found.
 */
static HoldResult
wait_for_holder(Hold *hold)
{
	int			patience = LockTimeout > 0 ? Min(LockTimeout, DeadlockTimeout) : DeadlockTimeout;
	TimestampTz started = GetCurrentTimestamp();
	TimestampTz asking_until = TimestampTzPlusMilliseconds(started, patience);
	TransactionId holder;

	while (TransactionIdIsValid(holder = idem_target_holder(hold->row)))
	{
		TransactionId twin = idem_operation_log_in_flight(hold->operation);
		TimestampTz now = GetCurrentTimestamp();

		if (TransactionIdIsValid(twin))
			return wait_for_twin(hold, twin);
		if (now < asking_until)
		{
			if (idem_transactions_ask_for_end(holder, Min(TimestampTzPlusMilliseconds(now, 20), asking_until)))
				return IDEM_HOLD_NOT_YET;
			continue;
		}
		if (idem_transactions_take_turn(queue_for_end, &holder, started))
			return IDEM_HOLD_NOT_YET;
		asking_until = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), patience);
	}
	return IDEM_HOLD_NOBODY;
}

/*
 * Tries to get hold of the row, in *value its column, NULL as a null pointer; it
 * belongs to SPI.  With an unlimited wait this is one lock; otherwise each step may
 * find a twin to wait for first.  Raises 55P03 after lock_timeout, and for a row that
 * somebody has and that is not to be waited for; 40P01; and 40001 where the row has
 * changed since the transaction's snapshot.
 */
HoldResult
idem_hold_row(Hold *hold, Datum *value)
{
	bool		queue = hold->wait == IDEM_WAIT_UNLIMITED && !hold->nowait;
	TransactionId twin;

	if (!queue && TransactionIdIsValid(twin = idem_operation_log_in_flight(hold->operation)))
		return wait_for_twin(hold, twin);

	switch (idem_target_lock(hold->row, hold->column,
							 queue ? IDEM_LOCK_WAIT : hold->nowait ? IDEM_LOCK_NOWAIT : IDEM_LOCK_TRY, value))
	{
		case IDEM_ROW_LOCKED:
			return IDEM_HOLD_ROW;
		case IDEM_ROW_BUSY:
			return queue || hold->nowait ? IDEM_HOLD_NOBODY : wait_for_holder(hold);
		case IDEM_ROW_MISSING:
			break;
	}

	/* a twin may be creating it */
	twin = idem_operation_log_in_flight(hold->operation);
	return TransactionIdIsValid(twin) ? wait_for_twin(hold, twin) : IDEM_HOLD_NO_ROW;
}
