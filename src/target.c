/*
 * target.c - a user's table that is written to: its keys and columns
 *
 * What is known of a table is kept and thrown away when the relation changes.  A
 * caller uses it only between idem_target_open() and idem_target_close().  What
 * went stale while any target is open is freed later, since a trigger may open
 * the table again below us.  An error leaves the count of open targets too high
 * until the transaction ends; that only frees later.
 */
#include "postgres.h"

#include "compat.h"
#include "errors.h"
#include "target.h"

#include "access/htup_details.h"
#include "access/relation.h"
#include "access/sysattr.h"
#include "access/xact.h"
#include "catalog/pg_am.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "optimizer/optimizer.h"
#include "rewrite/rewriteHandler.h"
#include "utils/builtins.h"
#include "utils/hsearch.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"

typedef struct TableEntry
{
	Oid			relation;
	TargetTable *table;
} TableEntry;

/* past so many tables the ones that went stale are looked for and freed */
#define SWEEP_AT_FIRST 64

typedef struct TargetState
{
	HTAB	   *tables;
	long		sweep_at;
	uint64		changes;		/* of any relation */
	uint64		last_version;
	List	   *replaced;		/* tables to free when no target is open */
	int			open;
} TargetState;

static TargetState state;

/* ---------- what is known of a table ---------- */

/* Relation changes may be told as "any relation", with InvalidOid. */
static void
mark_stale(Datum arg, Oid relation)
{
	HASH_SEQ_STATUS scan;
	TableEntry *entry;

	hash_seq_init(&scan, state.tables);
	while ((entry = hash_seq_search(&scan)) != NULL)
	{
		if (relation == InvalidOid || relation == entry->relation ||
			list_member_oid(entry->table->parts, relation))
			entry->table->valid = false;
	}
	state.changes++;
}

static void
end_of_transaction(XactEvent event, void *arg)
{
	if (event == XACT_EVENT_COMMIT || event == XACT_EVENT_ABORT || event == XACT_EVENT_PREPARE)
		state.open = 0;
}

/*
 * Called once, when the library is loaded.
 */
void
idem_target_init(void)
{
	HASHCTL		control = {.keysize = sizeof(Oid),.entrysize = sizeof(TableEntry)};

	state.tables = hash_create("idempotency targets", 32, &control, HASH_ELEM | HASH_BLOBS);
	state.sweep_at = SWEEP_AT_FIRST;
	CacheRegisterRelcacheCallback(mark_stale, (Datum) 0);
	RegisterXactCallback(end_of_transaction, NULL);
}

static void
discard_table(TargetTable *table)
{
	MemoryContext before;

	if (state.open == 0)
	{
		MemoryContextDelete(table->context);
		return;
	}
	before = MemoryContextSwitchTo(TopMemoryContext);
	state.replaced = lappend(state.replaced, table);
	MemoryContextSwitchTo(before);
}

static void
free_replaced(void)
{
	while (state.replaced != NIL)
	{
		TargetTable *table = linitial(state.replaced);

		state.replaced = list_delete_first(state.replaced);
		MemoryContextDelete(table->context);
	}
}

static void
sweep_stale_tables(void)
{
	HASH_SEQ_STATUS scan;
	TableEntry *entry;

	if (hash_get_num_entries(state.tables) < state.sweep_at)
		return;

	hash_seq_init(&scan, state.tables);
	while ((entry = hash_seq_search(&scan)) != NULL)
	{
		if (entry->table->valid)
			continue;
		discard_table(entry->table);
		hash_search(state.tables, &entry->relation, HASH_REMOVE, NULL);
	}
	state.sweep_at = Max(SWEEP_AT_FIRST, 2 * hash_get_num_entries(state.tables));
}

/*
 * Returns why a unique index guards nothing that could be asked for, or NULL if it
 * does.
 */
static const char *
reason_to_refuse_key(Relation index, const Bitmapset *sources)
{
	Form_pg_index form = index->rd_index;

	if (!form->indisvalid || !form->indisready)
		return "is not valid";
	if (!form->indimmediate)
		return "is deferrable";
	if (index->rd_rel->relam != BTREE_AM_OID)
		return "is not a btree index";
	if (bms_is_member(0, sources))
		return "is computed from the whole row";
	return NULL;
}

/*
 * Returns why the values of its columns do not name a row by a unique index, or
 * NULL if they do.
 */
static const char *
reason_not_to_name_by_key(Relation index)
{
	if (RelationGetIndexPredicate(index) != NIL)
		return "is partial";
	if (RelationGetIndexExpressions(index) != NIL)
		return "has expressions";
	return NULL;
}

static void add_sources(Bitmapset **sources, Bitmapset **generated, Relation relation, Node * expression);

/* A generated column is one that the key needs computed, and stands for those that it is generated from. */
static void
add_source(Bitmapset **sources, Bitmapset **generated, Relation relation, AttrNumber number)
{
	if (number <= 0)			/* the whole row; or a system column, which no index has */
		*sources = bms_add_member(*sources, 0);
	else if (TupleDescAttr(RelationGetDescr(relation), number - 1)->attgenerated == '\0')
		*sources = bms_add_member(*sources, number);
	else
	{
		*generated = bms_add_member(*generated, number);
		add_sources(sources, generated, relation, build_column_default(relation, number));
	}
}

/* Adds the columns that an expression is computed from; 0 stands for the whole row. */
static void
add_sources(Bitmapset **sources, Bitmapset **generated, Relation relation, Node * expression)
{
	Bitmapset  *numbers = NULL;
	int			member = -1;

	pull_varattnos(expression, 1, &numbers);
	while ((member = bms_next_member(numbers, member)) >= 0)
		add_source(sources, generated, relation, member + FirstLowInvalidHeapAttributeNumber);
}

static void
describe_key_column(Relation relation, Relation index, int i, TargetKeyColumn *column)
{
	AttrNumber	number = index->rd_index->indkey.values[i];
	Form_pg_attribute attribute = TupleDescAttr(RelationGetDescr(relation), number - 1);
	bool		is_varlena;

	column->number = number;
	column->name = pstrdup(NameStr(attribute->attname));
	column->type = attribute->atttypid;
	/* a domain's constraints are for who stores a value, not for who looks for it */
	column->base_type = getBaseType(column->type);
	getTypeInputInfo(column->base_type, &column->input_function, &column->input_parameter);
	getTypeOutputInfo(column->base_type, &column->output_function, &is_varlena);
	column->equality = get_opfamily_member(index->rd_opfamily[i], index->rd_opcintype[i],
										   index->rd_opcintype[i], BTEqualStrategyNumber);
	if (!OidIsValid(column->equality))	/* a btree operator class has one */
		elog(ERROR, "missing equality operator of index \"%s\"", RelationGetRelationName(index));
	column->collation = index->rd_indcollation[i];
}

/* Fills in what its values are computed from, and how. */
static void
describe_key_sources(Relation relation, Relation index, TargetKey *key)
{
	key->expressions = list_copy_deep(RelationGetIndexExpressions(index));
	key->predicate = list_copy_deep(RelationGetIndexPredicate(index));
	add_sources(&key->sources, &key->generated, relation, (Node *) key->expressions);
	for (int i = 0; i < index->rd_index->indnkeyatts; i++)
	{
		if (index->rd_index->indkey.values[i] != 0) /* that is an expression */
			add_source(&key->sources, &key->generated, relation, index->rd_index->indkey.values[i]);
	}
	add_sources(&key->predicate_sources, &key->generated, relation, (Node *) key->predicate);
	key->computed = key->expressions != NIL || key->predicate != NIL || key->generated != NULL;
}

static TargetKey *
describe_key(Relation relation, Relation index)
{
	TargetKey  *key = palloc0(sizeof(TargetKey));

	key->index = RelationGetRelid(index);
	key->name = pstrdup(RelationGetRelationName(index));
	key->primary = index->rd_index->indisprimary;
	key->inherited = index->rd_rel->relispartition;
	key->nulls_distinct = !IDEM_INDEX_NULLS_NOT_DISTINCT(index->rd_index);
	describe_key_sources(relation, index, key);
	key->refusal = reason_to_refuse_key(index, key->sources);
	key->unnamable = reason_not_to_name_by_key(index);
	if (key->expressions != NIL)
		return key;

	key->ncolumns = index->rd_index->indnkeyatts;
	for (int i = 0; i < key->ncolumns; i++)
	{
		if (key->refusal == NULL)
			describe_key_column(relation, index, i, &key->columns[i]);
		else
			key->columns[i].name = pstrdup(NameStr(TupleDescAttr(RelationGetDescr(relation),
																 index->rd_index->indkey.values[i] - 1)->attname));
	}
	return key;
}

static void
describe_keys(Relation relation, TargetTable *table)
{
	List	   *indexes = RelationGetIndexList(relation);
	ListCell   *cell;

	table->keys = palloc0(sizeof(TargetKey *) * Max(list_length(indexes), 1));
	foreach(cell, indexes)
	{
		Relation	index = index_open(lfirst_oid(cell), AccessShareLock);

		table->deferrable |= !index->rd_index->indimmediate;
		if (index->rd_index->indisunique)
		{
			TargetKey  *key = describe_key(relation, index);

			table->keys[table->nkeys++] = key;
			if (key->primary && key->refusal == NULL && key->unnamable == NULL)
				table->primary = key;
		}
		index_close(index, AccessShareLock);
	}
	table->parts = list_concat(table->parts, indexes);
}

/*
 * Looks at the tables that the rows are in.  They are not locked here; an UPDATE
 * locks what it needs.
 */
static void
describe_storage(Relation relation, TargetTable *table)
{
	List	   *members;
	ListCell   *cell;

	table->durable = relation->rd_rel->relpersistence == RELPERSISTENCE_PERMANENT;
	if (relation->rd_rel->relkind != RELKIND_PARTITIONED_TABLE)
		return;

	members = find_all_inheritors(RelationGetRelid(relation), NoLock, NULL);
	foreach(cell, members)
	{
		if (get_rel_persistence(lfirst_oid(cell)) != RELPERSISTENCE_PERMANENT)
			table->durable = false;
	}
	table->parts = list_concat(table->parts, members);
}

static TargetTable *
describe_table(Relation relation)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "idempotency target",
												  ALLOCSET_SMALL_SIZES);
	MemoryContext before = MemoryContextSwitchTo(context);
	TargetTable *table = palloc0(sizeof(TargetTable));

	table->relation = RelationGetRelid(relation);
	table->context = context;
	table->valid = true;
	table->version = ++state.last_version;
	describe_storage(relation, table);
	describe_keys(relation, table);
	MemoryContextSwitchTo(before);
	return table;
}

static TargetTable *
get_table(Relation relation)
{
	Oid			relid = RelationGetRelid(relation);
	TableEntry *entry = hash_search(state.tables, &relid, HASH_FIND, NULL);
	TargetTable *table;

	if (entry != NULL)
	{
		if (entry->table->valid)
			return entry->table;
		discard_table(entry->table);
		hash_search(state.tables, &relid, HASH_REMOVE, NULL);
	}

	sweep_stale_tables();

	/*
	 * What changes while a table is described is not told to its entry, for there is none yet: while an
	 * index is rebuilt concurrently neither the old nor the new one may have seemed valid.  The entry comes
	 * last, so that an error leaves nothing half-made behind.
	 */
	for (;;)
	{
		uint64		changes = state.changes;

		table = describe_table(relation);
		if (changes == state.changes)
			break;
		MemoryContextDelete(table->context);
	}
	MemoryContextSetParent(table->context, TopMemoryContext);
	entry = hash_search(state.tables, &relid, HASH_ENTER, NULL);
	entry->table = table;
	return table;
}

/* ---------- open and close ---------- */

static void
refuse_table(Relation relation, const char *detail, const char *hint)
{
	ereport(ERROR,
			(errcode(ERRCODE_WRONG_OBJECT_TYPE),
			 errmsg("\"%s\" cannot be a target", RelationGetRelationName(relation)),
			 errdetail("%s", detail),
			 errhint("%s", hint)));
}

/* Only what has keys of its own can be asked which row is meant. */
static void
check_kind(Relation relation)
{
	switch (relation->rd_rel->relkind)
	{
		case RELKIND_RELATION:
		case RELKIND_PARTITIONED_TABLE:
			break;
		case RELKIND_VIEW:
		case RELKIND_MATVIEW:
			refuse_table(relation, "It is a view, which has no rows of its own to lock.",
						 "Name the table below the view.");
			break;
		case RELKIND_FOREIGN_TABLE:
			refuse_table(relation, "It is a foreign table: its server commits on its own, so effect and log could part.",
						 "Call the function on the server that has the table.");
			break;
		default:
			refuse_table(relation, "It is not a table.", "Name an ordinary or a partitioned table.");
	}
}

/*
 * Opens a table and locks it.  In ACCESS SHARE mode its columns and keys stay as
 * they are, and a duplicate waits for nobody who does not change them (CREATE
 * INDEX, say).  Raises 42809 if it is not a table, 42P01 if there is none.
 */
void
idem_target_open(Target *target, Oid relid, LOCKMODE lockmode)
{
	Relation	relation = try_relation_open(relid, lockmode);

	if (relation == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("target with OID %u does not exist", relid),
				 errhint("Pass the table's name, for example 'shop.account'.")));
	check_kind(relation);
	idem_target_use(target, relation);
}

/*
 * As idem_target_open(), for a table that is open and locked already.
 */
void
idem_target_use(Target *target, Relation relation)
{
	if (state.open == 0 && state.replaced != NIL)
		free_replaced();
	target->relation = relation;
	target->table = get_table(relation);
	state.open++;
}

/*
 * Locks an open target in ROW EXCLUSIVE mode, as an UPDATE does, until the
 * transaction ends, if that needs no waiting.  Returns false if it does: to wait
 * while holding the weaker lock would be a deadlock with whoever has a stronger
 * one and goes on to a stronger one yet.  And if the table has changed since it
 * was opened.
 */
bool
idem_target_try_lock(const Target *target)
{
	return ConditionalLockRelationOid(RelationGetRelid(target->relation), RowExclusiveLock) && target->table->valid;
}

/*
 * The end of idem_target_use().
 */
void
idem_target_end_use(Target *target)
{
	state.open--;
}

/*
 * The end of idem_target_open(), giving back a lock of this mode, or none for
 * NoLock.  After an error there is no need: the relation is closed with its
 * resource owner.
 */
void
idem_target_close(Target *target, LOCKMODE lockmode)
{
	idem_target_end_use(target);
	relation_close(target->relation, lockmode);
}

/*
 * Raises 42809 unless a statement on the table, locked as a writer locks it, does
 * to the table what it says, and its keys hold for all of its rows.  (A partition
 * is never a foreign table here: PostgreSQL allows none below a unique key.)
 */
void
idem_target_check_insertable(const Target *target)
{
	Relation	relation = target->relation;

	if (relation->rd_rules != NULL)
		refuse_table(relation, "It has rules, which would rewrite the statement.", "Use triggers in place of rules.");
	if (relation->rd_rel->relkind == RELKIND_RELATION && relation->rd_rel->relhassubclass &&
		find_inheritance_children(RelationGetRelid(relation), NoLock) != NIL)
		refuse_table(relation, "Other tables inherit from it, and its keys do not hold across them.",
					 "Name the table that has the row, or use partitions.");
}

/*
 * Raises 42809 unless, besides, its rows live as long as their log rows.
 */
void
idem_target_check_writable(const Target *target)
{
	idem_target_check_insertable(target);
	if (!target->table->durable)
		refuse_table(target->relation, "It is, or has a partition that is, temporary or unlogged: its rows would be gone and the log say that they are done.",
					 "Make it a permanent table: ALTER TABLE ... SET LOGGED.");
}

/*
 * Appends a name as it is stored: bare if it is plain, else in double quotes.
 * quote_identifier() would depend on a setting and on the server's keywords, and
 * what is stored must be the same for ever.
 */
static void
append_stored_name(StringInfo out, const char *name)
{
	bool		plain = (name[0] >= 'a' && name[0] <= 'z') || name[0] == '_';

	for (const char *c = name; *c != '\0' && plain; c++)
		plain = (*c >= 'a' && *c <= 'z') || (*c >= '0' && *c <= '9') || *c == '_' || *c == '$';
	if (plain)
	{
		appendStringInfoString(out, name);
		return;
	}
	appendStringInfoChar(out, '"');
	for (const char *c = name; *c != '\0'; c++)
	{
		if (*c == '"')
			appendStringInfoChar(out, '"');
		appendStringInfoChar(out, *c);
	}
	appendStringInfoChar(out, '"');
}

/*
 * Returns the default scope of operations on a column: schema.table.column.
 */
char *
idem_target_scope(const Target *target, const char *column_name)
{
	StringInfoData scope;

	initStringInfo(&scope);
	append_stored_name(&scope, get_namespace_name(RelationGetNamespace(target->relation)));
	appendStringInfoChar(&scope, '.');
	append_stored_name(&scope, RelationGetRelationName(target->relation));
	appendStringInfoChar(&scope, '.');
	append_stored_name(&scope, column_name);
	return scope.data;
}

/* ---------- columns ---------- */

/*
 * Frees what was made to compute something of a table's rows, its slots first: they
 * hold on to the table's definition.
 */
void
idem_target_free_executor(EState * estate)
{
	ExecResetTupleTable(estate->es_tupleTable, false);
	FreeExecutorState(estate);
}

/*
 * Returns the table's name as a statement spells it.
 */
char *
idem_target_qualified_name(const Target *target)
{
	return quote_qualified_identifier(get_namespace_name(RelationGetNamespace(target->relation)),
									  RelationGetRelationName(target->relation));
}

/*
 * Returns an alias that is no column's name: so by itself it is the whole row.
 */
char *
idem_target_alias(const Target *target)
{
	char	   *alias = pstrdup("t");

	while (get_attnum(RelationGetRelid(target->relation), alias) != InvalidAttrNumber)
		alias = psprintf("%s_", alias);
	return alias;
}

/*
 * Returns the number of a column.  Raises 42703 if there is none.
 */
AttrNumber
idem_target_find_column(const Target *target, const char *name)
{
	AttrNumber	number = get_attnum(RelationGetRelid(target->relation), name);

	if (number <= 0)			/* none, or a system column */
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_COLUMN),
				 errmsg("column \"%s\" of table \"%s\" does not exist", name,
						RelationGetRelationName(target->relation))));
	return number;
}

/* Fills in what there is to know of a column.  Raises 42703 if there is none. */
static Form_pg_attribute
describe_column(const Target *target, const char *name, TargetColumn *column)
{
	Form_pg_attribute attribute;

	column->number = idem_target_find_column(target, name);
	attribute = TupleDescAttr(RelationGetDescr(target->relation), column->number - 1);
	column->name = NameStr(attribute->attname);
	column->typmod = attribute->atttypmod;
	column->base_type = getBaseTypeAndTypmod(attribute->atttypid, &column->typmod);
	return attribute;
}

static void
check_not_generated(Form_pg_attribute attribute)
{
	if (attribute->attgenerated != '\0')
		ereport(ERROR,
				(errcode(ERRCODE_GENERATED_ALWAYS),
				 errmsg("column \"%s\" is a generated column", NameStr(attribute->attname)),
				 errhint("Name the column that it is generated from.")));
}

/*
 * Raises 42P10 if a column is part of the key that names the row.
 */
void
idem_target_check_not_in_key(const TargetRow *row, AttrNumber number)
{
	for (int i = 0; i < row->key->ncolumns; i++)
	{
		if (row->key->columns[i].number == number)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_COLUMN_REFERENCE),
					 errmsg("column \"%s\" is part of the key", row->key->columns[i].name),
					 errhint("Name another column, or another key.")));
	}
}

/*
 * Looks up a column to count in.  Raises 42703 if there is none, 42804 if it is
 * not of an exact number type, 42P10 if it is part of the key, 428C9 if it is
 * generated.
 */
void
idem_target_read_column(const TargetRow *row, const char *name, TargetColumn *column)
{
	Form_pg_attribute attribute = describe_column(row->target, name, column);

	if (column->base_type != INT2OID && column->base_type != INT4OID &&
		column->base_type != INT8OID && column->base_type != NUMERICOID)
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("column \"%s\" is of type %s", name, format_type_be(attribute->atttypid)),
				 errdetail("Only smallint, integer, bigint and numeric add up exactly."),
				 errhint("Change the column's type, for money to numeric or to a bigint of its smallest unit.")));
	check_not_generated(attribute);
	idem_target_check_not_in_key(row, column->number);
	column->read_as = "numeric";
}

/*
 * Looks up a column that has states.  Raises 42703 if there is none, 42804 if it
 * is not of a type that has names for them, 428C9 if it is generated.
 */
void
idem_target_read_state_column(const Target *target, const char *name, TargetColumn *column)
{
	Form_pg_attribute attribute = describe_column(target, name, column);

	if (column->base_type != TEXTOID && column->base_type != VARCHAROID && !type_is_enum(column->base_type))
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("column \"%s\" is of type %s", name, format_type_be(attribute->atttypid)),
				 errdetail("A state is a text or a value of an enum type, or of a domain over one of these."),
				 errhint("Change the column's type to text or to an enum type.")));
	check_not_generated(attribute);
	column->read_as = "text";
}
