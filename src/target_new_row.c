/*
 * target_new_row.c - rows that are to be inserted into a user's table
 *
 * A new row is read from JSON as jsonb_populate_record() reads it.  It goes into
 * its INSERT as one parameter, of the table's row type; the statement names the
 * columns that are given, and the others take their defaults.
 */
#include "postgres.h"

#include "compat.h"
#include "plan_cache.h"
#include "target.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "executor/executor.h"
#include "nodes/execnodes.h"
#include "nodes/makefuncs.h"
#include "optimizer/optimizer.h"
#include "rewrite/rewriteHandler.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/resowner.h"
#include "utils/typcache.h"

/* ---------- reading ---------- */

/*
 * Prepares the call of jsonb_populate_record(), which keeps what it knows of the
 * columns' types with its FmgrInfo, and learns the row type from the expression
 * that it is called by.
 */
static void
prepare_reader(const Target *target, TargetReader *reader)
{
	TupleDesc	desc = RelationGetDescr(target->relation);
	Oid			row_type = target->relation->rd_rel->reltype;
	Datum	   *values = palloc0(sizeof(Datum) * desc->natts);
	bool	   *nulls = palloc(sizeof(bool) * desc->natts);
	MemoryContext before = CurrentMemoryContext;
	List	   *arguments;

	if (reader->context != NULL && reader->version != 0)
		MemoryContextReset(reader->context);
	reader->version = 0;
	MemoryContextSwitchTo(reader->context);

	memset(nulls, true, sizeof(bool) * desc->natts);
	reader->no_values = heap_copy_tuple_as_datum(heap_form_tuple(desc, values, nulls), desc);

	arguments = list_make2(makeNullConst(row_type, -1, InvalidOid), makeNullConst(JSONBOID, -1, InvalidOid));
	fmgr_info_cxt(F_JSONB_POPULATE_RECORD, &reader->populate, reader->context);
	fmgr_info_set_expr((Node *) makeFuncExpr(F_JSONB_POPULATE_RECORD, row_type, arguments, InvalidOid, InvalidOid,
											 COERCE_EXPLICIT_CALL),
					   &reader->populate);

	MemoryContextSwitchTo(before);
	reader->version = target->table->version;
}

static Bitmapset *
columns_of_object(const Target *target, Jsonb *json)
{
	Bitmapset  *columns = NULL;
	JsonbIterator *iterator = JsonbIteratorInit(&json->root);
	JsonbIteratorToken token;
	JsonbValue	value;

	while ((token = JsonbIteratorNext(&iterator, &value, true)) != WJB_DONE)
	{
		if (token == WJB_KEY)
			columns = bms_add_member(columns,
									 idem_target_find_column(target, pnstrdup(value.val.string.val, value.val.string.len)));
	}
	return columns;
}

/*
 * Reads a row from a JSON object of column names and values: as
 * jsonb_populate_record() does, so null is SQL's NULL in every column, and what
 * would not fit a column's type modifier or domain is an error here.  The row
 * belongs to the current memory context.
 *
 * `what` names the argument in an error.  Raises 22023 for what is no object, 42703 for what is no column, and what the
 * columns' types raise.
 */
void
idem_target_read_new_row(const Target *target, Jsonb *json, const char *what, TargetReader *reader, TargetNewRow *row)
{
	if (!JB_ROOT_IS_OBJECT(json))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must be a JSON object", what),
				 errhint("Write it as {\"column\": value, ...}.")));

	row->given = columns_of_object(target, json);
	if (reader->version != target->table->version)
		prepare_reader(target, reader);
	row->values = FunctionCall2(&reader->populate, reader->no_values, JsonbPGetDatum(json));
}

static bool
same_value(Form_pg_attribute attribute, Datum a, Datum b)
{
	FmgrInfo   *equal = &lookup_type_cache(attribute->atttypid, TYPECACHE_EQ_OPR_FINFO)->eq_opr_finfo;
	Oid			output_function;
	bool		is_varlena;

	if (OidIsValid(equal->fn_oid))
		return DatumGetBool(FunctionCall2Coll(equal, attribute->attcollation, a, b));
	getTypeOutputInfo(attribute->atttypid, &output_function, &is_varlena);
	return strcmp(OidOutputFunctionCall(output_function, a), OidOutputFunctionCall(output_function, b)) == 0;
}

/*
 * Returns the names among these of the columns in which a new row differs from a
 * stored one, by the types' default equality (a type without one by its text); NULL
 * is the same as NULL.
 */
List *
idem_target_differing_columns(const Target *target, const TargetNewRow *row, Datum stored, const List *names)
{
	TupleDesc	desc = RelationGetDescr(target->relation);
	HeapTupleData tuples[2] = {{.t_data = DatumGetHeapTupleHeader(row->values)}, {.t_data = DatumGetHeapTupleHeader(stored)}};
	List	   *differing = NIL;
	ListCell   *cell;

	foreach(cell, names)
	{
		AttrNumber	number = idem_target_find_column(target, lfirst(cell));
		Datum		values[2];
		bool		nulls[2];

		for (int i = 0; i < 2; i++)
		{
			tuples[i].t_len = HeapTupleHeaderGetDatumLength(tuples[i].t_data);
			values[i] = heap_getattr(&tuples[i], number, desc, &nulls[i]);
		}
		if (nulls[0] != nulls[1] ||
			(!nulls[0] && !same_value(TupleDescAttr(desc, number - 1), values[0], values[1])))
			differing = lappend(differing, lfirst(cell));
	}
	return differing;
}

/* ---------- asking the triggers ---------- */

/*
 * Has the table triggers that may change a row before it is stored?
 */
bool
idem_target_has_row_triggers(const Target *target)
{
	const TriggerDesc *triggers = target->relation->trigdesc;

	return triggers != NULL && triggers->trig_insert_before_row;
}

/* Fills in what an INSERT of the given columns would take for the others. */
static void
fill_in_defaults(const Target *target, const TargetNewRow *row, TupleTableSlot *slot, EState * estate)
{
	TupleDesc	desc = slot->tts_tupleDescriptor;
	ExprContext *econtext = GetPerTupleExprContext(estate);

	slot_getallattrs(slot);
	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute attribute = TupleDescAttr(desc, i);
		Expr	   *expression;

		if (attribute->attisdropped || attribute->attgenerated != '\0' || bms_is_member(i + 1, row->given))
			continue;
		expression = (Expr *) build_column_default(target->relation, i + 1);
		if (expression != NULL)
			slot->tts_values[i] = ExecEvalExpr(ExecPrepareExpr(expression, estate), econtext, &slot->tts_isnull[i]);
	}
}

static void
run_row_triggers(const Target *target, const TargetNewRow *row, TupleTableSlot *slot, MemoryContext context)
{
	EState	   *estate = CreateExecutorState();
	MemoryContext before = MemoryContextSwitchTo(estate->es_query_cxt);
	ResultRelInfo *relation = makeNode(ResultRelInfo);
	TupleTableSlot *changing = ExecInitExtraTupleSlot(estate, slot->tts_tupleDescriptor, &TTSOpsVirtual);

	ExecCopySlot(changing, slot);
	fill_in_defaults(target, row, changing, estate);
	InitResultRelInfo(relation, target->relation, 0, NULL, 0);

	/* one of them may suppress the row: it stands as that one was given it */
	(void) ExecBRInsertTriggers(estate, relation, changing);
	MemoryContextSwitchTo(context);
	ExecStoreHeapTupleDatum(heap_copy_tuple_as_datum(ExecCopySlotHeapTuple(changing), slot->tts_tupleDescriptor), slot);

	MemoryContextSwitchTo(before);
	idem_target_free_executor(estate);
}

/*
 * Finds out what the table's BEFORE INSERT triggers would make of the row in the
 * slot, and leaves that in the slot, in the current memory context.  They run in a
 * subtransaction that is rolled back, so whatever they do is undone; only sequences
 * move on.  Raises what they raise.
 */
void
idem_target_ask_triggers(const Target *target, const TargetNewRow *row, TupleTableSlot *slot)
{
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;

	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(context);
	PG_TRY();
	{
		run_row_triggers(target, row, slot, context);
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
		ReThrowError(error);
	}
	PG_END_TRY();
	RollbackAndReleaseCurrentSubTransaction();
	MemoryContextSwitchTo(context);
	CurrentResourceOwner = owner;
}

/* ---------- inserting ---------- */

/* what the text of an INSERT is made from */
typedef struct InsertSource
{
	const Target *target;
	const TargetNewRow *row;
} InsertSource;

static void
write_insert(StatementText *out, const InsertSource *source, const char *on_conflict)
{
	const Target *target = source->target;
	char	   *alias = idem_target_alias(target);
	int			param = idem_statement_param(out, target->relation->rd_rel->reltype);
	StringInfoData values;
	int			number = -1;

	initStringInfo(&values);
	appendStringInfo(&out->sql, "INSERT INTO %s AS %s (", idem_target_qualified_name(target), alias);
	while ((number = bms_next_member(source->row->given, number)) > 0)
	{
		const char *separator = values.len > 0 ? ", " : "";
		const char *name = quote_identifier(get_attname(RelationGetRelid(target->relation), number, false));

		appendStringInfo(&out->sql, "%s%s", separator, name);
		appendStringInfo(&values, "%s($%d).%s", separator, param, name);
	}
	appendStringInfo(&out->sql, ") VALUES (%s)%s RETURNING %s", values.data, on_conflict, alias);
}

/*
 * Without a conflict target: one would raise a spurious unique violation while
 * the index is rebuilt concurrently.
 */
static void
write_try_insert(StatementText *out, const void *context)
{
	write_insert(out, context, " ON CONFLICT DO NOTHING");
}

static void
write_plain_insert(StatementText *out, const void *context)
{
	write_insert(out, context, "");
}

/* Runs one of them. */
static TargetInsert
execute(const InsertSource *source, StatementKind kind, void (*write) (StatementText *, const void *), Datum *stored)
{
	Statement	statement = {
		.kind = kind,
		.relation = RelationGetRelid(source->target->relation),
		.columns = source->row->given,
		.write = write,
		.context = source
	};
	MemoryContext context = CurrentMemoryContext;
	Datum		values[] = {source->row->values};
	bool		inserted = idem_plan_cache_execute(&statement, values, NULL, InvalidSnapshot, false) > 0;
	bool		isnull;

	MemoryContextSwitchTo(context);
	if (inserted)
		*stored = datumCopy(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull), false, -1);
	SPI_freetuptable(SPI_tuptable);
	return inserted ? IDEM_ROW_INSERTED : IDEM_ROW_NOT_INSERTED;
}

static TargetInsert
classify(const InsertSource *source, const TargetKey *key, const ErrorData *violation)
{
	if (idem_target_is_part_of_key(source->target, key, violation->schema_name, violation->table_name,
								   violation->constraint_name))
		return IDEM_ROW_CONFLICT;
	return IDEM_ROW_OTHER_CONFLICT;
}

/*
 * Inserts and lets errors tell what was in the way, in a subtransaction, so that the
 * caller can go on after them.
 */
static TargetInsert
insert_or_hear_why(const InsertSource *source, const TargetKey *key, Datum *stored, ErrorData **other_conflict)
{
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	volatile TargetInsert result;

	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(context);
	PG_TRY();
	{
		result = execute(source, IDEM_TARGET_INSERT_NEW, write_plain_insert, stored);
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
		if (error->sqlerrcode != ERRCODE_UNIQUE_VIOLATION)
			ReThrowError(error);
		result = classify(source, key, error);
		if (result == IDEM_ROW_OTHER_CONFLICT)
			*other_conflict = error;
	}
	PG_END_TRY();

	MemoryContextSwitchTo(context);
	CurrentResourceOwner = owner;
	return result;
}

/*
 * Inserts a row, as the caller.  In *stored then is the whole row as it was stored,
 * in the current memory context.  Where a conflict is an error, not inserted means
 * that a trigger suppressed the row; of any unique key but `key` the error is in
 * *other_conflict then, and what to make of it is the caller's business.
 */
TargetInsert
idem_target_insert_new(const Target *target, const TargetNewRow *row, const TargetKey *key,
					   bool conflict_is_error, Datum *stored, ErrorData **other_conflict)
{
	InsertSource source = {target, row};

	/* ON CONFLICT is refused for a table with a deferrable key, whichever that is */
	if (conflict_is_error || target->table->deferrable)
		return insert_or_hear_why(&source, key, stored, other_conflict);
	return execute(&source, IDEM_TARGET_TRY_INSERT_NEW, write_try_insert, stored);
}
