/*
 * hold.c - getting hold of a target's row, with a wait that bounds the twin alone
 *
 * With an unlimited wait a call queues for the row as any UPDATE does.  It could
 * not leave that queue without an error, so with a limited one it does not enter
 * it: it asks who has the row, and waits for that transaction in ways that it can
 * leave.
 */
#include "postgres.h"

#include "arguments.h"
#include "compat.h"
#include "hold.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/latch.h"
#include "storage/lmgr.h"
#include "storage/proc.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/resowner.h"
#include "utils/timestamp.h"

/*
 * Waits for a transaction to end, until `until` at the latest.  Returns whether
 * it ended.  It is asked at growing intervals rather than queued for, so that the
 * caller's own transaction outlives the wait; a deadlock ends with `until`.
 */
static bool
ask_for_end(TransactionId xid, TimestampTz until)
{
	long		pause = 1;		/* ms */

	while (!idem_conditional_xact_lock_wait(xid))
	{
		long		left = TimestampDifferenceMilliseconds(GetCurrentTimestamp(), until);

		if (left <= 0)
			return false;
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 Min(pause, left), PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
		pause = Min(pause * 2, 50);
	}
	return true;
}

/*
 * Queues for the end of a transaction in the lock manager, where a deadlock is
 * found, but for no longer than that takes.  Returns whether it ended.  `started`
 * is when the caller began to wait; past lock_timeout from then it raises 55P03.
 *
 * The lock manager ends such a wait with an error, so it happens in a
 * subtransaction; nothing else does.
 */
static bool
queue_for_end(TransactionId xid, TimestampTz started)
{
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	int			turn = DeadlockTimeout + Min(DeadlockTimeout, 100);
	volatile bool last_turn = false;
	volatile bool ended = true;
	int			nest_level;

	if (LockTimeout > 0)
	{
		long		waited = TimestampDifferenceMilliseconds(started, GetCurrentTimestamp());

		last_turn = LockTimeout - waited <= turn;
		turn = Max(Min(turn, LockTimeout - waited), 1);
	}

	BeginInternalSubTransaction(NULL);
	nest_level = NewGUCNestLevel();
	(void) set_config_option("lock_timeout", psprintf("%d", turn), PGC_USERSET, PGC_S_SESSION,
							 GUC_ACTION_SAVE, true, 0, false);
	PG_TRY();
	{
		XactLockTableWait(xid, NULL, NULL, XLTW_None);
		AtEOXact_GUC(false, nest_level);
		ReleaseCurrentSubTransaction();
	}
	PG_CATCH();
	{
		ErrorData  *error;

		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		FlushErrorState();
		RollbackAndReleaseCurrentSubTransaction();
		MemoryContextSwitchTo(context);
		CurrentResourceOwner = owner;
		if (last_turn || error->sqlerrcode != ERRCODE_LOCK_NOT_AVAILABLE)
			ReThrowError(error);
		FreeErrorData(error);
		ended = false;
	}
	PG_END_TRY();

	MemoryContextSwitchTo(context);
	CurrentResourceOwner = owner;
	return ended;
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
	return ask_for_end(twin, hold->wait_until) ? IDEM_HOLD_NOT_YET : IDEM_HOLD_GAVE_UP;
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
			if (ask_for_end(holder, Min(TimestampTzPlusMilliseconds(now, 20), asking_until)))
				return IDEM_HOLD_NOT_YET;
			continue;
		}
		if (queue_for_end(holder, started))
			return IDEM_HOLD_NOT_YET;
		asking_until = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), patience);
	}
	return IDEM_HOLD_NOBODY;
}

/*
 * Tries to get hold of the row, in *value its column, NULL as a null pointer; it
 * belongs to SPI.  With an unlimited wait this is one lock; otherwise each step may
 * find a twin to wait for first.  Raises 55P03 after lock_timeout, 40P01, and 40001
 * where the row has changed since the transaction's snapshot.
 */
HoldResult
idem_hold_row(Hold *hold, Numeric *value)
{
	bool		unlimited = hold->wait == IDEM_WAIT_UNLIMITED;
	TransactionId twin;

	if (!unlimited && TransactionIdIsValid(twin = idem_operation_log_in_flight(hold->operation)))
		return wait_for_twin(hold, twin);

	switch (idem_target_lock(hold->row, hold->column, unlimited, value))
	{
		case IDEM_ROW_LOCKED:
			return IDEM_HOLD_ROW;
		case IDEM_ROW_BUSY:
			return unlimited ? IDEM_HOLD_NOBODY : wait_for_holder(hold);
		case IDEM_ROW_MISSING:
			break;
	}

	/* a twin may be creating it */
	twin = idem_operation_log_in_flight(hold->operation);
	return TransactionIdIsValid(twin) ? wait_for_twin(hold, twin) : IDEM_HOLD_NO_ROW;
}
