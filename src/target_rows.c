/*
 * target_rows.c - many rows of a user's table at once
 *
 * The keys go into one statement as arrays, one for each column of the key, in the
 * order of the key.  The rows are locked in this order, whatever plan finds them.
 */
#include "postgres.h"

#include "compat.h"
#include "plan_cache.h"
#include "target.h"
#include "transactions.h"

#include "access/xlog.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

/* what the text of a statement is made from */
typedef struct TextSource
{
	const TargetRows *rows;
	const TargetColumn *column;
	const TargetMove *move;		/* or NULL */
} TextSource;

/*
 * Gathers rows by the values of their key, which are sorted.
 */
void
idem_target_gather(const Target *target, TargetKeyValues **values, int nrows, TargetRows *rows)
{
	const TargetKey *key = values[0]->key;
	Datum	   *column_values = MemoryContextAllocHuge(CurrentMemoryContext, sizeof(Datum) * nrows);

	rows->target = target;
	rows->key = key;
	rows->nrows = nrows;
	for (int i = 0; i < key->ncolumns; i++)
	{
		Oid			type = key->columns[i].base_type;
		int16		length;
		bool		by_value;
		char		align;

		if (!OidIsValid(get_array_type(type)))
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("key column \"%s\" is of type %s, of which there are no arrays", key->columns[i].name,
							format_type_be(key->columns[i].type)),
					 errhint("Call the function for one row at a time.")));
		get_typlenbyvalalign(type, &length, &by_value, &align);
		for (int row = 0; row < nrows; row++)
			column_values[row] = values[row]->index_key.values[i];
		rows->arrays[i] = PointerGetDatum(construct_array(column_values, nrows, type, length, by_value, align));
	}
	pfree(column_values);
}

/* Appends "ROWS FROM (unnest($1), unnest($2)) WITH ORDINALITY AS k (c0, c1, n)". */
static void
write_keys(StatementText *out, const TargetKey *key)
{
	appendStringInfoString(&out->sql, "ROWS FROM (");
	for (int i = 0; i < key->ncolumns; i++)
		appendStringInfo(&out->sql, "%spg_catalog.unnest($%d)", i > 0 ? ", " : "",
						 idem_statement_param(out, get_array_type(key->columns[i].base_type)));
	appendStringInfoString(&out->sql, ") WITH ORDINALITY AS k (");
	for (int i = 0; i < key->ncolumns; i++)
		appendStringInfo(&out->sql, "c%d, ", i);
	appendStringInfoString(&out->sql, "n)");
}

static void
write_condition(StatementText *out, const TargetKey *key)
{
	for (int i = 0; i < key->ncolumns; i++)
	{
		if (i > 0)
			appendStringInfoString(&out->sql, " AND ");
		idem_target_write_equality(out, &key->columns[i], psprintf("k.c%d", i));
	}
}

static void
write_select(StatementText *out, const TextSource *source, const char *what)
{
	appendStringInfo(&out->sql, "SELECT %s FROM ", what);
	write_keys(out, source->rows->key);
	appendStringInfo(&out->sql, " JOIN %s AS t ON ", idem_target_qualified_name(source->rows->target));
	write_condition(out, source->rows->key);
}

static void
write_read(StatementText *out, const void *context)
{
	const TextSource *source = context;

	write_select(out, source, psprintf("k.n, %s", idem_target_column_expression(source->column)));
}

static void
write_locate(StatementText *out, const void *context)
{
	write_select(out, context, "DISTINCT t.xmin");
}

/* NO KEY: foreign keys that refer to the rows are checked meanwhile. */
static void
write_lock(StatementText *out, const void *context)
{
	write_read(out, context);
	appendStringInfoString(&out->sql, " ORDER BY k.n FOR NO KEY UPDATE OF t");
}

static void
write_move(StatementText *out, const void *context)
{
	const TextSource *source = context;
	char	   *keys;

	write_keys(out, source->rows->key);
	keys = pstrdup(out->sql.data);
	resetStringInfo(&out->sql);
	appendStringInfo(&out->sql, "UPDATE %s AS t SET ", idem_target_qualified_name(source->rows->target));
	idem_target_write_assignments(out, source->rows->target, source->move);
	appendStringInfo(&out->sql, " FROM %s WHERE ", keys);
	write_condition(out, source->rows->key);
	appendStringInfo(&out->sql, " RETURNING k.n, %s", idem_target_column_expression(source->column));
}

/* Takes over (n, state) of each row that the statement gave. */
static void
take_states(uint64 nfound, RowState *states)
{
	for (uint64 i = 0; i < nfound; i++)
	{
		HeapTuple	tuple = SPI_tuptable->vals[i];
		bool		isnull;
		RowState   *state = &states[DatumGetInt64(SPI_getbinval(tuple, SPI_tuptable->tupdesc, 1, &isnull)) - 1];
		Datum		value = SPI_getbinval(tuple, SPI_tuptable->tupdesc, 2, &isnull);

		state->found = true;
		state->state = isnull ? NULL : TextDatumGetCString(value);
	}
	SPI_freetuptable(SPI_tuptable);
}

static RowState *
execute(StatementKind kind, void (*write) (StatementText *, const void *), const TextSource *source, Snapshot snapshot)
{
	const TargetRows *rows = source->rows;
	Statement	statement = {
		.kind = kind,
		.relation = RelationGetRelid(rows->target->relation),
		.index = rows->key->index,
		.column = source->column->number,
		.columns = source->move && source->move->changes ? source->move->changes->given : NULL,
		.write = write,
		.context = source
	};
	RowState   *states = MemoryContextAllocExtended(CurrentMemoryContext, sizeof(RowState) * Max(rows->nrows, 1),
													MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
	MemoryContext context = CurrentMemoryContext;
	Datum		values[IDEM_MAX_PARAMS];
	int			n = rows->key->ncolumns;
	uint64		nfound;

	memcpy(values, rows->arrays, sizeof(Datum) * n);
	if (source->move != NULL)
	{
		values[n++] = source->move->to;
		if (source->move->changes != NULL)
			values[n++] = source->move->changes->values;
	}
	nfound = idem_plan_cache_execute(&statement, values, NULL, snapshot, kind == IDEM_TARGET_READ_STATES);
	MemoryContextSwitchTo(context);
	take_states(nfound, states);
	return states;
}

/*
 * Reads the rows' states by a snapshot; locks nothing.  Returns one for each row, in
 * the current memory context.
 */
RowState *
idem_target_read_states(const TargetRows *rows, const TargetColumn *column, Snapshot snapshot)
{
	TextSource	source = {.rows = rows,.column = column};

	return execute(IDEM_TARGET_READ_STATES, write_read, &source, snapshot);
}

/*
 * Locks the rows as an UPDATE of their states would, in their order, and returns the
 * states as they are then.  A row that there is not, or not any more, is not found.
 */
RowState *
idem_target_lock_states(const TargetRows *rows, const TargetColumn *column)
{
	TextSource	source = {.rows = rows,.column = column};

	return execute(IDEM_TARGET_LOCK_STATES, write_lock, &source, InvalidSnapshot);
}

/*
 * Sets the states of rows that are held.  Returns them as they were stored, after
 * triggers; what is not found was not updated.
 */
RowState *
idem_target_move_all(const TargetRows *rows, const TargetMove *move)
{
	TextSource	source = {.rows = rows,.column = move->column,.move = move};

	return execute(IDEM_TARGET_MOVE_ALL, write_move, &source, InvalidSnapshot);
}

/*
 * Makes sure that a crash cannot take back what the snapshot shows of the rows.
 */
void
idem_target_flush_all(const TargetRows *rows, Snapshot snapshot)
{
	TextSource	source = {.rows = rows};
	Statement	statement = {
		.kind = IDEM_TARGET_LOCATE_ALL,
		.relation = RelationGetRelid(rows->target->relation),
		.index = rows->key->index,
		/* system columns need more than the privileges on the columns that the caller names */
		.as_owner = rows->target->relation->rd_rel->relowner,
		.write = write_locate,
		.context = &source
	};
	uint64		nwriters;
	bool		isnull;

	if (RecoveryInProgress())
		return;
	nwriters = idem_plan_cache_execute(&statement, (Datum *) rows->arrays, NULL, snapshot, true);
	for (uint64 i = 0; i < nwriters; i++)
		idem_transactions_flush_commit(DatumGetTransactionId(SPI_getbinval(SPI_tuptable->vals[i], SPI_tuptable->tupdesc, 1, &isnull)));
	SPI_freetuptable(SPI_tuptable);
}
