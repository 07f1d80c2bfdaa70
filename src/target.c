/*
 * target.c - a row of a user's table, reached by its key
 *
 * One room for everything that is done to users' tables.  Statements run as the
 * caller, so privileges, row security, triggers and constraints hold as for the
 * plain statement; values are always parameters; names and operators are written
 * with their schemas, so nothing depends on search_path.
 *
 * What is known of a table (its unique keys, their columns and operators) is
 * kept and thrown away when the relation changes.  A caller uses it only between
 * idem_target_open() and idem_target_close().  What went stale while any target
 * is open is freed later, since a trigger may open the table again below us.
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

#include "canonical_json.h"
#include "compat.h"
#include "errors.h"
#include "plan_cache.h"
#include "target.h"

#include "access/htup_details.h"
#include "access/multixact.h"
#include "access/relation.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/transam.h"
#include "access/xact.h"
#include "catalog/pg_am.h"
#include "catalog/pg_collation.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_type.h"
#include "parser/parse_coerce.h"
#include "storage/procarray.h"
#include "utils/builtins.h"
#include "utils/hsearch.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

typedef struct TargetKeyColumn
{
	AttrNumber	number;
	char	   *name;
	Oid			type;
	Oid			base_type;
	Oid			input_function;
	Oid			input_parameter;
	Oid			output_function;
	Oid			equality;		/* the index's own operator */
	Oid			collation;		/* the index's own, or InvalidOid */
} TargetKeyColumn;

struct TargetKey
{
	Oid			index;
	char	   *name;
	bool		primary;
	const char *refusal;		/* why it cannot name a row, or NULL */
	int			ncolumns;
	TargetKeyColumn columns[INDEX_MAX_KEYS];
};

struct TargetTable
{
	Oid			relation;
	bool		valid;			/* cleared when the relation changes */
	MemoryContext context;		/* everything below lives here, this too */
	int			nkeys;
	TargetKey **keys;
	TargetKey  *primary;		/* or NULL */
};

typedef struct TableEntry
{
	Oid			relation;
	TargetTable *table;
} TableEntry;

/* the guarded update that is running */
typedef struct RunningUpdate
{
	TargetRecheck recheck;		/* or NULL: the row is held already */
	void	   *argument;
	uint64		asked;
} RunningUpdate;

/* past so many tables the ones that went stale are looked for and freed */
#define SWEEP_AT_FIRST 64

typedef struct TargetState
{
	HTAB	   *tables;
	long		sweep_at;
	List	   *replaced;		/* tables to free when no target is open */
	int			open;
	RunningUpdate *update;		/* innermost */
} TargetState;

static TargetState state;

/* ---------- what is known of a table ---------- */

/* Relation changes may be told as "any relation", with InvalidOid. */
static void
mark_stale(Datum arg, Oid relation)
{
	HASH_SEQ_STATUS scan;
	TableEntry *entry;

	if (relation != InvalidOid)
	{
		entry = hash_search(state.tables, &relation, HASH_FIND, NULL);
		if (entry != NULL)
			entry->table->valid = false;
		return;
	}
	hash_seq_init(&scan, state.tables);
	while ((entry = hash_seq_search(&scan)) != NULL)
		entry->table->valid = false;
}

static void
end_of_transaction(XactEvent event, void *arg)
{
	if (event == XACT_EVENT_COMMIT || event == XACT_EVENT_ABORT || event == XACT_EVENT_PREPARE)
	{
		state.open = 0;
		state.update = NULL;
	}
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
 * Returns why a unique index cannot name a row, or NULL if it can.
 */
static const char *
reason_to_refuse_key(Relation index)
{
	Form_pg_index form = index->rd_index;

	if (!form->indisvalid || !form->indisready)
		return "is not valid";
	if (!form->indimmediate)
		return "is deferrable";
	if (RelationGetIndexPredicate(index) != NIL)
		return "is partial";
	if (RelationGetIndexExpressions(index) != NIL)
		return "has expressions";
	if (index->rd_rel->relam != BTREE_AM_OID)
		return "is not a btree index";
	return NULL;
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
	column->base_type = getBaseType(column->type);
	getTypeInputInfo(column->type, &column->input_function, &column->input_parameter);
	getTypeOutputInfo(column->base_type, &column->output_function, &is_varlena);
	column->equality = get_opfamily_member(index->rd_opfamily[i], index->rd_opcintype[i],
										   index->rd_opcintype[i], BTEqualStrategyNumber);
	if (!OidIsValid(column->equality))	/* a btree operator class has one */
		elog(ERROR, "missing equality operator of index \"%s\"", RelationGetRelationName(index));
	column->collation = index->rd_indcollation[i];
}

static TargetKey *
describe_key(Relation relation, Relation index)
{
	TargetKey  *key = palloc0(sizeof(TargetKey));

	key->index = RelationGetRelid(index);
	key->name = pstrdup(RelationGetRelationName(index));
	key->primary = index->rd_index->indisprimary;
	key->refusal = reason_to_refuse_key(index);
	/* what is refused for its expressions has columns that are none */
	if (RelationGetIndexExpressions(index) != NIL)
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

		if (index->rd_index->indisunique)
		{
			TargetKey  *key = describe_key(relation, index);

			table->keys[table->nkeys++] = key;
			if (key->primary && key->refusal == NULL)
				table->primary = key;
		}
		index_close(index, NoLock);
	}
	list_free(indexes);
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
	/* the entry comes last: nothing half-made is left behind by an error */
	table = describe_table(relation);
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

/*
 * The row that is locked must be the row that is changed, once, and its change
 * must commit together with the log.  (A partition is never a foreign table
 * here: PostgreSQL allows none below a unique key.)
 */
static void
check_table(Relation relation)
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
	if (relation->rd_rules != NULL)
		refuse_table(relation, "It has rules, which would rewrite the update.", "Use triggers in place of rules.");
	if (relation->rd_rel->relkind == RELKIND_RELATION && relation->rd_rel->relhassubclass &&
		find_inheritance_children(RelationGetRelid(relation), NoLock) != NIL)
		refuse_table(relation, "Other tables inherit from it, and its keys do not hold across them.",
					 "Name the table that has the row, or use partitions.");
}

/*
 * Opens a table and locks it in ACCESS SHARE mode until the transaction ends:
 * its columns and keys then stay as they are, and a duplicate waits for nobody
 * who does not change them (CREATE INDEX, say).  Raises 42809 if it is of a kind
 * that cannot be a target, 42P01 if there is none.
 */
void
idem_target_open(Target *target, Oid relid)
{
	target->relation = try_relation_open(relid, AccessShareLock);
	if (target->relation == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("target with OID %u does not exist", relid),
				 errhint("Pass the table's name, for example 'shop.account'.")));
	check_table(target->relation);

	if (state.open == 0 && state.replaced != NIL)
		free_replaced();
	target->table = get_table(target->relation);
	state.open++;
}

/*
 * Locks an open target as an UPDATE does, in ROW EXCLUSIVE mode, until the
 * transaction ends.
 */
void
idem_target_lock_table(Target *target)
{
	LockRelationOid(RelationGetRelid(target->relation), RowExclusiveLock);
}

/*
 * The end of idem_target_open().  After an error there is no need: the relation
 * is closed with its resource owner.
 */
void
idem_target_close(Target *target)
{
	state.open--;
	relation_close(target->relation, NoLock);
}

/*
 * Returns the default scope of operations on a column: schema.table.column.
 */
char *
idem_target_scope(const Target *target, const char *column_name)
{
	char	   *schema = get_namespace_name(RelationGetNamespace(target->relation));

	return psprintf("%s.%s", quote_qualified_identifier(schema, RelationGetRelationName(target->relation)),
					quote_identifier(column_name));
}

/* ---------- keys ---------- */

static char *
list_columns(const TargetKey *key)
{
	StringInfoData names;

	initStringInfo(&names);
	for (int i = 0; i < key->ncolumns; i++)
		appendStringInfo(&names, "%s%s", i > 0 ? ", " : "", quote_identifier(key->columns[i].name));
	return names.data;
}

/* For the hint of an error: the keys that would do. */
static char *
list_usable_keys(const TargetTable *table)
{
	StringInfoData keys;

	initStringInfo(&keys);
	for (int i = 0; i < table->nkeys; i++)
	{
		if (table->keys[i]->refusal == NULL)
			appendStringInfo(&keys, "%s(%s)", keys.len > 0 ? ", " : "", list_columns(table->keys[i]));
	}
	return keys.len > 0 ? psprintf("Unique keys that can be used: %s.", keys.data) :
		"Add a primary key or a unique constraint that is not deferrable.";
}

static void
refuse_null_key(const TargetKeyColumn *column)
{
	ereport(ERROR,
			(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
			 errmsg("key column \"%s\" must not be NULL", column->name),
			 errhint("A NULL is equal to nothing, so it cannot name a row.")));
}

static Datum
value_from_string(const TargetKeyColumn *column, char *string)
{
	/* no type modifier: a numeric(10,2) would round 1.234 to the key of another row */
	return OidInputFunctionCall(column->input_function, string, column->input_parameter, -1);
}

static Datum
value_from_integer(const TargetKeyColumn *column, int64 value)
{
	switch (column->base_type)
	{
		case INT8OID:
			return Int64GetDatum(value);
		case INT4OID:
			if (value >= PG_INT32_MIN && value <= PG_INT32_MAX)
				return Int32GetDatum((int32) value);
			break;
		case INT2OID:
			if (value >= PG_INT16_MIN && value <= PG_INT16_MAX)
				return Int16GetDatum((int16) value);
			break;
		case NUMERICOID:
			return NumericGetDatum(int64_to_numeric(value));
	}
	/* let the type say that it is out of range, or read it its own way */
	return value_from_string(column, psprintf(INT64_FORMAT, value));
}

/* A number's text without trailing zeros: an integer column reads 7.00 as 7, and refuses 7.5. */
static Datum
value_from_number(const TargetKeyColumn *column, Numeric value)
{
	return value_from_string(column, numeric_normalize(value));
}

/*
 * Reads a value of another type as a value of the key column.  Only what keeps
 * the value is done: a cast that rounds would name another row.
 */
static Datum
value_from_other_type(const TargetKeyColumn *column, Datum value, Oid type)
{
	Oid			cast;
	CoercionPathType path;
	Oid			output_function;
	bool		is_varlena;

	path = find_coercion_pathway(column->base_type, type, COERCION_IMPLICIT, &cast);
	if (path == COERCION_PATH_RELABELTYPE)
		return value;
	if (path == COERCION_PATH_FUNC && get_func_nargs(cast) == 1)
		return OidFunctionCall1(cast, value);

	/* numbers have one text, which the other number type reads exactly or not at all */
	if (TypeCategory(type) == TYPCATEGORY_STRING ||
		(TypeCategory(type) == TYPCATEGORY_NUMERIC && TypeCategory(column->base_type) == TYPCATEGORY_NUMERIC))
	{
		getTypeOutputInfo(type, &output_function, &is_varlena);
		return value_from_string(column, OidOutputFunctionCall(output_function, value));
	}

	ereport(ERROR,
			(errcode(ERRCODE_DATATYPE_MISMATCH),
			 errmsg("key column \"%s\" is of type %s, but its value is of type %s",
					column->name, format_type_be(column->type), format_type_be(type)),
			 errhint("Cast the value to %s.", format_type_be(column->type))));
	return (Datum) 0;			/* not reached; for compilers that do not know */
}

/* A domain's input function is also what checks its constraints. */
static bool
is_domain(const TargetKeyColumn *column)
{
	return column->type != column->base_type;
}

static Datum
key_value(const TargetKeyColumn *column, Datum value, Oid type)
{
	Oid			base_type = getBaseType(type);

	if (base_type == column->base_type && !is_domain(column))
		return value;
	switch (base_type)
	{
		case INT2OID:
			return value_from_integer(column, DatumGetInt16(value));
		case INT4OID:
			return value_from_integer(column, DatumGetInt32(value));
		case INT8OID:
			return value_from_integer(column, DatumGetInt64(value));
		case TEXTOID:
			return value_from_string(column, TextDatumGetCString(value));
		case NUMERICOID:
			return value_from_number(column, DatumGetNumeric(value));
		default:
			if (base_type == column->base_type)
				return value;
			return value_from_other_type(column, value, base_type);
	}
}

/* Builds the JSON object of a row's key; pairs in jsonb's order. */
static int
compare_jsonb_keys(const void *a, const void *b)
{
	const JsonbValue *left = &((const JsonbPair *) a)->key;
	const JsonbValue *right = &((const JsonbPair *) b)->key;

	if (left->val.string.len != right->val.string.len)
		return left->val.string.len - right->val.string.len;
	return memcmp(left->val.string.val, right->val.string.val, left->val.string.len);
}

static void
set_key_json(TargetRow *row)
{
	const TargetKey *key = row->key;
	JsonbPair  *pairs = palloc0(sizeof(JsonbPair) * key->ncolumns);

	for (int i = 0; i < key->ncolumns; i++)
	{
		const TargetKeyColumn *column = &key->columns[i];

		pairs[i].key.type = jbvString;
		pairs[i].key.val.string.val = column->name;
		pairs[i].key.val.string.len = strlen(column->name);
		idem_canonical_json_from_datum(row->values[i], column->base_type, column->output_function, &pairs[i].value);
	}
	qsort(pairs, key->ncolumns, sizeof(JsonbPair), compare_jsonb_keys);
	row->json.type = jbvObject;
	row->json.val.object.nPairs = key->ncolumns;
	row->json.val.object.pairs = pairs;
}

static const JsonbValue *
find_json_member(const JsonbValue *object, const char *name)
{
	int			length = strlen(name);

	for (int i = 0; i < object->val.object.nPairs; i++)
	{
		const JsonbPair *pair = &object->val.object.pairs[i];

		if (pair->key.val.string.len == length && memcmp(pair->key.val.string.val, name, length) == 0)
			return &pair->value;
	}
	return NULL;
}

static bool
key_has_columns_of(const TargetKey *key, const JsonbValue *object)
{
	if (key->ncolumns != object->val.object.nPairs)
		return false;
	for (int i = 0; i < key->ncolumns; i++)
	{
		if (find_json_member(object, key->columns[i].name) == NULL)
			return false;
	}
	return true;
}

static void
read_json_members(const TargetKey *key, const JsonbValue *object, TargetRow *row)
{
	row->key = key;
	for (int i = 0; i < key->ncolumns; i++)
	{
		const TargetKeyColumn *column = &key->columns[i];
		const JsonbValue *member = find_json_member(object, column->name);

		if (column->base_type == JSONBOID)
			row->values[i] = JsonbPGetDatum(idem_canonical_json_to_jsonb(member));
		else if (member->type == jbvNull)
			refuse_null_key(column);
		else if (member->type == jbvNumeric && TypeCategory(column->base_type) == TYPCATEGORY_NUMERIC)
			row->values[i] = value_from_number(column, member->val.numeric);
		else
			row->values[i] = value_from_string(column, idem_canonical_json_to_text(member));
	}
	set_key_json(row);
}

static void
refuse_json_key(const Target *target, const TargetKey *refused)
{
	if (refused != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_COLUMN_REFERENCE),
				 errmsg("unique key \"%s\" of table \"%s\" cannot name a row",
						refused->name, RelationGetRelationName(target->relation)),
				 errdetail("The key %s.", refused->refusal),
				 errhint("%s", list_usable_keys(target->table))));
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_COLUMN_REFERENCE),
			 errmsg("table \"%s\" has no unique key of exactly the columns given",
					RelationGetRelationName(target->relation)),
			 errhint("%s", list_usable_keys(target->table))));
}

static void
read_json_key(const Target *target, Jsonb *json, TargetRow *row)
{
	JsonbValue	object;
	const TargetKey *refused = NULL;

	idem_canonical_json_from_jsonb(json, &object);
	if (object.type != jbvObject)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("a key given as jsonb must be an object that names columns"),
				 errhint("Write it as {\"column\": value, ...}.")));

	for (int i = 0; i < target->table->nkeys; i++)
	{
		const TargetKey *key = target->table->keys[i];

		if (!key_has_columns_of(key, &object))
			continue;
		if (key->refusal == NULL)
		{
			read_json_members(key, &object, row);
			return;
		}
		refused = key;
	}
	refuse_json_key(target, refused);
}

static void
refuse_scalar_key(const Target *target)
{
	const TargetKey *primary = target->table->primary;

	ereport(ERROR,
			(errcode(ERRCODE_INVALID_COLUMN_REFERENCE),
			 primary == NULL ?
			 errmsg("table \"%s\" has no primary key", RelationGetRelationName(target->relation)) :
			 errmsg("the primary key of table \"%s\" has %d columns",
					RelationGetRelationName(target->relation), primary->ncolumns),
			 errdetail("A single value names a row by a primary key of one column."),
			 errhint("Pass the key as jsonb: {\"column\": value, ...}. %s", list_usable_keys(target->table))));
}

/*
 * Finds out which row a key names: a value of a one-column primary key, or an
 * object of the columns of any unique key.  Text (and so a parameter of unknown
 * type) is read by the key column's own input function; where the primary key is
 * not of one column it is read as jsonb.
 *
 * Raises 22004 for NULL, 42P10 where no unique key fits, 42804 for a value that
 * cannot be of the column's type, and what the type's input function raises.
 * The values belong to the current memory context.
 */
void
idem_target_read_key(const Target *target, Datum key, Oid key_type, TargetRow *row)
{
	const TargetKey *primary = target->table->primary;
	bool		scalar_fits = primary != NULL && primary->ncolumns == 1;

	row->target = target;
	if (key_type == JSONBOID)
		read_json_key(target, DatumGetJsonbP(key), row);
	else if (scalar_fits)
	{
		row->key = primary;
		row->values[0] = key_value(&primary->columns[0], key, key_type);
		set_key_json(row);
	}
	else if (key_type == TEXTOID)
		read_json_key(target, DatumGetJsonbP(DirectFunctionCall1(jsonb_in,
																 CStringGetDatum(TextDatumGetCString(key)))), row);
	else
		refuse_scalar_key(target);
}

/*
 * Reads an object as values of a key that is already chosen.  Returns false if
 * it is not one of exactly its columns.
 */
bool
idem_target_read_json_key(const Target *target, const TargetKey *key, Jsonb *json, TargetRow *row)
{
	JsonbValue	object;

	idem_canonical_json_from_jsonb(json, &object);
	if (object.type != jbvObject || !key_has_columns_of(key, &object))
		return false;
	row->target = target;
	read_json_members(key, &object, row);
	return true;
}

/*
 * Do two rows of one key have the same key, by the index's own equality?
 */
bool
idem_target_same_key(const TargetRow *a, const TargetRow *b)
{
	Assert(a->key == b->key);
	for (int i = 0; i < a->key->ncolumns; i++)
	{
		const TargetKeyColumn *column = &a->key->columns[i];

		if (!DatumGetBool(OidFunctionCall2Coll(get_opcode(column->equality), column->collation,
											   a->values[i], b->values[i])))
			return false;
	}
	return true;
}

/* ---------- columns ---------- */

static bool
is_key_column(const TargetRow *row, AttrNumber number)
{
	for (int i = 0; i < row->key->ncolumns; i++)
	{
		if (row->key->columns[i].number == number)
			return true;
	}
	return false;
}

static AttrNumber
find_column(Relation relation, const char *name)
{
	TupleDesc	desc = RelationGetDescr(relation);

	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute attribute = TupleDescAttr(desc, i);

		if (!attribute->attisdropped && strcmp(NameStr(attribute->attname), name) == 0)
			return attribute->attnum;
	}
	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_COLUMN),
			 errmsg("column \"%s\" of table \"%s\" does not exist", name, RelationGetRelationName(relation)),
			 errhint("Name a column of type smallint, integer, bigint or numeric.")));
	return InvalidAttrNumber;	/* not reached; for compilers that do not know */
}

/*
 * Looks up a column to count in.  Raises 42703 if there is none, 42804 if it is
 * not of an exact number type, 42P10 if it is part of the key, 428C9 if it is
 * generated.
 */
void
idem_target_read_column(const TargetRow *row, const char *name, TargetColumn *column)
{
	Relation	relation = row->target->relation;
	Form_pg_attribute attribute;

	column->number = find_column(relation, name);
	attribute = TupleDescAttr(RelationGetDescr(relation), column->number - 1);
	column->name = NameStr(attribute->attname);
	column->typmod = attribute->atttypmod;
	column->base_type = getBaseTypeAndTypmod(attribute->atttypid, &column->typmod);

	if (column->base_type != INT2OID && column->base_type != INT4OID &&
		column->base_type != INT8OID && column->base_type != NUMERICOID)
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("column \"%s\" is of type %s", name, format_type_be(attribute->atttypid)),
				 errdetail("Only smallint, integer, bigint and numeric add up exactly."),
				 errhint("Change the column's type, for money to numeric or to a bigint of its smallest unit.")));
	if (attribute->attgenerated != '\0')
		ereport(ERROR,
				(errcode(ERRCODE_GENERATED_ALWAYS),
				 errmsg("column \"%s\" is a generated column", name),
				 errhint("Name the column that it is generated from.")));
	if (is_key_column(row, column->number))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_COLUMN_REFERENCE),
				 errmsg("column \"%s\" is part of the key", name),
				 errhint("Name another column, or another key.")));
}

/* ---------- statements ---------- */

/* what the text of a statement is made from */
typedef struct TextSource
{
	const TargetRow *row;
	const TargetColumn *column; /* or NULL */
} TextSource;

static char *
qualified_name(const TargetRow *row)
{
	Relation	relation = row->target->relation;

	return quote_qualified_identifier(get_namespace_name(RelationGetNamespace(relation)),
									  RelationGetRelationName(relation));
}

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

/* Appends the condition that names the row, with the operators and collations of its unique index. */
static void
write_key_condition(StatementText *out, const TargetRow *row)
{
	for (int i = 0; i < row->key->ncolumns; i++)
	{
		const TargetKeyColumn *column = &row->key->columns[i];
		int			param = idem_statement_param(out, column->type);

		if (i > 0)
			appendStringInfoString(&out->sql, " AND ");
		generate_operator_clause(&out->sql,
								 psprintf("t.%s", quote_identifier(column->name)), column->type,
								 column->equality,
								 psprintf("$%d", param), column->type);
		appendStringInfoString(&out->sql, collation_clause(column->collation));
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
	write_key_condition(out, source->row);
	key_condition = pstrdup(out->sql.data);
	resetStringInfo(&out->sql);
	delta = idem_statement_param(out, NUMERICOID);
	minimum = idem_statement_param(out, NUMERICOID);
	maximum = idem_statement_param(out, NUMERICOID);

	appendStringInfo(&out->sql,
					 "UPDATE %s AS t SET %s = t.%s OPERATOR(pg_catalog.+) $%d WHERE %s",
					 qualified_name(source->row), column, column, delta, key_condition);
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
	appendStringInfo(&out->sql, "SELECT %s FROM %s AS t WHERE ", what, qualified_name(source->row));
	write_key_condition(out, source->row);
	appendStringInfoString(&out->sql, locking);
}

static char *
column_as_numeric(const TargetColumn *column)
{
	return psprintf("t.%s::pg_catalog.numeric", quote_identifier(column->name));
}

/* NO KEY: foreign keys that refer to the row are checked meanwhile. */
static void
write_lock(StatementText *out, const void *context)
{
	const TextSource *source = context;

	write_select(out, source, column_as_numeric(source->column), " FOR NO KEY UPDATE OF t");
}

static void
write_try_lock(StatementText *out, const void *context)
{
	const TextSource *source = context;

	write_select(out, source, column_as_numeric(source->column), " FOR NO KEY UPDATE OF t SKIP LOCKED");
}

static void
write_exists(StatementText *out, const void *context)
{
	write_select(out, context, "", "");
}

static void
write_locate(StatementText *out, const void *context)
{
	write_select(out, context, "t.tableoid, t.ctid", "");
}

static void
write_insert(StatementText *out, const void *context)
{
	const TextSource *source = context;
	const TargetKey *key = source->row->key;

	appendStringInfo(&out->sql, "INSERT INTO %s AS t (", qualified_name(source->row));
	for (int i = 0; i < key->ncolumns; i++)
		appendStringInfo(&out->sql, "%s, ", quote_identifier(key->columns[i].name));
	appendStringInfo(&out->sql, "%s) VALUES (", quote_identifier(source->column->name));
	for (int i = 0; i < key->ncolumns; i++)
		appendStringInfo(&out->sql, "$%d, ", idem_statement_param(out, key->columns[i].type));
	appendStringInfo(&out->sql, "$%d) ", idem_statement_param(out, NUMERICOID));
}

static void
write_returning(StatementText *out, const TextSource *source)
{
	appendStringInfo(&out->sql, "RETURNING %s", column_as_numeric(source->column));
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

/* Runs a statement whose first parameters are the row's key. */
static uint64
execute(StatementKind kind, void (*write) (StatementText *, const void *), const TargetRow *row,
		const TargetColumn *column, Numeric *extra, int nextra, Snapshot snapshot)
{
	TextSource	source = {row, column};
	Statement	statement = {
		.kind = kind,
		.relation = RelationGetRelid(row->target->relation),
		.index = row->key->index,
		.column = column ? column->number : 0,
		/* system columns need more than the privileges on the columns that the caller names */
		.as_owner = kind == IDEM_TARGET_LOCATE ? row->target->relation->rd_rel->relowner : InvalidOid,
		.write = write,
		.context = &source
	};
	Datum		values[IDEM_MAX_PARAMS];
	char		nulls[IDEM_MAX_PARAMS];
	int			n = row->key->ncolumns;

	memcpy(values, row->values, sizeof(Datum) * n);
	memset(nulls, ' ', sizeof(nulls));
	for (int i = 0; i < nextra; i++, n++)
	{
		values[n] = NumericGetDatum(extra[i]);
		nulls[n] = extra[i] == NULL ? 'n' : ' ';
	}
	return idem_plan_cache_execute(&statement, values, nulls, snapshot, false);
}

/* The n-th column of the first row, NULL as a null pointer. */
static Numeric
result_numeric(int n)
{
	bool		isnull;
	Datum		value = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, n, &isnull);

	return isnull ? NULL : DatumGetNumeric(value);
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
	RunningUpdate update = {.recheck = recheck,.argument = argument};
	RunningUpdate *outer = state.update;
	volatile uint64 nrows = 0;

	state.update = &update;
	PG_TRY();
	{
		nrows = execute(IDEM_TARGET_ADD, write_add, row, column, extra, lengthof(extra), snapshot);
	}
	PG_FINALLY();
	{
		state.update = outer;
	}
	PG_END_TRY();

	if (nrows == 0)
		return false;
	*value = result_numeric(1);
	return true;
}

/*
 * Locks the row as an UPDATE of its columns would.  Returns whether it is now
 * held, and in *value the column, NULL as a null pointer; it belongs to SPI.
 * With `wait` it is never busy.
 */
TargetLock
idem_target_lock(const TargetRow *row, const TargetColumn *column, bool wait, Numeric *value)
{
	uint64		nrows;

	if (wait)
		nrows = execute(IDEM_TARGET_LOCK, write_lock, row, column, NULL, 0, InvalidSnapshot);
	else
		nrows = execute(IDEM_TARGET_TRY_LOCK, write_try_lock, row, column, NULL, 0, InvalidSnapshot);

	if (nrows > 0)
	{
		*value = result_numeric(1);
		return IDEM_ROW_LOCKED;
	}
	if (!wait && execute(IDEM_TARGET_EXISTS, write_exists, row, NULL, NULL, 0, InvalidSnapshot) > 0)
		return IDEM_ROW_BUSY;
	return IDEM_ROW_MISSING;
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
		nrows = execute(IDEM_TARGET_INSERT, write_plain_insert, row, column, &initial, 1, InvalidSnapshot);
	else
		nrows = execute(IDEM_TARGET_INSERT_MISSING, write_insert_missing, row, column, &initial, 1, InvalidSnapshot);

	if (nrows == 0)
		return false;
	*value = result_numeric(1);
	return true;
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
	if (TransactionIdIsCurrentTransactionId(xmax) || !TransactionIdIsInProgress(xmax))
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
	ItemPointer tid;
	Relation	relation;
	TupleTableSlot *slot;

	if (execute(IDEM_TARGET_LOCATE, write_locate, row, NULL, NULL, 0, InvalidSnapshot) == 0)
		return InvalidTransactionId;
	relid = DatumGetObjectId(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull));
	tid = (ItemPointer) DatumGetPointer(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 2, &isnull));

	relation = table_open(relid, AccessShareLock);
	slot = table_slot_create(relation, NULL);
	if (TTS_IS_BUFFERTUPLE(slot) && table_tuple_fetch_row_version(relation, tid, SnapshotAny, slot))
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
	RunningUpdate *update = state.update;

	if (update == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("recheck() is not meant to be called"),
				 errhint("It is part of the statements that this extension makes.")));

	if (update->asked++ == 0 || update->recheck == NULL || IsolationUsesXactSnapshot())
		PG_RETURN_BOOL(true);
	PG_RETURN_BOOL(update->recheck(update->argument));
}
