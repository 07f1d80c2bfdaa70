/*
 * insert_or_return.c - insert a row, or return the one that has its key already
 *
 * The unique index of the user's own table is the guard, so there is no log here:
 * whoever inserts a row of a key first is the one that inserted it.
 *
 * Look for the key by a snapshot: a row that is there is the answer, and nothing
 * has been written.  If there is none, INSERT ... ON CONFLICT DO NOTHING, which
 * waits for whoever is inserting the same key.  If that did not insert, somebody
 * was first: look again.  Each round either has the row, or has inserted it, or what
 * was in the way has gone meanwhile.  From the second round on the INSERT is one that
 * says what was in its way, so another unique key is that key's own error, and a row
 * that a trigger suppressed is told from a conflict.  A twin may be in the way by
 * other unique keys, too, and it depends on the indexes which is told first; so no
 * conflict counts before the key has been looked for.
 *
 * In READ COMMITTED each look is by a new snapshot.  In REPEATABLE READ and
 * SERIALIZABLE what came after the transaction's snapshot ends in 40001, which the
 * INSERT raises itself.
 *
 * Triggers that run before the row is stored may change its key.  Then they are
 * asked first (target_new_row.c), and the key that they make of it is the one that
 * counts.  A single call is a batch of one.
 */
#include "postgres.h"

#include "arguments.h"
#include "compat.h"
#include "errors.h"
#include "result_set.h"
#include "target.h"
#include "transactions.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "executor/spi.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

typedef enum Argument
{
	ARG_TARGET,
	ARG_NEW_VALUES,
	ARG_KEY,
	ARG_MUST_MATCH,
	ARG_WAIT					/* of a single call only */
} Argument;

/* what is kept over the calls of one query */
typedef struct QueryState
{
	TargetReader reader;
	TupleDesc	result;
} QueryState;

typedef struct BatchItem
{
	TargetKeyValues values;		/* first: they are sorted */
	TargetNewRow row;
	int			number;			/* from 1 */
	bool		look_again;		/* its key is not the one that was looked for */

	/* the answer */
	bool		answered;
	bool		inserted;
	Datum		stored;
} BatchItem;

typedef struct Call
{
	const char *function_name;
	bool		batch;
	Oid			relid;
	Target		target;
	TargetReader *reader;
	const TargetKey *key;
	List	   *must_match;		/* names */
	int64		wait;			/* microseconds, or IDEM_WAIT_UNLIMITED */
	TimestampTz started;
	TimestampTz wait_until;		/* 0 until a twin in flight was seen */
	int			nitems;
	BatchItem  *items;
	TupleTableSlot *slot;		/* for a row at a time */
	MemoryContext context;		/* for the whole call */
	MemoryContext scratch;		/* for an item at a time */
	int			number;			/* of the item that is at work, or 0 */
	bool		all_found;
} Call;

/*
 * How often a row may be in the way of an INSERT and be gone when it is looked for;
 * past that somebody else should try.
 */
#define MAX_ROUNDS 20

/*
 * In READ COMMITTED a twin may be in the way of an INSERT by another unique key, and
 * be deleted before it is looked for.  A conflict of another key that is met this
 * often, without a twin there afterwards, is that key's own.
 */
#define ENOUGH_OTHER_CONFLICTS 3

/* ---------- arguments ---------- */

/* Returns the names of a name[]; NIL for SQL's NULL.  Raises 22004 for a NULL among them, 22023 for more dimensions. */
static List *
read_names(FunctionCallInfo fcinfo, int n, const char *argument)
{
	List	   *names = NIL;
	ArrayType  *array;
	Datum	   *values;
	bool	   *nulls;
	int			nvalues;

	if (PG_ARGISNULL(n))
		return NIL;
	array = PG_GETARG_ARRAYTYPE_P(n);
	if (ARR_NDIM(array) > 1)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("argument \"%s\" must be an array of one dimension", argument),
				 errhint("Pass column names: '{column, ...}'.")));
	deconstruct_array(array, NAMEOID, NAMEDATALEN, false, TYPALIGN_CHAR, &values, &nulls, &nvalues);
	for (int i = 0; i < nvalues; i++)
	{
		if (nulls[i])
			ereport(ERROR,
					(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
					 errmsg("argument \"%s\" must not contain NULL", argument),
					 errhint("Pass column names: '{column, ...}'.")));
		names = lappend(names, pstrdup(NameStr(*DatumGetName(values[i]))));
	}
	return names;
}

static List *
read_key_names(FunctionCallInfo fcinfo)
{
	List	   *names = read_names(fcinfo, ARG_KEY, "key");

	if (names == NIL && !PG_ARGISNULL(ARG_KEY))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("argument \"%s\" must name at least one column", "key"),
				 errhint("Leave it out to let the columns given choose the key.")));
	return names;
}

static Oid
read_target(FunctionCallInfo fcinfo)
{
	Oid			type = get_fn_expr_argtype(fcinfo->flinfo, ARG_TARGET);
	Oid			relid = get_typ_typrelid(type);

	if (!OidIsValid(relid))
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("the target is of type %s, which is not a table's row type", format_type_be(type)),
				 errhint("Pass NULL::my_table.")));
	return relid;
}

/* A column can only be held against the stored one if there is a value for it. */
static void
check_must_match_given(const Call *call, const BatchItem *item)
{
	ListCell   *cell;

	foreach(cell, call->must_match)
	{
		if (!bms_is_member(idem_target_find_column(&call->target, lfirst(cell)), item->row.given))
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("no value is given for column \"%s\", which must match", (char *) lfirst(cell)),
					 errhint("Pass the value with each call, or leave the column out of must_match.")));
	}
}

static void
load_item(const Call *call, const BatchItem *item)
{
	ExecStoreHeapTupleDatum(item->row.values, call->slot);
}

/* Says in a batch's errors which item they are about. */
static void
tell_item(void *argument)
{
	if (*(int *) argument > 0)
		errcontext("item %d of new_values", *(int *) argument);
}

static void
tell_about(Call *call, const BatchItem *item)
{
	call->number = item ? item->number : 0;
}

static void
read_item(Call *call, Jsonb *json, int number)
{
	BatchItem  *item = &call->items[number - 1];

	item->number = number;
	tell_about(call, item);
	idem_target_read_new_row(&call->target, json, "new values", call->reader, &item->row);
	check_must_match_given(call, item);
}

static void
allocate_items(Call *call, int nitems)
{
	call->nitems = nitems;
	call->items = MemoryContextAllocHuge(call->context, sizeof(BatchItem) * Max(nitems, 1));
	memset(call->items, 0, sizeof(BatchItem) * nitems);
}

static void
read_array(Call *call, Jsonb *json)
{
	JsonbIterator *iterator = JsonbIteratorInit(&json->root);
	JsonbIteratorToken token;
	JsonbValue	value;
	int			number = 0;

	if (!JB_ROOT_IS_ARRAY(json) || JB_ROOT_IS_SCALAR(json))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("new values of a batch must be a JSON array"),
				 errhint("Write it as [{\"column\": value, ...}, ...].")));
	allocate_items(call, JB_ROOT_COUNT(json));
	while ((token = JsonbIteratorNext(&iterator, &value, true)) != WJB_DONE)
	{
		if (token == WJB_ELEM)
			read_item(call, JsonbValueToJsonb(&value), ++number);
	}
	tell_about(call, NULL);
}

static void
read_rows(Call *call, Jsonb *json)
{
	if (call->batch)
		read_array(call, json);
	else
	{
		allocate_items(call, 1);
		read_item(call, json, 1);
	}
}

/* The columns that every item has. */
static Bitmapset *
given_by_all(const Call *call)
{
	Bitmapset  *given = bms_copy(call->items[0].row.given);

	for (int i = 1; i < call->nitems; i++)
		given = bms_int_members(given, call->items[i].row.given);
	/* NULL would stand for all columns there are */
	return given ? given : bms_make_singleton(0);
}

static void
raise_outside(const Call *call)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("the new row is outside of the partial unique key \"%s\", which does not guard it", call->key->name),
			 errhint("Insert such a row by an ordinary INSERT, or name another key.")));
}

static void
raise_null_in_key(const Call *call, int column)
{
	ereport(ERROR,
			(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
			 errmsg("unique key %s of the new row has a NULL", idem_target_describe_key(call->key)),
			 errdetail("Column %d of the key is NULL, which is equal to nothing: each retry would insert another row.", column + 1),
			 errhint("Pass a value, or create the index with NULLS NOT DISTINCT.")));
}

/* Of the row in the slot. */
static void
compute_key(const Call *call, const Bitmapset *given, TargetKeyValues *values)
{
	idem_target_compute_key(&call->target, call->key, call->slot, given, values);
	if (values->outside)
		raise_outside(call);
	if (values->null_column >= 0)
		raise_null_in_key(call, values->null_column);
}

static void
read_arguments(Call *call, FunctionCallInfo fcinfo, LOCKMODE lockmode)
{
	List	   *key_names;

	idem_arguments_require(fcinfo, ARG_NEW_VALUES, "new_values");
	key_names = read_key_names(fcinfo);
	call->must_match = read_names(fcinfo, ARG_MUST_MATCH, "must_match");
	call->wait = call->batch ? IDEM_WAIT_UNLIMITED : idem_arguments_wait(IDEM_INTERVAL_OR_NULL(ARG_WAIT));

	idem_target_open(&call->target, call->relid, lockmode);
	call->slot = MakeSingleTupleTableSlot(RelationGetDescr(call->target.relation), &TTSOpsVirtual);
	read_rows(call, PG_GETARG_JSONB_P(ARG_NEW_VALUES));
	if (call->nitems > 0)
		call->key = idem_target_choose_key(&call->target, key_names, given_by_all(call));
	for (int i = 0; i < call->nitems; i++)
	{
		tell_about(call, &call->items[i]);
		load_item(call, &call->items[i]);
		compute_key(call, call->items[i].row.given, &call->items[i].values);
	}
	tell_about(call, NULL);
}

/* ---------- answers ---------- */

static void
answer(const Call *call, BatchItem *item, bool inserted, Datum stored)
{
	MemoryContext before = MemoryContextSwitchTo(call->context);

	item->answered = true;
	item->inserted = inserted;
	item->stored = datumCopy(stored, false, -1);
	MemoryContextSwitchTo(before);
}

static void
raise_hidden(const Call *call)
{
	ereport(ERROR,
			(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
			 errmsg("table \"%s\" has a row of unique key \"%s\" with these values that row security hides",
					RelationGetRelationName(call->target.relation), call->key->name),
			 errhint("Pass another key, or change the policy.")));
}

static void
raise_suppressed(const Call *call)
{
	ereport(ERROR,
			(errcode(IDEM_ROW_SUPPRESSED),
			 errmsg("the row was not inserted into table \"%s\"", RelationGetRelationName(call->target.relation)),
			 errdetail("A BEFORE trigger kept it from being stored."),
			 errhint("Change the trigger, or the row.")));
}

static void
raise_not_serializable(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
			 errmsg("could not serialize access due to concurrent insertion of the same key"),
			 errhint("The transaction might succeed if retried.")));
}

/* ---------- looking ---------- */

static TargetFind
look(Call *call, const BatchItem *item, Snapshot snapshot, Datum *found)
{
	load_item(call, item);
	return idem_target_find(&call->target, &item->values, call->slot, snapshot, found);
}

static TargetFind
look_anew(Call *call, BatchItem *item)
{
	Snapshot	snapshot = RegisterSnapshot(GetTransactionSnapshot());
	Datum		found;
	TargetFind	result = look(call, item, snapshot, &found);

	UnregisterSnapshot(snapshot);
	if (result == IDEM_ROW_FOUND)
		answer(call, item, false, found);
	return result;
}

/* Returns whether all are answered. */
static bool
look_for_all(Call *call)
{
	Snapshot	snapshot = RegisterSnapshot(GetTransactionSnapshot());
	bool		all = true;

	for (int i = 0; i < call->nitems; i++)
	{
		Datum		found;

		CHECK_FOR_INTERRUPTS();
		if (look(call, &call->items[i], snapshot, &found) == IDEM_ROW_FOUND)
			answer(call, &call->items[i], false, found);
		else
			all = false;
		MemoryContextReset(call->scratch);
	}
	UnregisterSnapshot(snapshot);
	return all;
}

/* ---------- inserting ---------- */

/* what is done in one turn of a limited wait */
typedef struct Turn
{
	Call	   *call;
	BatchItem  *item;
	bool		conflict_is_error;
	TargetInsert result;
	Datum		stored;
	ErrorData  *other_conflict;
	int			nother_conflicts;
} Turn;

static void
raise_waited_too_long(const Call *call)
{
	ereport(ERROR,
			(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
			 errmsg("could not wait longer for another transaction that inserts the same key into table \"%s\"",
					RelationGetRelationName(call->target.relation)),
			 errhint("Retry, or pass a longer \"wait\"; to go on in the same transaction, set a savepoint first.")));
}

/* Waits for those who are inserting the same key, as long as the caller said. */
static void
wait_for_twins(Call *call, const BatchItem *item)
{
	IndexWriter twin;

	load_item(call, item);
	while (idem_target_probe(&call->target, &item->values, call->slot, &twin) == IDEM_INDEX_IN_FLIGHT)
	{
		if (call->wait_until == 0)
			call->wait_until = GetCurrentTimestamp() + call->wait;
		if (!idem_transactions_ask_for_end(twin.xid, call->wait_until))
			raise_waited_too_long(call);
	}
}

/*
 * Does what may have to wait for a twin.  With a limited wait that happens in turns;
 * returns false if one is over and nothing was done.
 */
static bool
take_turn(Turn *turn, void (*action) (void *))
{
	Call	   *call = turn->call;

	if (call->wait == IDEM_WAIT_UNLIMITED)
	{
		action(turn);
		return true;
	}
	wait_for_twins(call, turn->item);
	return idem_transactions_take_turn(action, turn, call->started);
}

static void
ask_triggers(void *argument)
{
	Turn	   *turn = argument;
	Call	   *call = turn->call;
	TargetKeyValues values;

	load_item(call, turn->item);
	idem_target_ask_triggers(&call->target, &turn->item->row, call->slot);
	compute_key(call, NULL, &values);
	turn->item->look_again = !idem_target_same_values(&values, &turn->item->values);
	turn->item->values = values;
}

static void
insert(void *argument)
{
	Turn	   *turn = argument;

	turn->result = idem_target_insert_new(&turn->call->target, &turn->item->row, turn->call->key,
										  turn->conflict_is_error, &turn->stored, &turn->other_conflict);
}

/*
 * A row that was stored under another key than was looked for would not be
 * recognized when it comes again.
 */
static void
check_stored_key(Call *call, const BatchItem *item, Datum stored)
{
	TargetKeyValues values;

	ExecStoreHeapTupleDatum(stored, call->slot);
	idem_target_compute_key(&call->target, call->key, call->slot, NULL, &values);
	if (values.outside)
		raise_outside(call);
	if (!idem_target_same_values(&values, &item->values))
		ereport(ERROR,
				(errcode(IDEM_ROW_SUPPRESSED),
				 errmsg("the row would be stored in table \"%s\" under another key",
						RelationGetRelationName(call->target.relation)),
				 errdetail("A trigger gives it another key each time, so a retry would not be recognized."),
				 errhint("Change the trigger, or name another key.")));
}

/*
 * For an INSERT that did not insert and left no row of the key to be found: raises
 * what was in its way, unless that may have gone by now.
 */
static void
raise_what_is_in_the_way(const Call *call, Turn *turn)
{
	IndexWriter twin;

	switch (turn->result)
	{
		case IDEM_ROW_INSERTED:
			break;
		case IDEM_ROW_NOT_INSERTED:
			if (turn->conflict_is_error)
				raise_suppressed(call);
			break;
		case IDEM_ROW_CONFLICT:
			if (IsolationUsesXactSnapshot())
				raise_not_serializable();
			break;
		case IDEM_ROW_OTHER_CONFLICT:
			load_item(call, turn->item);
			if (IsolationUsesXactSnapshot() &&
				idem_target_probe(&call->target, &turn->item->values, call->slot, &twin) != IDEM_INDEX_ABSENT)
				raise_not_serializable();
			if (IsolationUsesXactSnapshot() || ++turn->nother_conflicts == ENOUGH_OTHER_CONFLICTS)
				ReThrowError(turn->other_conflict);
			break;
	}
}

/*
 * Inserts an item that was not there when it was looked for, or finds it.
 */
static void
store_item(Call *call, BatchItem *item)
{
	Turn		turn = {.call = call,.item = item};

	if (item->look_again && look_anew(call, item) == IDEM_ROW_FOUND)
		return;
	for (int round = 0; round < MAX_ROUNDS;)
	{
		CHECK_FOR_INTERRUPTS();
		turn.conflict_is_error = round > 0;
		if (!take_turn(&turn, insert))
			continue;
		round++;
		if (turn.result == IDEM_ROW_INSERTED)
		{
			check_stored_key(call, item, turn.stored);
			answer(call, item, true, turn.stored);
			return;
		}
		switch (look_anew(call, item))
		{
			case IDEM_ROW_FOUND:
				return;
			case IDEM_ROW_HIDDEN:
				raise_hidden(call);
				break;
			case IDEM_ROW_ABSENT:
				raise_what_is_in_the_way(call, &turn);
				break;
		}
	}
	raise_not_serializable();
}

/*
 * Inserts in the order of their keys, so that batches never wait for each other in
 * a circle.  Of items with one key the first is stored, and the others find it.
 */
static void
store_in_key_order(Call *call, BatchItem **missing, int nmissing)
{
	TargetKeyValues **values = (TargetKeyValues **) missing;	/* an item's first member */
	const BatchItem *stored = NULL;

	idem_target_sort_values(values, nmissing);
	for (int i = 0; i < nmissing; i++)
	{
		BatchItem  *item = missing[i];

		if (stored != NULL && idem_target_same_values(&stored->values, &item->values))
			answer(call, item, false, stored->stored);
		else
		{
			tell_about(call, item);
			store_item(call, item);
			stored = item;
		}
		MemoryContextReset(call->scratch);
	}
}

static void
store_missing(Call *call)
{
	BatchItem **missing = MemoryContextAllocHuge(CurrentMemoryContext, sizeof(BatchItem *) * call->nitems);
	bool		triggers = idem_target_has_row_triggers(&call->target);
	int			nmissing = 0;

	for (int i = 0; i < call->nitems; i++)
	{
		Turn		turn = {.call = call,.item = &call->items[i]};

		if (turn.item->answered)
			continue;
		missing[nmissing++] = turn.item;
		tell_about(call, turn.item);
		while (triggers && !take_turn(&turn, ask_triggers))
			CHECK_FOR_INTERRUPTS();
	}
	MemoryContextSwitchTo(call->scratch);
	store_in_key_order(call, missing, nmissing);
	MemoryContextSwitchTo(call->context);
}

/* ---------- the call ---------- */

/* As it was found by an earlier call, or by another session. */
static void
check_must_match(Call *call, const BatchItem *item)
{
	List	   *differing = idem_target_differing_columns(&call->target, &item->row, item->stored, call->must_match);
	StringInfoData names;
	ListCell   *cell;

	if (differing == NIL)
		return;
	initStringInfo(&names);
	foreach(cell, differing)
		appendStringInfo(&names, "%s%s", names.len > 0 ? ", " : "", (char *) lfirst(cell));
	ereport(ERROR,
			(errcode(IDEM_OPERATION_MISMATCH),
			 errmsg("the row of table \"%s\" with the same key is another one",
					RelationGetRelationName(call->target.relation)),
			 errdetail("What differs: %s.", names.data),
			 errhint("Send the same values with every retry, or another key for another row.")));
}

/*
 * Answers all items.  Returns false if the call must start over with the lock mode
 * of a writer.
 */
static bool
insert_or_return(Call *call, LOCKMODE lockmode)
{
	MemoryContextSwitchTo(call->scratch);
	call->all_found = look_for_all(call);
	MemoryContextSwitchTo(call->context);

	if (!call->all_found)
	{
		PreventCommandIfReadOnly(call->function_name);
		if (lockmode < RowExclusiveLock && !idem_target_try_lock(&call->target))
			return false;
		idem_target_check_insertable(&call->target);
		store_missing(call);
	}
	for (int i = 0; i < call->nitems; i++)
	{
		tell_about(call, &call->items[i]);
		if (!call->items[i].inserted)
			check_must_match(call, &call->items[i]);
	}
	return true;
}

/*
 * One try, with the target opened under this lock.  Under ACCESS SHARE what is there
 * already is returned without waiting for anybody, and the lock is given back.
 */
static bool
try_call(Call *call, FunctionCallInfo fcinfo, LOCKMODE lockmode)
{
	ErrorContextCallback about_item = {error_context_stack, tell_item, &call->number};
	bool		answered;

	if (call->batch)
		error_context_stack = &about_item;
	read_arguments(call, fcinfo, lockmode);
	answered = insert_or_return(call, lockmode);
	error_context_stack = about_item.previous;

	ExecDropSingleTupleTableSlot(call->slot);
	idem_target_close(&call->target, lockmode == AccessShareLock ? AccessShareLock : NoLock);
	return answered;
}

/* What the calls of one query share. */
static QueryState *
query_state(FunctionCallInfo fcinfo)
{
	QueryState *query = fcinfo->flinfo->fn_extra;
	MemoryContext before;

	if (query != NULL)
		return query;
	before = MemoryContextSwitchTo(fcinfo->flinfo->fn_mcxt);
	query = palloc0(sizeof(QueryState));
	query->reader.context = AllocSetContextCreate(CurrentMemoryContext, "idempotency new rows", ALLOCSET_SMALL_SIZES);
	if (get_call_result_type(fcinfo, NULL, &query->result) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");	/* its declaration says so */
	query->result = BlessTupleDesc(query->result);
	MemoryContextSwitchTo(before);
	fcinfo->flinfo->fn_extra = query;
	return query;
}

/*
 * Answers a call; the caller is connected to SPI.  The call's memory is SPI's.
 */
static Call *
make_call(FunctionCallInfo fcinfo, const char *function_name, bool batch)
{
	QueryState *query;
	Call	   *call = palloc(sizeof(Call));
	LOCKMODE	lockmode = AccessShareLock;

	for (;;)
	{
		memset(call, 0, sizeof(Call));
		call->function_name = function_name;
		call->batch = batch;
		call->started = GetCurrentTimestamp();
		call->context = CurrentMemoryContext;
		call->scratch = AllocSetContextCreate(call->context, "idempotency item", ALLOCSET_DEFAULT_SIZES);
		call->relid = read_target(fcinfo);
		query = query_state(fcinfo);
		call->reader = &query->reader;
		if (try_call(call, fcinfo, lockmode))
			return call;
		lockmode = RowExclusiveLock;
	}
}

IDEM_SQL_FUNCTION(idempotency_insert_or_return);

/*
 * insert_or_return(target, new_values, ...): see docs/reference.md
 */
Datum
idempotency_insert_or_return(PG_FUNCTION_ARGS)
{
	MemoryContext caller_context = CurrentMemoryContext;
	Datum		values[2];
	bool		nulls[2] = {false, false};
	Call	   *call;
	HeapTuple	result;

	SPI_connect();
	call = make_call(fcinfo, "insert_or_return()", false);
	values[0] = BoolGetDatum(call->items[0].inserted);
	values[1] = call->items[0].stored;

	MemoryContextSwitchTo(caller_context);
	result = heap_form_tuple(query_state(fcinfo)->result, values, nulls);
	SPI_finish();
	PG_RETURN_DATUM(HeapTupleGetDatum(result));
}

IDEM_SQL_FUNCTION(idempotency_insert_or_return_batch);

/*
 * insert_or_return_batch(target, new_values, ...): see docs/reference.md
 */
Datum
idempotency_insert_or_return_batch(PG_FUNCTION_ARGS)
{
	ResultSet	set = idem_result_set_begin(fcinfo, query_state(fcinfo)->result);
	bool		nulls[3] = {false, false, false};
	Call	   *call;

	SPI_connect();
	call = make_call(fcinfo, "insert_or_return_batch()", true);
	for (int i = 0; i < call->nitems; i++)
	{
		const BatchItem *item = &call->items[i];
		Datum		values[3] = {Int32GetDatum(item->number), BoolGetDatum(item->inserted), item->stored};

		idem_result_set_add(&set, values, nulls);
	}
	SPI_finish();
	return (Datum) 0;
}
