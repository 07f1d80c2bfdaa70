/*
 * ignore_duplicates.c - a trigger that lets an unchanged INSERT skip what is there
 *
 * A BEFORE INSERT trigger that looks for the new row's key, and suppresses the row
 * if it is there, would race: two sessions both find nothing, and both insert.  So
 * the look happens under a lock on the key, which excludes the other session's look
 * until our row is in the index.  From then on the row itself says that it is
 * there: whoever looks finds it in flight and waits for our transaction, as
 * the unique index would.
 *
 * So a key's lock is needed from the look until the row is stored, and that has
 * happened when the next row's trigger runs.  Each trigger call gives back the locks
 * of rows that are stored by now, and a COPY of a million rows holds one at a time.
 * A call within the trigger of another row that is not stored yet is told by
 * its depth: what was taken at a lesser depth may still be needed.
 *
 * Nobody waits for a transaction while it holds a key's lock: it is given back
 * first, and the look begins anew.  What remains are the deadlocks of two plain
 * INSERTs in opposite order.
 */
#include "postgres.h"

#include "compat.h"
#include "ignore_duplicates.h"
#include "target.h"

#include "access/xact.h"
#include "catalog/index.h"
#include "catalog/partition.h"
#include "commands/trigger.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "parser/parsetree.h"
#include "storage/lmgr.h"
#include "storage/lock.h"
#include "tcop/pquery.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/resowner.h"
#include "utils/snapmgr.h"

/* advisory locks of users have 1 and 2 here (lockfuncs.c) */
#define KEY_LOCK_CLASS 117

typedef struct KeyLock
{
	LOCKTAG		tag;
	int			depth;			/* of the trigger call that took it */
	SubTransactionId subid;
} KeyLock;

/* locks that may be held, in TopTransactionContext; the last one taken is the last one here */
static List *key_locks;

/* ---------- locks on keys ---------- */

/*
 * They belong to the whole transaction, for the lock manager wants the same owner
 * when it is given back; a subtransaction that ends takes care of its own here.
 */
static void
release_lock(KeyLock *lock)
{
	ResourceOwner owner = CurrentResourceOwner;

	CurrentResourceOwner = TopTransactionResourceOwner;
	(void) LockRelease(&lock->tag, ExclusiveLock, false);
	CurrentResourceOwner = owner;
	key_locks = list_delete_ptr(key_locks, lock);
	pfree(lock);
}

static KeyLock *
take_lock(Oid relation, uint32 hash, int depth)
{
	ResourceOwner owner = CurrentResourceOwner;
	MemoryContext before = MemoryContextSwitchTo(TopTransactionContext);
	KeyLock    *lock = palloc0(sizeof(KeyLock));

	SET_LOCKTAG_ADVISORY(lock->tag, MyDatabaseId, relation, hash, KEY_LOCK_CLASS);
	lock->depth = depth;
	lock->subid = GetCurrentSubTransactionId();

	CurrentResourceOwner = TopTransactionResourceOwner;
	PG_TRY();
	{
		(void) LockAcquire(&lock->tag, ExclusiveLock, false, false);
	}
	PG_FINALLY();
	{
		CurrentResourceOwner = owner;
	}
	PG_END_TRY();
	key_locks = lappend(key_locks, lock);
	MemoryContextSwitchTo(before);
	return lock;
}

/* Gives back the locks of rows that are stored by now, or never will be. */
static void
release_locks_of_stored_rows(int depth)
{
	while (key_locks != NIL && ((KeyLock *) llast(key_locks))->depth >= depth)
		release_lock(llast(key_locks));
}

static void
end_of_transaction(XactEvent event, void *arg)
{
	if (event == XACT_EVENT_COMMIT || event == XACT_EVENT_ABORT || event == XACT_EVENT_PREPARE)
		key_locks = NIL;
}

/* The rows of a subtransaction that is rolled back are gone, and need no locks. */
static void
end_of_subtransaction(SubXactEvent event, SubTransactionId mine, SubTransactionId parent, void *arg)
{
	for (int i = list_length(key_locks) - 1; i >= 0; i--)
	{
		KeyLock    *lock = list_nth(key_locks, i);

		if (lock->subid != mine)
			continue;
		if (event == SUBXACT_EVENT_ABORT_SUB)
			release_lock(lock);
		else if (event == SUBXACT_EVENT_COMMIT_SUB)
			lock->subid = parent;
	}
}

/*
 * Called once, when the library is loaded.
 */
void
idem_ignore_duplicates_init(void)
{
	RegisterXactCallback(end_of_transaction, NULL);
	RegisterSubXactCallback(end_of_subtransaction, NULL);
}

/* ---------- the statement ---------- */

static bool
upserts_into(Plan * plan, PlannedStmt * statement, Oid relid)
{
	ModifyTable *modify = (ModifyTable *) plan;
	ListCell   *cell;

	if (plan == NULL || !IsA(plan, ModifyTable) || modify->onConflictAction != ONCONFLICT_UPDATE)
		return false;
	foreach(cell, modify->resultRelations)
	{
		Oid			target = rt_fetch(lfirst_int(cell), statement->rtable)->relid;

		if (target == relid || list_member_oid(get_partition_ancestors(relid), target))
			return true;
	}
	return false;
}

/*
 * Is the client's own statement an INSERT ... ON CONFLICT DO UPDATE of this table?
 * One within a function is not seen.
 */
static bool
client_upserts_into(Oid relid)
{
	ListCell   *cell;

	if (ActivePortal == NULL)
		return false;
	foreach(cell, ActivePortal->stmts)
	{
		PlannedStmt *statement = lfirst_node(PlannedStmt, cell);
		ListCell   *subplan;

		if (upserts_into(statement->planTree, statement, relid))
			return true;
		foreach(subplan, statement->subplans)
		{
			if (upserts_into(lfirst(subplan), statement, relid))
				return true;
		}
	}
	return false;
}

static void
check_statement(Relation relation, int depth)
{
	if (depth == 1 && client_upserts_into(RelationGetRelid(relation)))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("INSERT ... ON CONFLICT DO UPDATE would do nothing on a conflict in table \"%s\"",
						RelationGetRelationName(relation)),
				 errdetail("Trigger function ignore_duplicates() skips a row whose key is there before the conflict is seen."),
				 errhint("Use UPDATE, or DO NOTHING, or drop the trigger.")));
}

/* ---------- the trigger ---------- */

static void
check_called_as_trigger(FunctionCallInfo fcinfo)
{
	TriggerData *trigger = (TriggerData *) fcinfo->context;

	if (!CALLED_AS_TRIGGER(fcinfo) ||
		!TRIGGER_FIRED_BY_INSERT(trigger->tg_event) ||
		!TRIGGER_FIRED_BEFORE(trigger->tg_event) ||
		!TRIGGER_FIRED_FOR_ROW(trigger->tg_event))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("ignore_duplicates() must be called by a BEFORE INSERT trigger for each row"),
				 errhint("CREATE TRIGGER ... BEFORE INSERT ON ... FOR EACH ROW EXECUTE FUNCTION idempotency.ignore_duplicates('key_column').")));
}

static List *
read_key_names(const Trigger *trigger)
{
	List	   *names = NIL;

	for (int i = 0; i < trigger->tgnargs; i++)
		names = lappend(names, trigger->tgargs[i]);
	return names;
}

/*
 * A trigger that a partition has from its parent speaks of the parent's rows, so the
 * key must be the parent's too.
 */
static void
check_key_is_global(const Target *target, const Trigger *trigger, const TargetKey *key)
{
	List	   *indexes = get_rel_relispartition(key->index) ? get_partition_ancestors(key->index) : NIL;
	ListCell   *table;

	foreach(table, get_partition_ancestors(RelationGetRelid(target->relation)))
	{
		bool		covered = false;
		ListCell   *index;

		if (!OidIsValid(get_trigger_oid(lfirst_oid(table), trigger->tgname, true)))
			continue;
		foreach(index, indexes)
			covered |= IndexGetRelation(lfirst_oid(index), false) == lfirst_oid(table);
		if (!covered)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_COLUMN_REFERENCE),
					 errmsg("unique key \"%s\" holds in partition \"%s\" alone", key->name,
							RelationGetRelationName(target->relation)),
					 errdetail("Table \"%s\" has the trigger, and no such key.", get_rel_name(lfirst_oid(table))),
					 errhint("Name a unique key of the partitioned table.")));
	}
}

/* what is read once for the rows of a statement */
typedef struct TriggerState
{
	uint64		version;		/* of the table; 0: nothing is known yet */
	const TargetKey *key;
} TriggerState;

static const TargetKey *
choose_key(FunctionCallInfo fcinfo, const Target *target, int depth)
{
	const Trigger *trigger = ((TriggerData *) fcinfo->context)->tg_trigger;
	TriggerState *state = fcinfo->flinfo->fn_extra;

	if (state == NULL)
		state = fcinfo->flinfo->fn_extra = MemoryContextAllocZero(fcinfo->flinfo->fn_mcxt, sizeof(TriggerState));
	if (state->version == target->table->version)
		return state->key;

	state->version = 0;
	state->key = idem_target_choose_key(target, read_key_names(trigger), NULL);
	if (target->relation->rd_rel->relispartition)
		check_key_is_global(target, trigger, state->key);
	check_statement(target->relation, depth);
	state->version = target->table->version;
	return state->key;
}

/*
 * What is there of this key, once nobody is inserting it any more?  Holds the key's
 * lock if there is nothing.
 *
 * The probe sees rows of the statement that is running, too.  What it can miss, a
 * look by what is committed now finds (unique_index.c).
 */
static IndexProbe
probe_under_lock(const Target *target, const TargetKeyValues *values, TupleTableSlot *row, int depth)
{
	uint32		hash = idem_target_hash_values(values);

	for (;;)
	{
		KeyLock    *lock = take_lock(RelationGetRelid(target->relation), hash, depth);
		IndexWriter writer;
		IndexProbe	probe = idem_target_probe(target, values, row, &writer);

		if (probe == IDEM_INDEX_ABSENT && idem_target_exists(target, values, row, GetLatestSnapshot()))
			probe = IDEM_INDEX_PRESENT;
		if (probe == IDEM_INDEX_ABSENT)
			return probe;
		release_lock(lock);
		if (probe != IDEM_INDEX_IN_FLIGHT)
			return probe;
		idem_unique_index_wait_for_writer(&writer);
		CHECK_FOR_INTERRUPTS();
	}
}

/*
 * Is there a row of this key?  Where the transaction reads by one snapshot, what that
 * shows is there, and what has come since ends in 40001, as it does for ON CONFLICT.
 */
static bool
is_there(const Target *target, const TargetKeyValues *values, TupleTableSlot *row, int depth)
{
	IndexProbe	probe;

	if (IsolationUsesXactSnapshot() && idem_target_exists(target, values, row, GetTransactionSnapshot()))
		return true;
	probe = probe_under_lock(target, values, row, depth);
	if (probe == IDEM_INDEX_PRESENT && IsolationUsesXactSnapshot())
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("could not serialize access due to concurrent insertion of the same key"),
				 errhint("The transaction might succeed if retried.")));
	return probe != IDEM_INDEX_ABSENT;
}

IDEM_SQL_FUNCTION(idempotency_ignore_duplicates);

/*
 * ignore_duplicates('key_column', ...): see docs/reference.md
 */
Datum
idempotency_ignore_duplicates(PG_FUNCTION_ARGS)
{
	TriggerData *trigger = (TriggerData *) fcinfo->context;
	HeapTuple	row;
	int			depth;
	Target		target;
	TargetKeyValues values;

	check_called_as_trigger(fcinfo);
	row = trigger->tg_trigtuple;
	depth = DatumGetInt32(DirectFunctionCall1(pg_trigger_depth, (Datum) 0));
	release_locks_of_stored_rows(depth);

	idem_target_use(&target, trigger->tg_relation);
	idem_target_compute_key(&target, choose_key(fcinfo, &target, depth), trigger->tg_trigslot, NULL, &values);
	/* what the key does not guard is an ordinary row */
	if (!values.outside && values.null_column < 0 && is_there(&target, &values, trigger->tg_trigslot, depth))
		row = NULL;
	idem_target_end_use(&target);
	return PointerGetDatum(row);
}
