/*
 * transition_batch.c - take many rows from one of some states to another
 *
 * Look at all of them by a snapshot: if every row is in the state that it would go
 * to already, that is the answer, and nothing is locked.  Otherwise the other rows
 * are locked in the order of their key, so that batches never wait for one another
 * in a circle; they are judged under their locks, and those that may move are moved
 * by one UPDATE.
 */
#include "postgres.h"

#include "arguments.h"
#include "compat.h"
#include "errors.h"
#include "operation_log.h"
#include "result_set.h"
#include "target.h"
#include "transition.h"

#include "access/xact.h"
#include "executor/spi.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

enum
{
	ARG_TARGET,
	ARG_KEYS,
	ARG_FROM_STATES,
	ARG_TO_STATE,
	ARG_COLUMN_NAME,
	ARG_CHANGES
};

typedef struct BatchItem
{
	TargetKeyValues values;		/* comes first: they are sorted by it */
	int			number;			/* in the order of the input, from 1 */
	const struct BatchItem *first;	/* another item of this key, or NULL */
	Outcome		outcome;
	char	   *previous_state; /* or NULL */
	char	   *state;			/* or NULL */
} BatchItem;

typedef struct Call
{
	Target		target;
	TargetColumn column;
	TransitionRule rule;
	TargetReader *reader;
	TargetNewRow changes;
	bool		has_changes;
	int			nitems;
	BatchItem  *items;			/* in the order of the input */
	int			nrows;
	BatchItem **rows;			/* those of different keys, in the order of the key */
	int			number;			/* of the item that an error is about, or 0 */
} Call;

/* ---------- arguments ---------- */

static void
tell_item(void *argument)
{
	if (*(int *) argument > 0)
		errcontext("item %d of keys", *(int *) argument);
}

/* The values of an item's key, in the current memory context. */
static void
keep_values(Call *call, BatchItem *item, const TargetRow *row)
{
	IndexKey   *index_key = &item->values.index_key;

	if (call->items[0].values.key != row->key && item != call->items)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("all keys must name columns of the same unique key"),
				 errhint("Write each of them as the first one.")));
	item->values.key = row->key;
	item->values.outside = false;
	item->values.null_column = -1;
	index_key->ncolumns = row->key->ncolumns;
	for (int i = 0; i < row->key->ncolumns; i++)
	{
		int16		length;
		bool		by_value;

		get_typlenbyval(row->key->columns[i].base_type, &length, &by_value);
		index_key->values[i] = datumCopy(row->values[i], by_value, length);
		index_key->nulls[i] = false;
	}
}

static void
read_keys(Call *call, ArrayType *keys, TargetRow *any_row)
{
	Oid			type = ARR_ELEMTYPE(keys);
	MemoryContext context = CurrentMemoryContext;
	MemoryContext scratch = AllocSetContextCreate(context, "idempotency keys", ALLOCSET_DEFAULT_SIZES);
	int16		length;
	bool		by_value;
	char		align;
	Datum	   *values;
	bool	   *nulls;

	get_typlenbyvalalign(type, &length, &by_value, &align);
	deconstruct_array(keys, type, length, by_value, align, &values, &nulls, &call->nitems);
	call->items = MemoryContextAllocExtended(context, sizeof(BatchItem) * Max(call->nitems, 1), MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
	for (int i = 0; i < call->nitems; i++)
	{
		call->number = call->items[i].number = i + 1;
		if (nulls[i])
			ereport(ERROR,
					(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
					 errmsg("a key must not be NULL"),
					 errhint("A NULL is equal to nothing, so it cannot name a row.")));
		MemoryContextSwitchTo(scratch);
		idem_target_read_key(&call->target, values[i], type, any_row);
		MemoryContextSwitchTo(context);
		keep_values(call, &call->items[i], any_row);
		MemoryContextReset(scratch);
	}
	call->number = 0;
}

/* Finds the rows that are meant, in the order of their key; an item that repeats a key is answered as its first. */
static void
sort_rows(Call *call)
{
	call->rows = MemoryContextAllocHuge(CurrentMemoryContext, sizeof(BatchItem *) * Max(call->nitems, 1));
	for (int i = 0; i < call->nitems; i++)
		call->rows[i] = &call->items[i];
	idem_target_sort_values((TargetKeyValues **) call->rows, call->nitems);
	for (int i = 0; i < call->nitems; i++)
	{
		BatchItem  *item = call->rows[i];
		BatchItem  *before = call->nrows > 0 ? call->rows[call->nrows - 1] : NULL;

		if (before != NULL && idem_target_same_values(&before->values, &item->values))
			item->first = before;
		else
			call->rows[call->nrows++] = item;
	}
}

static void
read_arguments(Call *call, FunctionCallInfo fcinfo, LOCKMODE lockmode)
{
	TargetRow	row = {0};

	idem_arguments_require(fcinfo, ARG_TARGET, "target");
	idem_arguments_require(fcinfo, ARG_KEYS, "keys");
	idem_arguments_require(fcinfo, ARG_FROM_STATES, "from_states");
	idem_arguments_require(fcinfo, ARG_TO_STATE, "to_state");
	idem_arguments_require(fcinfo, ARG_COLUMN_NAME, "column_name");
	idem_transition_rule_read_states(&call->rule, PG_GETARG_ARRAYTYPE_P(ARG_FROM_STATES), PG_GETARG_TEXT_PP(ARG_TO_STATE));
	call->reader = idem_transition_reader(fcinfo->flinfo);

	idem_target_open(&call->target, PG_GETARG_OID(ARG_TARGET), lockmode);
	idem_target_read_state_column(&call->target, NameStr(*PG_GETARG_NAME(ARG_COLUMN_NAME)), &call->column);
	idem_transition_rule_check(&call->rule, &call->target, &call->column);
	read_keys(call, PG_GETARG_ARRAYTYPE_P(ARG_KEYS), &row);
	if (call->nitems == 0)
		return;
	idem_target_check_not_in_key(&row, call->column.number);
	if (!PG_ARGISNULL(ARG_CHANGES))
	{
		idem_target_read_changes(&row, &call->column, PG_GETARG_JSONB_P(ARG_CHANGES), call->reader, &call->changes);
		call->has_changes = call->changes.given != NULL;
	}
	sort_rows(call);
}

/* ---------- looking ---------- */

static void
answer(BatchItem *item, Outcome outcome, char *previous_state, char *state)
{
	item->outcome = outcome;
	item->previous_state = previous_state;
	item->state = state;
}

static Verdict
judge(const Call *call, const RowState *state)
{
	const char *to;

	return state->found ? idem_transition_rule_judge(&call->rule, state->state, &to) : IDEM_MAY_NOT_MOVE;
}

static void
gather(Call *call, BatchItem **items, int nitems, TargetRows *rows)
{
	idem_target_gather(&call->target, (TargetKeyValues **) items, nitems, rows);
}

/*
 * Answers what rests on rows that the snapshot shows where they would go.  Where a
 * transaction reads by one snapshot they may have gone on since: 40001, as for
 * whoever locked them.
 */
static void
confirm_duplicates(Call *call, BatchItem **items, int nitems, Snapshot snapshot)
{
	Snapshot	newest = IsolationUsesXactSnapshot() ? GetLatestSnapshot() : snapshot;
	RowState   *states;
	TargetRows	rows;

	if (nitems == 0)
		return;
	gather(call, items, nitems, &rows);
	newest = RegisterSnapshot(newest);
	if (IsolationUsesXactSnapshot())
	{
		states = idem_target_read_states(&rows, &call->column, newest);
		for (int i = 0; i < nitems; i++)
		{
			if (judge(call, &states[i]) != IDEM_IS_THERE)
				ereport(ERROR,
						(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
						 errmsg("could not serialize access due to concurrent update"),
						 errhint("The transaction might succeed if retried.")));
		}
	}
	idem_target_flush_all(&rows, newest);
	UnregisterSnapshot(newest);
}

/*
 * Looks at all rows, and answers those that are where they would go.  Returns how
 * many are left; they stand first in `left`.
 */
static int
look(Call *call, BatchItem **left)
{
	Snapshot	snapshot = RegisterSnapshot(GetTransactionSnapshot());
	BatchItem **there = MemoryContextAllocHuge(CurrentMemoryContext, sizeof(BatchItem *) * call->nrows);
	TargetRows	rows;
	RowState   *states;
	int			nleft = 0;
	int			nthere = 0;

	gather(call, call->rows, call->nrows, &rows);
	states = idem_target_read_states(&rows, &call->column, snapshot);
	for (int i = 0; i < call->nrows; i++)
	{
		if (judge(call, &states[i]) == IDEM_IS_THERE)
		{
			there[nthere++] = call->rows[i];
			answer(call->rows[i], IDEM_DUPLICATE, NULL, states[i].state);
		}
		else
			left[nleft++] = call->rows[i];
	}
	confirm_duplicates(call, there, nthere, snapshot);
	UnregisterSnapshot(snapshot);
	pfree(there);
	return nleft;
}

/* ---------- moving ---------- */

static void
raise_row_missing(Call *call, const BatchItem *item)
{
	call->number = item->number;
	ereport(ERROR,
			(errcode(IDEM_TARGET_ROW_MISSING),
			 errmsg("table \"%s\" has no row with the key given", RelationGetRelationName(call->target.relation)),
			 errhint("Leave out rows that do not exist.")));
}

static void
raise_row_suppressed(Call *call, const BatchItem *item)
{
	call->number = item->number;
	ereport(ERROR,
			(errcode(IDEM_ROW_SUPPRESSED),
			 errmsg("the row of table \"%s\" was not updated", RelationGetRelationName(call->target.relation)),
			 errdetail("A BEFORE trigger or row security kept it from being stored."),
			 errhint("Change the trigger or the policy, or leave the row out.")));
}

/* Locks rows, answers those that may not move, and leaves the others first in `items`.  Returns how many. */
static int
lock_and_judge(Call *call, BatchItem **items, int nitems)
{
	TargetRows	rows;
	RowState   *states;
	int			nleft = 0;

	gather(call, items, nitems, &rows);
	states = idem_target_lock_states(&rows, &call->column);
	for (int i = 0; i < nitems; i++)
	{
		BatchItem  *item = items[i];

		if (!states[i].found)
			raise_row_missing(call, item);
		switch (judge(call, &states[i]))
		{
			case IDEM_MAY_MOVE:
				answer(item, IDEM_APPLIED, states[i].state, NULL);
				items[nleft++] = item;
				break;
			case IDEM_IS_THERE:
				answer(item, IDEM_DUPLICATE, NULL, states[i].state);
				break;
			case IDEM_MAY_NOT_MOVE:
				answer(item, IDEM_REJECTED, NULL, states[i].state);
				break;
		}
	}
	return nleft;
}

static void
move(Call *call, BatchItem **items, int nitems)
{
	TargetMove	way = {
		.column = &call->column,
		.to = idem_target_state_value(&call->column, call->rule.to),
		.changes = call->has_changes ? &call->changes : NULL
	};
	TargetRows	rows;
	RowState   *states;

	if (nitems == 0)
		return;
	gather(call, items, nitems, &rows);
	states = idem_target_move_all(&rows, &way);
	for (int i = 0; i < nitems; i++)
	{
		if (!states[i].found)
			raise_row_suppressed(call, items[i]);
		items[i]->state = states[i].state;
	}
}

static void
answer_repeated(Call *call)
{
	for (int i = 0; i < call->nitems; i++)
	{
		BatchItem  *item = &call->items[i];

		if (item->first != NULL)
			answer(item, item->first->outcome == IDEM_REJECTED ? IDEM_REJECTED : IDEM_DUPLICATE, NULL, item->first->state);
	}
}

/* Returns false if the call must start over with the lock mode of a writer. */
static bool
answer_all(Call *call, LOCKMODE lockmode)
{
	BatchItem **left;
	int			nleft;

	if (call->nitems == 0)
		return true;
	left = MemoryContextAllocHuge(CurrentMemoryContext, sizeof(BatchItem *) * call->nrows);
	nleft = look(call, left);
	if (nleft > 0)
	{
		PreventCommandIfReadOnly("transition_batch()");
		if (lockmode < RowExclusiveLock && !idem_target_try_lock(&call->target))
			return false;
		idem_target_check_insertable(&call->target);
		move(call, left, lock_and_judge(call, left, nleft));
	}
	answer_repeated(call);
	return true;
}

/* ---------- the call ---------- */

/* One try, with the target opened under this lock.  See answer_all() for what it returns. */
static bool
try_call(Call *call, FunctionCallInfo fcinfo, LOCKMODE lockmode)
{
	ErrorContextCallback about_item = {error_context_stack, tell_item, &call->number};
	bool		answered;

	error_context_stack = &about_item;
	read_arguments(call, fcinfo, lockmode);
	answered = answer_all(call, lockmode);
	error_context_stack = about_item.previous;
	idem_target_close(&call->target, lockmode == AccessShareLock ? AccessShareLock : NoLock);
	return answered;
}

static Call *
make_call(FunctionCallInfo fcinfo)
{
	for (LOCKMODE lockmode = AccessShareLock;; lockmode = RowExclusiveLock)
	{
		Call	   *call = palloc0(sizeof(Call));

		if (try_call(call, fcinfo, lockmode))
			return call;
	}
}

static void
add_answer(ResultSet *set, const BatchItem *item)
{
	Datum		values[4] = {Int32GetDatum(item->number), CStringGetTextDatum(idem_outcome_name(item->outcome))};
	bool		nulls[4] = {false, false, item->previous_state == NULL, item->state == NULL};

	if (item->previous_state != NULL)
		values[2] = CStringGetTextDatum(item->previous_state);
	if (item->state != NULL)
		values[3] = CStringGetTextDatum(item->state);
	idem_result_set_add(set, values, nulls);
}

IDEM_SQL_FUNCTION(idempotency_transition_batch);

/*
 * transition_batch(target, keys, from_states, to_state, ...): see docs/reference.md
 */
Datum
idempotency_transition_batch(PG_FUNCTION_ARGS)
{
	ResultSet	set = idem_result_set_begin(fcinfo, NULL);
	Call	   *call;

	SPI_connect();
	call = make_call(fcinfo);
	for (int i = 0; i < call->nitems; i++)
		add_answer(&set, &call->items[i]);
	SPI_finish();
	return (Datum) 0;
}
