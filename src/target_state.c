/*
 * target_state.c - the state that a row of a user's table is in
 *
 * States are compared by their names, byte by byte, whatever the column's type and
 * collation: as the diagram has them.
 */
#include "postgres.h"

#include "compat.h"
#include "plan_cache.h"
#include "target.h"

#include "access/htup_details.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/syscache.h"

/* what the text of a statement is made from */
typedef struct TextSource
{
	const TargetRow *row;
	const TargetMove *move;
	const TargetColumn *column;
} TextSource;

/* ---------- values ---------- */

/*
 * Raises 22P02 for what is no label of the column's enum type.
 */
void
idem_target_check_state(const TargetColumn *column, const char *name)
{
	char	   *type;

	if (!type_is_enum(column->base_type) ||
		(strlen(name) < NAMEDATALEN &&
		 SearchSysCacheExists2(ENUMTYPOIDNAME, ObjectIdGetDatum(column->base_type), CStringGetDatum(name))))
		return;
	type = format_type_be(column->base_type);
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_TEXT_REPRESENTATION),
			 errmsg("column \"%s\" has no state \"%s\"", column->name, name),
			 errdetail("Its type %s has no such label.", type),
			 errhint("SELECT enum_range(NULL::%s) lists them.", type)));
}

/*
 * Returns the value of the column that a state's name stands for, as statements are
 * given it.  Raises 22P02 for what is no label of the column's enum type.
 */
Datum
idem_target_state_value(const TargetColumn *column, const char *name)
{
	Oid			input_function;
	Oid			parameter;

	if (!type_is_enum(column->base_type))
		return CStringGetTextDatum(name);
	idem_target_check_state(column, name);
	getTypeInputInfo(column->base_type, &input_function, &parameter);
	return OidInputFunctionCall(input_function, (char *) name, parameter, -1);
}

static Oid
parameter_type(const TargetColumn *column)
{
	return type_is_enum(column->base_type) ? column->base_type : TEXTOID;
}

/*
 * Reads what is to be changed besides the state.  Raises 22023 for what is no
 * object and for the state itself, 42P10 for a column of the key, 42703, and what
 * the columns' types raise.
 */
void
idem_target_read_changes(const TargetRow *row, const TargetColumn *column, Jsonb *json,
						 TargetReader *reader, TargetNewRow *changes)
{
	int			number = -1;

	idem_target_read_new_row(row->target, json, "changes", reader, changes);
	if (bms_is_member(column->number, changes->given))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("changes must not have the state column \"%s\"", column->name),
				 errhint("Pass the new state as such.")));
	while ((number = bms_next_member(changes->given, number)) > 0)
		idem_target_check_not_in_key(row, number);
}

/* ---------- statements about one row ---------- */

static void
write_read_state(StatementText *out, const void *context)
{
	const TextSource *source = context;

	appendStringInfo(&out->sql, "SELECT %s FROM %s AS t WHERE ", idem_target_column_expression(source->column),
					 idem_target_qualified_name(source->row->target));
	idem_target_write_key_condition(out, source->row);
}

/*
 * Appends "status = $1, note = ($2).note, ...": the next parameters are the state
 * and, if there are any, the changes.
 */
void
idem_target_write_assignments(StatementText *out, const Target *target, const TargetMove *move)
{
	Relation	relation = target->relation;
	int			number = -1;
	int			changes;

	appendStringInfo(&out->sql, "%s = $%d", quote_identifier(move->column->name),
					 idem_statement_param(out, parameter_type(move->column)));
	if (move->changes == NULL)
		return;
	changes = idem_statement_param(out, relation->rd_rel->reltype);
	while ((number = bms_next_member(move->changes->given, number)) > 0)
	{
		const char *name = quote_identifier(get_attname(RelationGetRelid(relation), number, false));

		appendStringInfo(&out->sql, ", %s = ($%d).%s", name, changes, name);
	}
}

/* The parameters: the key's, the state and the changes, and the state that the row comes from. */
static void
write_move(StatementText *out, const void *context)
{
	const TextSource *source = context;
	char	   *condition;
	char	   *assignments;
	int			from;

	idem_target_write_key_condition(out, source->row);
	condition = pstrdup(out->sql.data);
	resetStringInfo(&out->sql);
	idem_target_write_assignments(out, source->row->target, source->move);
	assignments = pstrdup(out->sql.data);
	resetStringInfo(&out->sql);
	from = idem_statement_param(out, TEXTOID);

	appendStringInfo(&out->sql,
					 "UPDATE %s AS t SET %s WHERE %s"
					 " AND ($%d IS NULL OR %s COLLATE pg_catalog.\"C\" OPERATOR(pg_catalog.=) $%d)"
					 " AND idempotency.recheck(t.%s) RETURNING %s",
					 idem_target_qualified_name(source->row->target), assignments, condition,
					 from, idem_target_column_expression(source->column), from,
					 quote_identifier(source->row->key->columns[0].name),
					 idem_target_column_expression(source->column));
}

/* The first column of the first row as a string, NULL as a null pointer. */
static char *
result_name(void)
{
	bool		isnull;
	Datum		value = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull);

	return isnull ? NULL : TextDatumGetCString(value);
}

/*
 * Reads the row's state by a snapshot, in the current memory context; NULL as a null
 * pointer.  Returns whether there is a row.  Locks nothing, and works in a read-only
 * transaction and on a standby.
 */
bool
idem_target_read_state(const TargetRow *row, const TargetColumn *column, Snapshot snapshot, char **state)
{
	TextSource	source = {.row = row,.column = column};
	Statement	statement = {
		.kind = IDEM_TARGET_READ_STATE,
		.relation = RelationGetRelid(row->target->relation),
		.index = row->key->index,
		.column = column->number,
		.write = write_read_state,
		.context = &source
	};
	MemoryContext context = CurrentMemoryContext;
	bool		found = idem_plan_cache_execute(&statement, (Datum *) row->values, NULL, snapshot, true) > 0;

	MemoryContextSwitchTo(context);
	if (found)
		*state = result_name();
	SPI_freetuptable(SPI_tuptable);
	return found;
}

/*
 * Sets the row's state, and what else is to be changed, if it is in the state that
 * it is to come from.  Returns whether a row was changed, and in *state the state as
 * it was then stored, after triggers, in the current memory context; NULL as a null
 * pointer.  With a recheck the update is guarded, see idem_target_execute_guarded();
 * without, the caller holds the row, or no log is asked.
 */
bool
idem_target_move(const TargetRow *row, const TargetMove *move, Snapshot snapshot,
				 TargetRecheck recheck, void *argument, char **state)
{
	TextSource	source = {.row = row,.move = move,.column = move->column};
	Statement	statement = {
		.kind = IDEM_TARGET_MOVE,
		.relation = RelationGetRelid(row->target->relation),
		.index = row->key->index,
		.column = move->column->number,
		.columns = move->changes ? move->changes->given : NULL,
		.write = write_move,
		.context = &source
	};
	MemoryContext context = CurrentMemoryContext;
	Datum		values[IDEM_MAX_PARAMS];
	char		nulls[IDEM_MAX_PARAMS];
	int			n = row->key->ncolumns;
	bool		moved;

	memcpy(values, row->values, sizeof(Datum) * n);
	memset(nulls, ' ', sizeof(nulls));
	values[n++] = move->to;
	if (move->changes != NULL)
		values[n++] = move->changes->values;
	values[n] = move->from ? CStringGetTextDatum(move->from) : (Datum) 0;
	nulls[n] = move->from ? ' ' : 'n';

	moved = idem_target_execute_guarded(&statement, values, nulls, snapshot, recheck, argument) > 0;
	MemoryContextSwitchTo(context);
	if (moved)
		*state = result_name();
	SPI_freetuptable(SPI_tuptable);
	return moved;
}

/* ---------- counts ---------- */

static void
write_count_states(StatementText *out, const void *context)
{
	const TextSource *source = context;
	char	   *state = idem_target_column_expression(source->column);

	appendStringInfo(&out->sql, "SELECT %s, pg_catalog.count(*) FROM %s AS t GROUP BY 1 ORDER BY %s COLLATE pg_catalog.\"C\"",
					 state, idem_target_qualified_name(source->row->target), state);
}

/*
 * Returns how many rows are in each state, a list of StateCount in the order of the
 * names, as far as the caller may see the rows.
 */
List *
idem_target_count_states(const Target *target, const TargetColumn *column)
{
	MemoryContext context = CurrentMemoryContext;
	TargetRow	row = {.target = target};
	TextSource	source = {.row = &row,.column = column};
	Statement	statement = {
		.kind = IDEM_TARGET_COUNT_STATES,
		.relation = RelationGetRelid(target->relation),
		.column = column->number,
		.write = write_count_states,
		.context = &source
	};
	uint64		nstates = idem_plan_cache_execute(&statement, NULL, NULL, InvalidSnapshot, false);
	List	   *counts = NIL;

	MemoryContextSwitchTo(context);
	for (uint64 i = 0; i < nstates; i++)
	{
		StateCount *count = palloc(sizeof(StateCount));
		bool		isnull;
		Datum		state = SPI_getbinval(SPI_tuptable->vals[i], SPI_tuptable->tupdesc, 1, &isnull);

		count->state = isnull ? NULL : TextDatumGetCString(state);
		count->count = DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[i], SPI_tuptable->tupdesc, 2, &isnull));
		counts = lappend(counts, count);
	}
	SPI_freetuptable(SPI_tuptable);
	return counts;
}
