/*
 * target_row.c - what is done to a row of a user's table
 *
 * One room for all statements on users' tables.  They run as the caller, so
 * privileges, row security, triggers and constraints hold as for the plain
 * statement; values are always parameters; names and operators are written with
 * their schemas, so nothing depends on search_path.
 *
 * The guarded update.  A plain UPDATE under READ COMMITTED that finds its row
 * changed since its snapshot waits for the row, then evaluates its conditions
 * again on the new version, with the lock held (EvalPlanQual).  recheck() is one
 * of these conditions.  The first time it is asked the row is as the snapshot
 * shows it and it says yes: whoever looked at the log by the same snapshot has
 * looked at the right time.  Asked again, it looks at the log anew.  So a fresh
 * call pays for one look, and one that raced its twin still sees it.
 * REPEATABLE READ and SERIALIZABLE never evaluate again; there the UPDATE itself
 * raises 40001 when the row has changed.
 */
#include "postgres.h"

#include "compat.h"
#include "errors.h"
#include "plan_cache.h"
#include "target.h"
#include "transactions.h"

#include "access/htup_details.h"
#include "access/multixact.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/transam.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/pg_collation.h"
#include "catalog/pg_type.h"
#include "storage/procarray.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

/* the guarded update that is running */
typedef struct RunningUpdate
{
	TargetRecheck recheck;		/* or NULL: the row is held already */
	void	   *argument;
	uint64		asked;
} RunningUpdate;

/* innermost; each one resets it when it ends, also by an error */
static RunningUpdate *running_update;

/* ---------- statements ---------- */

/* what the text of a statement is made from */
typedef struct TextSource
{
	const TargetRow *row;
	const TargetColumn *column; /* or NULL */
} TextSource;

static char *
collation_clause(Oid collation)
{
	HeapTuple	tuple;
	Form_pg_collation form;
	char	   *clause;

	if (!OidIsValid(collation))
		return "";
	tuple = SearchSysCache1(COLLOID, ObjectIdGetDatum(collation));
	if (!HeapTupleIsValid(tuple))	/* the index depends on it */
		elog(ERROR, "cache lookup failed for collation %u", collation);
	form = (Form_pg_collation) GETSTRUCT(tuple);
	clause = psprintf(" COLLATE %s", quote_qualified_identifier(get_namespace_name(form->collnamespace),
																NameStr(form->collname)));
	ReleaseSysCache(tuple);
	return clause;
}

/*
 * Appends the condition that a column of the key has a value, which is an
 * expression of the column's base type, by the unique index's own operator and
 * collation.
 */
void
idem_target_write_equality(StatementText *out, const TargetKeyColumn *column, const char *value)
{
	generate_operator_clause(&out->sql,
							 psprintf("t.%s", quote_identifier(column->name)), column->type,
							 column->equality,
							 value, column->base_type);
	appendStringInfoString(&out->sql, collation_clause(column->collation));
}

/*
 * Appends the condition that names the row; the key's values are the next
 * parameters.
 */
void
idem_target_write_key_condition(StatementText *out, const TargetRow *row)
{
	for (int i = 0; i < row->key->ncolumns; i++)
	{
		const TargetKeyColumn *column = &row->key->columns[i];

		if (i > 0)
			appendStringInfoString(&out->sql, " AND ");
		idem_target_write_equality(out, column, psprintf("$%d", idem_statement_param(out, column->base_type)));
	}
}

/*
 * Whole numbers are added as numerics too: the sum is exact, and the assignment
 * says if it is out of the column's range.
 */
static void
write_add(StatementText *out, const void *context)
{
	const TextSource *source = context;
	const char *column = quote_identifier(source->column->name);
	char	   *key_condition;
	int			delta,
				minimum,
				maximum;

	/* the key's parameters come first in every statement, wherever it stands */
	idem_target_write_key_condition(out, source->row);
	key_condition = pstrdup(out->sql.data);
	resetStringInfo(&out->sql);
	delta = idem_statement_param(out, NUMERICOID);
	minimum = idem_statement_param(out, NUMERICOID);
	maximum = idem_statement_param(out, NUMERICOID);

	appendStringInfo(&out->sql,
					 "UPDATE %s AS t SET %s = t.%s OPERATOR(pg_catalog.+) $%d WHERE %s",
					 idem_target_qualified_name(source->row->target), column, column, delta, key_condition);
	appendStringInfo(&out->sql,
					 " AND ($%d IS NULL OR t.%s OPERATOR(pg_catalog.+) $%d OPERATOR(pg_catalog.>=) $%d)"
					 " AND ($%d IS NULL OR t.%s OPERATOR(pg_catalog.+) $%d OPERATOR(pg_catalog.<=) $%d)",
					 minimum, column, delta, minimum, maximum, column, delta, maximum);
	appendStringInfo(&out->sql,
					 " AND idempotency.recheck(t.%s) RETURNING t.%s::pg_catalog.numeric",
					 quote_identifier(source->row->key->columns[0].name), column);
}

static void
write_select(StatementText *out, const TextSource *source, const char *what, const char *locking)
{
	appendStringInfo(&out->sql, "SELECT %s FROM %s AS t WHERE ", what, idem_target_qualified_name(source->row->target));
	idem_target_write_key_condition(out, source->row);
	appendStringInfoString(&out->sql, locking);
}

/*
 * Returns the expression that reads a column.
 */
char *
idem_target_column_expression(const TargetColumn *column)
{
	return psprintf("t.%s::pg_catalog.%s", quote_identifier(column->name), column->read_as);
}

/* NO KEY: foreign keys that refer to the row are checked meanwhile. */
static void
write_lock(StatementText *out, const void *context)
{
	const TextSource *source = context;

	write_select(out, source, idem_target_column_expression(source->column), " FOR NO KEY UPDATE OF t");
}

static void
write_try_lock(StatementText *out, const void *context)
{
	const TextSource *source = context;

	write_select(out, source, idem_target_column_expression(source->column), " FOR NO KEY UPDATE OF t SKIP LOCKED");
}

static void
write_lock_nowait(StatementText *out, const void *context)
{
	const TextSource *source = context;

	write_select(out, source, idem_target_column_expression(source->column), " FOR NO KEY UPDATE OF t NOWAIT");
}

static void
write_exists(StatementText *out, const void *context)
{
	write_select(out, context, "", "");
}

static void
write_locate(StatementText *out, const void *context)
{
	write_select(out, context, "t.tableoid, t.ctid, t.xmin", "");
}

static void
write_insert(StatementText *out, const void *context)
{
	const TextSource *source = context;
	const TargetKey *key = source->row->key;

	appendStringInfo(&out->sql, "INSERT INTO %s AS t (", idem_target_qualified_name(source->row->target));
	for (int i = 0; i < key->ncolumns; i++)
		appendStringInfo(&out->sql, "%s, ", quote_identifier(key->columns[i].name));
	appendStringInfo(&out->sql, "%s) VALUES (", quote_identifier(source->column->name));
	for (int i = 0; i < key->ncolumns; i++)
		appendStringInfo(&out->sql, "$%d, ", idem_statement_param(out, key->columns[i].base_type));
	appendStringInfo(&out->sql, "$%d) ", idem_statement_param(out, NUMERICOID));
}

static void
write_returning(StatementText *out, const TextSource *source)
{
	appendStringInfo(&out->sql, "RETURNING %s", idem_target_column_expression(source->column));
	for (int i = 0; i < source->row->key->ncolumns; i++)
		appendStringInfo(&out->sql, ", t.%s", quote_identifier(source->row->key->columns[i].name));
}

static void
write_insert_missing(StatementText *out, const void *context)
{
	write_insert(out, context);
	appendStringInfoString(&out->sql, "ON CONFLICT DO NOTHING ");
	write_returning(out, context);
}

static void
write_plain_insert(StatementText *out, const void *context)
{
	write_insert(out, context);
	write_returning(out, context);
}

/* A statement whose first parameters are the row's key, and numbers after them. */
typedef struct RowStatement
{
	TextSource	source;
	Statement	statement;
	Datum		values[IDEM_MAX_PARAMS];
	char		nulls[IDEM_MAX_PARAMS];
} RowStatement;

static void
prepare(RowStatement *out, StatementKind kind, void (*write) (StatementText *, const void *), const TargetRow *row,
		const TargetColumn *column, Numeric *extra, int nextra)
{
	int			n = row->key->ncolumns;

	out->source.row = row;
	out->source.column = column;
	memset(&out->statement, 0, sizeof(Statement));
	out->statement.kind = kind;
	out->statement.relation = RelationGetRelid(row->target->relation);
	out->statement.index = row->key->index;
	out->statement.column = column ? column->number : 0;
	/* system columns need more than the privileges on the columns that the caller names */
	if (kind == IDEM_TARGET_LOCATE)
		out->statement.as_owner = row->target->relation->rd_rel->relowner;
	out->statement.write = write;
	out->statement.context = &out->source;

	memcpy(out->values, row->values, sizeof(Datum) * n);
	memset(out->nulls, ' ', sizeof(out->nulls));
	for (int i = 0; i < nextra; i++, n++)
	{
		out->values[n] = NumericGetDatum(extra[i]);
		out->nulls[n] = extra[i] == NULL ? 'n' : ' ';
	}
}

static uint64
execute(StatementKind kind, void (*write) (StatementText *, const void *), const TargetRow *row,
		const TargetColumn *column, Numeric *extra, int nextra)
{
	RowStatement statement;

	prepare(&statement, kind, write, row, column, extra, nextra);
	return idem_plan_cache_execute(&statement.statement, statement.values, statement.nulls, InvalidSnapshot, false);
}

/* Gives the result back; a call that waits long asks often. */
static void
free_result(void)
{
	SPI_freetuptable(SPI_tuptable);
}

/* The first column of the first row, of a type that is a pointer; NULL as a null pointer. */
static Datum
result_value(void)
{
	bool		isnull;
	Datum		value = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull);

	return isnull ? (Datum) 0 : value;
}

static Numeric
result_numeric(void)
{
	Datum		value = result_value();

	return value == (Datum) 0 ? NULL : DatumGetNumeric(value);
}

/*
 * Runs an UPDATE that has the condition idempotency.recheck().  With a recheck it
 * is guarded (see the top of this file): `snapshot` is the one the log was looked at
 * by, and `recheck` is asked if the row has changed since.  Without, the condition
 * holds.  Returns the number of rows that were changed.
 */
uint64
idem_target_execute_guarded(const Statement *statement, Datum *values, const char *nulls, Snapshot snapshot,
							TargetRecheck recheck, void *argument)
{
	RunningUpdate update = {.recheck = recheck,.argument = argument};
	RunningUpdate *outer = running_update;
	volatile uint64 nrows = 0;

	running_update = &update;
	PG_TRY();
	{
		nrows = idem_plan_cache_execute(statement, values, nulls, snapshot, false);
	}
	PG_FINALLY();
	{
		running_update = outer;
	}
	PG_END_TRY();
	return nrows;
}

/*
 * Adds to a column, unless the sum would leave the limits (either may be NULL).
 * Returns whether a row was changed, and in *value the column as it was then
 * stored, after triggers, NULL as a null pointer; it belongs to SPI.
 *
 * With a recheck the update is guarded (see the top of this file): `snapshot` is
 * the one the log was looked at by, and `recheck` is asked if the row has
 * changed since.  Without, the caller holds the row.
 */
bool
idem_target_add(const TargetRow *row, const TargetColumn *column, Numeric delta,
				Numeric minimum, Numeric maximum, Snapshot snapshot,
				TargetRecheck recheck, void *argument, Numeric *value)
{
	Numeric		extra[] = {delta, minimum, maximum};
	RowStatement statement;
	uint64		nrows;

	prepare(&statement, IDEM_TARGET_ADD, write_add, row, column, extra, lengthof(extra));
	nrows = idem_target_execute_guarded(&statement.statement, statement.values, statement.nulls, snapshot,
										recheck, argument);
	if (nrows == 0)
		return false;
	if (nrows > 1)				/* a unique key names one row */
		elog(ERROR, "update by unique key changed " UINT64_FORMAT " rows", nrows);
	*value = result_numeric();
	return true;
}

/*
 * Locks the row as an UPDATE of its columns would.  Returns whether it is now
 * held, and in *value the column, as the column says that it is read, NULL as a
 * null pointer; it belongs to SPI.  A row that is busy is had by another transaction;
 * or, where it was waited for, was replaced by another row of that key meanwhile, or
 * is shown by row security and may not be updated.  IDEM_LOCK_NOWAIT raises 55P03 for
 * one that another transaction has.
 */
TargetLock
idem_target_lock(const TargetRow *row, const TargetColumn *column, TargetLockWait wait, Datum *value)
{
	uint64		nrows = 0;

	switch (wait)
	{
		case IDEM_LOCK_WAIT:
			nrows = execute(IDEM_TARGET_LOCK, write_lock, row, column, NULL, 0);
			break;
		case IDEM_LOCK_TRY:
			nrows = execute(IDEM_TARGET_TRY_LOCK, write_try_lock, row, column, NULL, 0);
			break;
		case IDEM_LOCK_NOWAIT:
			nrows = execute(IDEM_TARGET_LOCK_NOWAIT, write_lock_nowait, row, column, NULL, 0);
			break;
	}

	if (nrows > 0)
	{
		*value = result_value();
		return IDEM_ROW_LOCKED;
	}
	free_result();
	nrows = execute(IDEM_TARGET_EXISTS, write_exists, row, NULL, NULL, 0);
	free_result();
	return nrows > 0 ? IDEM_ROW_BUSY : IDEM_ROW_MISSING;
}

/*
 * A column's type modifier may have rounded or cut the key, or a trigger changed
 * it: then the row that was stored is not the one that was named, and the next
 * call would not find it.
 */
static void
check_stored_key(const TargetRow *row)
{
	TargetRow	stored = {.target = row->target,.key = row->key};
	bool		isnull = false;
	bool		any_null = false;

	for (int i = 0; i < row->key->ncolumns; i++)
	{
		stored.values[i] = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, i + 2, &isnull);
		any_null |= isnull;
	}
	if (any_null || !idem_target_same_key(row, &stored))
		ereport(ERROR,
				(errcode(IDEM_ROW_SUPPRESSED),
				 errmsg("the row would be stored in table \"%s\" under another key",
						RelationGetRelationName(row->target->relation)),
				 errdetail("The key column's type rounds or cuts the value given, or a trigger changes it."),
				 errhint("Pass the key as it is stored.")));
}

/*
 * Creates the row with its key and the column; the other columns take their
 * defaults.  Returns false if nothing was inserted: a unique key was in the way
 * (an error, if `conflict_is_error`), or a trigger suppressed the row.
 */
bool
idem_target_insert(const TargetRow *row, const TargetColumn *column, Numeric initial,
				   bool conflict_is_error, Numeric *value)
{
	uint64		nrows;

	if (conflict_is_error)
		nrows = execute(IDEM_TARGET_INSERT, write_plain_insert, row, column, &initial, 1);
	else
		nrows = execute(IDEM_TARGET_INSERT_MISSING, write_insert_missing, row, column, &initial, 1);

	if (nrows == 0)
		return false;
	check_stored_key(row);
	*value = result_numeric();
	return true;
}

/*
 * Is the row there, if row security is left out of account?
 */
bool
idem_target_exists_for_owner(const TargetRow *row)
{
	return execute(IDEM_TARGET_LOCATE, write_locate, row, NULL, NULL, 0) > 0;
}

/*
 * Makes sure that a crash cannot take back what the snapshot shows of the row.
 */
void
idem_target_flush(const TargetRow *row, Snapshot snapshot)
{
	RowStatement statement;
	bool		isnull;

	if (RecoveryInProgress())
		return;
	prepare(&statement, IDEM_TARGET_LOCATE, write_locate, row, NULL, NULL, 0);
	if (idem_plan_cache_execute(&statement.statement, statement.values, statement.nulls, snapshot, true) > 0)
		idem_transactions_flush_commit(DatumGetTransactionId(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 3, &isnull)));
	free_result();
}

/* ---------- who holds a row ---------- */

static TransactionId
running_member(TransactionId xmax)
{
	MultiXactMember *members;
	int			nmembers = GetMultiXactIdMembers(xmax, &members, false, false);

	for (int i = 0; i < nmembers; i++)
	{
		/* a foreign key's check does not keep anyone from updating the row */
		if (members[i].status != MultiXactStatusForKeyShare &&
			!TransactionIdIsCurrentTransactionId(members[i].xid) &&
			TransactionIdIsInProgress(members[i].xid))
			return members[i].xid;
	}
	return InvalidTransactionId;
}

static TransactionId
running_holder(HeapTupleHeader tuple)
{
	TransactionId xmax = HeapTupleHeaderGetRawXmax(tuple);

	if (tuple->t_infomask & HEAP_XMAX_INVALID)
		return InvalidTransactionId;
	if (tuple->t_infomask & HEAP_XMAX_IS_MULTI)
		return running_member(xmax);
	if (HEAP_XMAX_IS_KEYSHR_LOCKED(tuple->t_infomask) ||
		TransactionIdIsCurrentTransactionId(xmax) || !TransactionIdIsInProgress(xmax))
		return InvalidTransactionId;
	return xmax;
}

/*
 * Returns a transaction that holds the row's lock, or InvalidTransactionId if
 * none does any more.  A hint: it tells whom to wait for.
 */
TransactionId
idem_target_holder(const TargetRow *row)
{
	TransactionId holder = InvalidTransactionId;
	bool		isnull;
	Oid			relid;
	ItemPointerData tid;
	Relation	relation;
	TupleTableSlot *slot;

	if (execute(IDEM_TARGET_LOCATE, write_locate, row, NULL, NULL, 0) == 0)
	{
		free_result();
		return InvalidTransactionId;
	}
	relid = DatumGetObjectId(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull));
	tid = *(ItemPointer) DatumGetPointer(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 2, &isnull));
	free_result();

	relation = table_open(relid, AccessShareLock);
	slot = table_slot_create(relation, NULL);
	if (TTS_IS_BUFFERTUPLE(slot) && table_tuple_fetch_row_version(relation, &tid, SnapshotAny, slot))
	{
		bool		should_free;

		holder = running_holder(ExecFetchSlotHeapTuple(slot, false, &should_free)->t_data);
	}
	ExecDropSingleTupleTableSlot(slot);
	table_close(relation, NoLock);
	return holder;
}

IDEM_SQL_FUNCTION(idempotency_recheck);

/*
 * The condition of a guarded update; see the top of this file.
 */
Datum
idempotency_recheck(PG_FUNCTION_ARGS)
{
	RunningUpdate *update = running_update;

	if (update == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("recheck() is not meant to be called"),
				 errhint("It is part of the statements that this extension makes.")));

	if (update->asked++ == 0 || update->recheck == NULL || IsolationUsesXactSnapshot())
		PG_RETURN_BOOL(true);
	PG_RETURN_BOOL(update->recheck(update->argument));
}
