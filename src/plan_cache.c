/*
 * plan_cache.c - the one place that prepares statements and keeps their plans
 *
 * As ri_triggers.c does: a hash table from what a statement is about to its kept
 * SPI plan.  The caller locks the relation first, so that no change to it can
 * come between the check that the plan is valid and its use.  A plan that is no
 * longer valid is thrown away together with its text, since the text has names
 * in it that a rename may have moved.
 *
 * A plan must not be freed while it runs: a trigger below it may call in here
 * again, after an invalidation, and ask for the same one.  So while anything
 * runs, what is replaced is set aside, and freed when nothing does.  An error
 * leaves the count of running plans too high until the transaction ends; that
 * only frees later.
 */
#include "postgres.h"

#include "plan_cache.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "nodes/bitmapset.h"
#include "utils/guc.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"
#include "utils/plancache.h"

typedef struct PlanKey
{
	Oid			relation;
	Oid			index;
	int32		column;
	int32		kind;
	uint32		columns;		/* a hash of the set */
} PlanKey;

typedef struct PlanEntry
{
	PlanKey		key;
	SPIPlanPtr	plan;
	Bitmapset  *columns;		/* the set itself, or NULL */
	uint64		last_used;
} PlanEntry;

/* past so many plans the ones that went stale are looked for and freed */
#define SWEEP_AT_FIRST 64

/*
 * A table with n columns that may be given or not has 2^n plans for sets of them.  So
 * no more are kept, and the one that was not used for longest makes room.
 */
#define MAX_COLUMN_SETS 256

typedef struct PlanCache
{
	HTAB	   *plans;
	long		sweep_at;
	int			ncolumn_sets;	/* plans that are for a set of columns */
	uint64		uses;
	List	   *replaced;		/* plans to free when nothing runs */
	int			running;
} PlanCache;

static PlanCache cache;

static void
end_of_transaction(XactEvent event, void *arg)
{
	if (event == XACT_EVENT_COMMIT || event == XACT_EVENT_ABORT || event == XACT_EVENT_PREPARE)
		cache.running = 0;
}

/*
 * Called once, when the library is loaded.
 */
void
idem_plan_cache_init(void)
{
	HASHCTL		control = {.keysize = sizeof(PlanKey),.entrysize = sizeof(PlanEntry)};

	cache.plans = hash_create("idempotency plans", 32, &control, HASH_ELEM | HASH_BLOBS);
	cache.sweep_at = SWEEP_AT_FIRST;
	RegisterXactCallback(end_of_transaction, NULL);
}

/*
 * Declares the next parameter of a statement and returns its number.
 */
int
idem_statement_param(StatementText *out, Oid type)
{
	if (out->nparams >= IDEM_MAX_PARAMS)
		elog(ERROR, "too many parameters"); /* a key has INDEX_MAX_KEYS at most */
	out->param_types[out->nparams] = type;
	return ++out->nparams;
}

static void
discard_plan(SPIPlanPtr plan)
{
	MemoryContext before;

	if (cache.running == 0)
	{
		SPI_freeplan(plan);
		return;
	}
	before = MemoryContextSwitchTo(TopMemoryContext);
	cache.replaced = lappend(cache.replaced, plan);
	MemoryContextSwitchTo(before);
}

static void
free_replaced(void)
{
	while (cache.replaced != NIL)
	{
		SPIPlanPtr	plan = linitial(cache.replaced);

		cache.replaced = list_delete_first(cache.replaced);
		SPI_freeplan(plan);
	}
}

static void
remove_entry(PlanEntry *entry)
{
	discard_plan(entry->plan);
	if (entry->columns != NULL)
	{
		bms_free(entry->columns);
		cache.ncolumn_sets--;
	}
	hash_search(cache.plans, &entry->key, HASH_REMOVE, NULL);
}

/*
 * Tables come and go in a long session, and nobody asks again for the plans of
 * those that went.  Doubling the mark keeps the cost of looking per new plan flat.
 */
static void
sweep_stale_plans(void)
{
	HASH_SEQ_STATUS scan;
	PlanEntry  *entry;

	if (hash_get_num_entries(cache.plans) < cache.sweep_at)
		return;

	hash_seq_init(&scan, cache.plans);
	while ((entry = hash_seq_search(&scan)) != NULL)
	{
		if (!SPI_plan_is_valid(entry->plan))
			remove_entry(entry);
	}
	cache.sweep_at = Max(SWEEP_AT_FIRST, 2 * hash_get_num_entries(cache.plans));
}

/* Makes room for one more plan that is for a set of columns. */
static void
evict_column_set(void)
{
	HASH_SEQ_STATUS scan;
	PlanEntry  *entry;
	PlanEntry  *oldest = NULL;

	if (cache.ncolumn_sets < MAX_COLUMN_SETS)
		return;
	hash_seq_init(&scan, cache.plans);
	while ((entry = hash_seq_search(&scan)) != NULL)
	{
		if (entry->columns != NULL && (oldest == NULL || entry->last_used < oldest->last_used))
			oldest = entry;
	}
	remove_entry(oldest);
}

/*
 * Plans for all parameters, now, and without reading whole tables.  Each statement
 * is about rows by their keys, and its plan is kept: one that was made when the table
 * was empty, and that said so in its statistics, would go through all of it when it is
 * full.
 */
static void
make_plan(SPIPlanPtr plan)
{
	int			nest_level = NewGUCNestLevel();
	CachedPlan *made;

	(void) set_config_option("enable_seqscan", "off", PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
	made = SPI_plan_get_cached_plan(plan);
	if (made != NULL)			/* only kept until it is used, by the plan itself */
		ReleaseCachedPlan(made, CurrentResourceOwner);
	AtEOXact_GUC(false, nest_level);
}

static SPIPlanPtr
prepare_plan(const Statement *statement)
{
	StatementText out = {0};
	SPIPlanPtr	plan;

	initStringInfo(&out.sql);
	statement->write(&out, statement->context);
	plan = SPI_prepare_cursor(out.sql.data, out.nparams, out.param_types, CURSOR_OPT_GENERIC_PLAN);
	if (plan == NULL)			/* only for utility commands that SPI refuses */
		elog(ERROR, "could not prepare \"%s\": %s", out.sql.data, SPI_result_code_string(SPI_result));
	if (SPI_keepplan(plan) != 0)	/* only fails for a plan that is kept or invalid */
		elog(ERROR, "could not keep the plan of \"%s\"", out.sql.data);
	make_plan(plan);
	pfree(out.sql.data);
	return plan;
}

static void
add_entry(const PlanKey *key, SPIPlanPtr plan, const Bitmapset *columns)
{
	MemoryContext before = MemoryContextSwitchTo(TopMemoryContext);
	Bitmapset  *copy = bms_copy(columns);
	PlanEntry  *entry;

	MemoryContextSwitchTo(before);
	if (copy != NULL)
	{
		evict_column_set();
		cache.ncolumn_sets++;
	}
	entry = hash_search(cache.plans, key, HASH_ENTER, NULL);
	entry->plan = plan;
	entry->columns = copy;
	entry->last_used = ++cache.uses;
}

static SPIPlanPtr
get_plan(const Statement *statement)
{
	PlanKey		key = {statement->relation, statement->index, statement->column, statement->kind, bms_hash_value(statement->columns)};
	PlanEntry  *entry = hash_search(cache.plans, &key, HASH_FIND, NULL);
	SPIPlanPtr	plan;

	if (entry != NULL)
	{
		if (SPI_plan_is_valid(entry->plan) && bms_equal(entry->columns, statement->columns))
		{
			entry->last_used = ++cache.uses;
			return entry->plan;
		}
		remove_entry(entry);
	}

	sweep_stale_plans();
	/* the entry comes last: nothing half-made is left behind if preparing fails */
	plan = prepare_plan(statement);
	add_entry(&key, plan, statement->columns);
	return plan;
}

static int
execute_plan(const Statement *statement, Datum *values, const char *nulls, Snapshot snapshot, bool read_only)
{
	SPIPlanPtr	plan;
	int			result;

	Assert(!read_only || snapshot != InvalidSnapshot);

	if (cache.running == 0 && cache.replaced != NIL)
		free_replaced();
	plan = get_plan(statement);

	cache.running++;
	result = SPI_execute_snapshot(plan, values, nulls, snapshot, InvalidSnapshot, read_only, true, 0);
	cache.running--;

	return result;
}

/*
 * Runs a statement through its kept plan and returns the number of rows; they
 * stand in SPI_tuptable.  The caller is connected to SPI and holds a lock on the
 * relation.
 *
 * With a snapshot the statement sees by that one, else by one of its own.  A
 * read-only statement must be given one.  Raises what the statement raises.
 *
 * As the relation's owner a statement passes row security, as a foreign key's
 * check does (ri_triggers.c).  The relation's triggers and expressions then run
 * as the owner too, so they are kept from what would outlive the statement.
 */
uint64
idem_plan_cache_execute(const Statement *statement, Datum *values, const char *nulls,
						Snapshot snapshot, bool read_only)
{
	Oid			user;
	int			context;
	int			result;

	if (OidIsValid(statement->as_owner))
	{
		/* an error ends the (sub)transaction, which restores both */
		GetUserIdAndSecContext(&user, &context);
		SetUserIdAndSecContext(statement->as_owner, context | SECURITY_LOCAL_USERID_CHANGE |
							   SECURITY_RESTRICTED_OPERATION | SECURITY_NOFORCE_RLS);
		result = execute_plan(statement, values, nulls, snapshot, read_only);
		SetUserIdAndSecContext(user, context);
	}
	else
		result = execute_plan(statement, values, nulls, snapshot, read_only);

	if (result < 0)				/* only for statements that are not made here */
		elog(ERROR, "could not execute statement %d: %s", statement->kind, SPI_result_code_string(result));
	return SPI_processed;
}
