/*
 * transactions.c - other transactions: waiting for their end, and what they committed
 *
 * A wait in the lock manager's queue cannot be left without an error.  So whoever
 * waits for a limited time either does not enter the queue and asks again and
 * again, or enters it in a subtransaction, for one turn at a time.
 */
#include "postgres.h"

#include "compat.h"
#include "transactions.h"

#include "access/transam.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/latch.h"
#include "storage/lwlock.h"
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
bool
idem_transactions_ask_for_end(TransactionId xid, TimestampTz until)
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
 * Does something that may wait in the lock manager's queue, for one turn: long
 * enough for a deadlock to be found, and within lock_timeout since `started`, when
 * the caller began to wait.  Returns whether it was done; if not, the turn is over
 * and nothing has happened.  Raises 55P03 past lock_timeout, and what the action
 * raises.
 *
 * The lock manager ends a wait with an error, so the action happens in a
 * subtransaction.  It may trip over such an error of its own, by NOWAIT say; that
 * one comes before the turn is over.
 */
bool
idem_transactions_take_turn(void (*action) (void *), void *argument, TimestampTz started)
{
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	TimestampTz turn_started = GetCurrentTimestamp();
	volatile int turn = DeadlockTimeout + Min(DeadlockTimeout, 100);
	volatile bool last_turn = false;
	volatile bool done = true;
	int			nest_level;

	if (LockTimeout > 0)
	{
		long		waited = TimestampDifferenceMilliseconds(started, turn_started);

		last_turn = LockTimeout - waited <= turn;
		turn = Max(Min(turn, LockTimeout - waited), 1);
	}

	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(context);
	nest_level = NewGUCNestLevel();
	(void) set_config_option("lock_timeout", psprintf("%d", turn), PGC_USERSET, PGC_S_SESSION,
							 GUC_ACTION_SAVE, true, 0, false);
	PG_TRY();
	{
		action(argument);
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
		if (last_turn || error->sqlerrcode != ERRCODE_LOCK_NOT_AVAILABLE ||
			!TimestampDifferenceExceeds(turn_started, GetCurrentTimestamp(), turn))
			ReThrowError(error);
		FreeErrorData(error);
		done = false;
	}
	PG_END_TRY();

	MemoryContextSwitchTo(context);
	CurrentResourceOwner = owner;
	return done;
}

/*
 * Makes sure that a crash cannot take back the commit that an answer rests on.
 * Under synchronous_commit = off a row is visible before its commit is flushed,
 * and a reader's own commit flushes nothing.  Costs nothing when it is flushed,
 * which it is but for the last moments.
 */
void
idem_transactions_flush_commit(TransactionId xid)
{
	XLogRecPtr	commit = InvalidXLogRecPtr;

	if (RecoveryInProgress() || TransactionIdIsCurrentTransactionId(xid))
		return;

	/*
	 * What was frozen long ago still shows its number.  The status of that transaction may no longer be
	 * kept, and the number may even seem to lie in the future; one that has come round to be a recent one's
	 * costs a needless flush.
	 */
	LWLockAcquire(XactTruncationLock, LW_SHARED);
	if (TransactionIdPrecedesOrEquals(IDEM_OLDEST_KNOWN_XID, xid) &&
		TransactionIdPrecedes(xid, ReadNextTransactionId()))
		commit = TransactionIdGetCommitLSN(xid);
	LWLockRelease(XactTruncationLock);

	if (!XLogRecPtrIsInvalid(commit))
		XLogFlush(commit);
}
