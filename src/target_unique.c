/*
 * target_unique.c - the unique keys of a user's table, and the row that has a key's values
 *
 * Where a key has expressions, a predicate or generated columns, its values are
 * computed as the index computes them, by the executor's own functions.  The row
 * is then found by asking the index (unique_index.c); so nothing is ever spelled
 * out in SQL again, where it could mean something else under another search_path.
 *
 * In a partitioned table the values name the partition, since a key that holds
 * across partitions has the columns of the partition key in it.
 */
#include "postgres.h"

#include "compat.h"
#include "errors.h"
#include "plan_cache.h"
#include "target.h"
#include "transactions.h"

#include "access/sysattr.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/tupconvert.h"
#include "catalog/index.h"
#include "catalog/namespace.h"
#include "catalog/objectaddress.h"
#include "catalog/partition.h"
#include "catalog/pg_index.h"
#include "catalog/pg_type.h"
#include "executor/execPartition.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "nodes/execnodes.h"
#include "rewrite/rewriteHandler.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/partcache.h"
#include "utils/rel.h"
#include "utils/rls.h"
#include "utils/ruleutils.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

/* ---------- choosing a key ---------- */

static char *
list_names(const Target *target, const Bitmapset *numbers)
{
	StringInfoData names;
	int			number = -1;

	initStringInfo(&names);
	while ((number = bms_next_member(numbers, number)) > 0)
		appendStringInfo(&names, "%s%s", names.len > 0 ? ", " : "",
						 quote_identifier(get_attname(RelationGetRelid(target->relation), number, false)));
	return names.data;
}

/*
 * Returns a key's name and definition, for people: "account_pkey" (id).
 */
char *
idem_target_describe_key(const TargetKey *key)
{
	return psprintf("\"%s\" (%s)", key->name, pg_get_indexdef_columns(key->index, true));
}

/* The keys that are usable or refused, one after the other, a refused one with the reason. */
static char *
list_keys(const TargetTable *table, bool usable)
{
	StringInfoData keys;

	initStringInfo(&keys);
	for (int i = 0; i < table->nkeys; i++)
	{
		const TargetKey *key = table->keys[i];

		if ((key->refusal == NULL) != usable)
			continue;
		appendStringInfo(&keys, "%s%s", keys.len > 0 ? ", " : "", idem_target_describe_key(key));
		if (!usable)
			appendStringInfo(&keys, ", which %s", key->refusal);
	}
	return keys.data;
}

static void
detail_of_keys(const Target *target)
{
	char	   *usable = list_keys(target->table, true);
	char	   *refused = list_keys(target->table, false);

	if (usable[0] == '\0' && refused[0] == '\0')
		errdetail("The table has no unique key.");
	else if (usable[0] == '\0')
		errdetail("Unique keys that cannot be used: %s.", refused);
	else if (refused[0] == '\0')
		errdetail("Unique keys: %s.", usable);
	else
		errdetail("Unique keys: %s. Keys that cannot be used: %s.", usable, refused);
}

static void
hint_at_partition_key(const Target *target)
{
	if (target->relation->rd_rel->relkind == RELKIND_PARTITIONED_TABLE)
		errhint("A unique key of a partitioned table has the columns of its partition key (%s) in it: one without them holds in each partition alone.",
				pg_get_partkeydef_columns(RelationGetRelid(target->relation), false));
	else
		errhint("Name the columns of a unique key of the table, or its index.");
}

/* Do two keys say the same?  One may be about to replace the other. */
static bool
same_definition(const TargetKey *a, const TargetKey *b)
{
	if (a->ncolumns != b->ncolumns || a->nulls_distinct != b->nulls_distinct ||
		!bms_equal(a->sources, b->sources) ||
		!equal(a->predicate, b->predicate) || !equal(a->expressions, b->expressions))
		return false;
	for (int i = 0; i < a->ncolumns; i++)
	{
		if (a->columns[i].number != b->columns[i].number ||
			a->columns[i].equality != b->columns[i].equality ||
			a->columns[i].collation != b->columns[i].collation)
			return false;
	}
	return true;
}

/*
 * Of keys that say the same the primary one, else the first, is taken: the order of
 * locks then is the same for all.
 */
static bool
is_better(const TargetKey *key, const TargetKey *than)
{
	if (key->primary != than->primary)
		return key->primary;
	if (key->inherited != than->inherited)
		return key->inherited;
	return key->index < than->index;
}

static void
raise_ambiguous(const Target *target)
{
	ereport(ERROR,
			(errcode(ERRCODE_AMBIGUOUS_COLUMN),
			 errmsg("which unique key of table \"%s\" is meant is ambiguous", RelationGetRelationName(target->relation)),
			 errdetail("Unique keys: %s.", list_keys(target->table, true)),
			 errhint("Pass the key's columns as \"key\", or the name of its index.")));
}

/*
 * Takes one of the keys that have exactly these columns (`exactly`), or none but
 * these.  Returns NULL if there is none; a refused one only if there is no other.
 */
static const TargetKey *
pick_key(const Target *target, const Bitmapset *columns, bool exactly)
{
	const TargetKey *picked = NULL;
	const TargetKey *refused = NULL;

	for (int i = 0; i < target->table->nkeys; i++)
	{
		const TargetKey *key = target->table->keys[i];

		if (exactly ? !bms_equal(key->sources, columns) : columns && !bms_is_subset(key->sources, columns))
			continue;
		if (key->refusal != NULL)
			refused = key;
		else if (picked == NULL || (same_definition(key, picked) && is_better(key, picked)))
			picked = key;
		else if (!same_definition(key, picked))
			raise_ambiguous(target);
	}
	return picked ? picked : exactly ? refused : NULL;
}

static const TargetKey *
find_key_by_name(const Target *target, const char *name)
{
	for (int i = 0; i < target->table->nkeys; i++)
	{
		if (strcmp(target->table->keys[i]->name, name) == 0)
			return target->table->keys[i];
	}
	return NULL;
}

/* By the name of its index, if no column is called that, or by its columns. */
static const TargetKey *
find_named_key(const Target *target, const List *names)
{
	const TargetKey *key = NULL;
	Bitmapset  *columns = NULL;
	ListCell   *cell;

	if (list_length(names) == 1 && get_attnum(RelationGetRelid(target->relation), linitial(names)) <= 0)
		key = find_key_by_name(target, linitial(names));
	if (key == NULL)
	{
		foreach(cell, names)
			columns = bms_add_member(columns, idem_target_find_column(target, lfirst(cell)));
		key = pick_key(target, columns, true);
	}
	if (key == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_COLUMN_REFERENCE),
				 errmsg("table \"%s\" has no unique key of exactly the columns %s",
						RelationGetRelationName(target->relation), list_names(target, columns)),
				 detail_of_keys(target),
				 hint_at_partition_key(target)));
	if (key->refusal != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_COLUMN_REFERENCE),
				 errmsg("unique key \"%s\" of table \"%s\" cannot be used", key->name,
						RelationGetRelationName(target->relation)),
				 errdetail("The key %s.", key->refusal),
				 hint_at_partition_key(target)));
	return key;
}

/*
 * Chooses the unique key that is meant: that of these columns or with this index's
 * name, or, where `names` is NIL, the only one whose columns are all given.  NULL
 * for `given` stands for all columns.
 *
 * Raises 42P10 where there is none or it cannot be used, 42702 where there are
 * several, 42703 for what is no column, 22023 where one of its columns is not given.
 */
const TargetKey *
idem_target_choose_key(const Target *target, const List *names, const Bitmapset *given)
{
	const TargetKey *key;

	if (names == NIL)
	{
		key = pick_key(target, given, false);
		if (key == NULL)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_COLUMN_REFERENCE),
					 errmsg("table \"%s\" has no usable unique key whose columns are all given",
							RelationGetRelationName(target->relation)),
					 detail_of_keys(target),
					 hint_at_partition_key(target)));
		return key;
	}

	key = find_named_key(target, names);
	if (given != NULL && !bms_is_subset(key->sources, given))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("no value is given for columns of unique key \"%s\": %s", key->name,
						list_names(target, bms_difference(key->sources, given))),
				 errhint("A default could be another one at the retry: pass the key's values with each call.")));
	return key;
}

/* Is it the key's own index, or a partition's part of it? */
static bool
descends_from(Oid index, Oid key_index)
{
	return index == key_index || (OidIsValid(index) &&
								  get_rel_relispartition(index) && list_member_oid(get_partition_ancestors(index), key_index));
}

static bool
is_valid_index(Oid index)
{
	HeapTuple	tuple = SearchSysCache1(INDEXRELID, ObjectIdGetDatum(index));
	bool		valid = HeapTupleIsValid(tuple) && ((Form_pg_index) GETSTRUCT(tuple))->indisvalid;

	if (HeapTupleIsValid(tuple))
		ReleaseSysCache(tuple);
	return valid;
}

/*
 * Is a unique violation, by the names that it reports, one of this key?  Of its
 * index or of a partition's part of that; or of one that takes its place while it is
 * rebuilt concurrently, which comes and goes, or of another that says the same.
 */
bool
idem_target_is_part_of_key(const Target *target, const TargetKey *key, const char *schema_name,
						   const char *table_name, const char *index_name)
{
	Oid			relid = RelationGetRelid(target->relation);
	Oid			schema;
	Oid			table;
	Oid			index;

	if (schema_name == NULL || table_name == NULL || index_name == NULL)
		return false;			/* raised by a trigger */
	schema = get_namespace_oid(schema_name, true);
	table = get_relname_relid(table_name, schema);
	if (table != relid && !list_member_oid(target->table->parts, table))
		return false;			/* of a table that a trigger wrote to */

	index = get_relname_relid(index_name, schema);
	if (descends_from(index, key->index) || !is_valid_index(index) ||
		(table == relid && strcmp(index_name, key->name) == 0))
		return true;
	for (int i = 0; i < target->table->nkeys; i++)
	{
		const TargetKey *other = target->table->keys[i];

		if (other->index == index)
			return same_definition(other, key);
	}
	return false;
}

/* ---------- the values of a key ---------- */

/*
 * A copy of the row in which the generated columns that the key needs are filled
 * in: before a row is stored they are not.
 */
static TupleTableSlot *
with_generated_columns(const Target *target, const TargetKey *key, TupleTableSlot *row, EState * estate)
{
	TupleTableSlot *full = ExecInitExtraTupleSlot(estate, RelationGetDescr(target->relation), &TTSOpsVirtual);
	ExprContext *econtext = GetPerTupleExprContext(estate);
	int			number = -1;

	ExecCopySlot(full, row);
	econtext->ecxt_scantuple = full;
	while ((number = bms_next_member(key->generated, number)) > 0)
	{
		Expr	   *expression = (Expr *) build_column_default(target->relation, number);

		full->tts_values[number - 1] = ExecEvalExpr(ExecPrepareExpr(expression, estate), econtext,
													&full->tts_isnull[number - 1]);
	}
	return full;
}

/* As the index computes them. */
static void
compute_values(const Target *target, TupleTableSlot *row, bool judge, TargetKeyValues *values)
{
	MemoryContext context = CurrentMemoryContext;
	IndexKey   *index_key = &values->index_key;
	Relation	index = index_open(values->key->index, AccessShareLock);
	IndexInfo  *info = BuildIndexInfo(index);
	EState	   *estate = CreateExecutorState();
	ExprContext *econtext = GetPerTupleExprContext(estate);
	TupleTableSlot *full;

	MemoryContextSwitchTo(estate->es_query_cxt);
	full = with_generated_columns(target, values->key, row, estate);
	econtext->ecxt_scantuple = full;
	values->outside = judge && info->ii_Predicate != NIL &&
		!ExecQual(ExecPrepareQual(info->ii_Predicate, estate), econtext);
	index_key->ncolumns = values->outside ? 0 : info->ii_NumIndexKeyAttrs;
	if (!values->outside)
		FormIndexDatum(info, full, estate, index_key->values, index_key->nulls);

	MemoryContextSwitchTo(context);
	for (int i = 0; i < index_key->ncolumns; i++)
	{
		Form_pg_attribute attribute = TupleDescAttr(RelationGetDescr(index), i);

		if (!index_key->nulls[i])
			index_key->values[i] = datumCopy(index_key->values[i], attribute->attbyval, attribute->attlen);
	}
	idem_target_free_executor(estate);
	index_close(index, AccessShareLock);
}

/*
 * Computes the values of a key that a row has.  `given` are the columns that are
 * known, NULL for all; whether the row is within a partial key's predicate is
 * judged only if all that it depends on is known.  The values belong to the current
 * memory context, or to the row.
 */
void
idem_target_compute_key(const Target *target, const TargetKey *key, TupleTableSlot *row,
						const Bitmapset *given, TargetKeyValues *values)
{
	IndexKey   *index_key = &values->index_key;

	values->key = key;
	values->outside = false;
	values->null_column = -1;
	if (key->computed)
		compute_values(target, row, given == NULL || bms_is_subset(key->predicate_sources, given), values);
	else
	{
		index_key->ncolumns = key->ncolumns;
		for (int i = 0; i < key->ncolumns; i++)
			index_key->values[i] = slot_getattr(row, key->columns[i].number, &index_key->nulls[i]);
	}
	for (int i = 0; key->nulls_distinct && i < index_key->ncolumns && values->null_column < 0; i++)
	{
		if (index_key->nulls[i])
			values->null_column = i;
	}
}

/*
 * Are these values of one key the same?
 */
bool
idem_target_same_values(const TargetKeyValues *a, const TargetKeyValues *b)
{
	Relation	index;
	bool		same;

	if (a->outside || b->outside || a->null_column >= 0 || b->null_column >= 0)
		return false;
	index = index_open(a->key->index, AccessShareLock);
	same = idem_unique_index_compare(index, &a->index_key, &b->index_key) == 0;
	index_close(index, AccessShareLock);
	return same;
}

static int
compare_values(const void *a, const void *b, void *index)
{
	const TargetKeyValues *left = *(TargetKeyValues *const *) a;
	const TargetKeyValues *right = *(TargetKeyValues *const *) b;
	int			order = idem_unique_index_compare(index, &left->index_key, &right->index_key);

	return order != 0 ? order : left < right ? -1 : left > right;
}

/*
 * Sorts values of one key as its index does, but for DESC and NULLS FIRST; equal
 * ones in the order of their addresses.
 */
void
idem_target_sort_values(TargetKeyValues **values, int nvalues)
{
	Relation	index;

	if (nvalues < 2)
		return;
	index = index_open(values[0]->key->index, AccessShareLock);
	qsort_arg(values, nvalues, sizeof(TargetKeyValues *), compare_values, index);
	index_close(index, AccessShareLock);
}

/*
 * Returns a hash that is the same for all forms of one key's values.
 */
uint32
idem_target_hash_values(const TargetKeyValues *values)
{
	Relation	index = index_open(values->key->index, AccessShareLock);
	uint32		hash = idem_unique_index_hash(index, &values->index_key);

	index_close(index, AccessShareLock);
	return hash;
}

/* ---------- the row ---------- */

/* the table that a row with certain values is in, and its index */
typedef struct Leaf
{
	Relation	relation;
	Relation	index;

	/* only of a partitioned table */
	EState	   *estate;
	ModifyTableState *modify;
	PartitionTupleRouting *routing;
} Leaf;

/* The partition's own index that is a part of the parent's. */
static Oid
index_of_partition(const Target *target, Relation partition, Oid index)
{
	List	   *tables = lcons_oid(RelationGetRelid(partition), get_partition_ancestors(RelationGetRelid(partition)));
	int			depth = list_length(tables);

	/* from the target's own level down */
	while (depth > 0 && list_nth_oid(tables, depth - 1) != RelationGetRelid(target->relation))
		depth--;
	for (depth -= 2; depth >= 0; depth--)
	{
		Relation	table = depth > 0 ? table_open(list_nth_oid(tables, depth), AccessShareLock) : partition;

		index = index_get_partition(table, index);
		if (table != partition)
			table_close(table, NoLock);
		if (!OidIsValid(index)) /* a valid index of the parent has one in every partition */
			elog(ERROR, "partition \"%s\" lacks a part of the unique key", RelationGetRelationName(partition));
	}
	return index;
}

/*
 * Finds the partition as the executor routes a new row, the way logical
 * replication does it (worker.c).  Raises 23514 if there is none.
 */
static void
open_partition(const Target *target, const TargetKey *key, TupleTableSlot *row, Leaf *leaf)
{
	EState	   *estate = leaf->estate = CreateExecutorState();
	MemoryContext before = MemoryContextSwitchTo(estate->es_query_cxt);
	ResultRelInfo *root = makeNode(ResultRelInfo);

	InitResultRelInfo(root, target->relation, 0, NULL, 0);
	leaf->modify = makeNode(ModifyTableState);
	leaf->modify->ps.state = estate;
	leaf->modify->operation = CMD_INSERT;
	leaf->modify->resultRelInfo = root;
	leaf->routing = ExecSetupPartitionTupleRouting(estate, target->relation);
	leaf->relation = ExecFindPartition(leaf->modify, root, leaf->routing, row, estate)->ri_RelationDesc;
	MemoryContextSwitchTo(before);
	leaf->index = index_open(index_of_partition(target, leaf->relation, key->index), AccessShareLock);
}

static void
open_leaf(const Target *target, const TargetKey *key, TupleTableSlot *row, Leaf *leaf)
{
	memset(leaf, 0, sizeof(Leaf));
	if (target->relation->rd_rel->relkind == RELKIND_PARTITIONED_TABLE)
	{
		open_partition(target, key, row, leaf);
		return;
	}
	leaf->relation = target->relation;
	leaf->index = index_open(key->index, AccessShareLock);
}

static void
close_leaf(Leaf *leaf)
{
	index_close(leaf->index, AccessShareLock);
	if (leaf->estate == NULL)
		return;
	ExecCleanupTupleRouting(leaf->modify, leaf->routing);
	idem_target_free_executor(leaf->estate);
}

/* The row as one of the target's row type, even if a partition has its columns in another order. */
static Datum
row_of_target(const Target *target, const Leaf *leaf, TupleTableSlot *slot)
{
	TupleConversionMap *map;
	bool		should_free;
	HeapTuple	tuple;

	if (leaf->relation == target->relation)
		return ExecFetchSlotHeapTupleDatum(slot);
	map = convert_tuples_by_name(RelationGetDescr(leaf->relation), RelationGetDescr(target->relation));
	tuple = ExecFetchSlotHeapTuple(slot, false, &should_free);
	if (map != NULL)
		tuple = execute_attr_map_tuple(tuple, map);
	return heap_copy_tuple_as_datum(tuple, RelationGetDescr(target->relation));
}

/* As SELECT would of whoever asks for the whole row. */
static void
check_may_select(const Target *target)
{
	Relation	relation = target->relation;
	Oid			relid = RelationGetRelid(relation);

	if (pg_class_aclcheck(relid, GetUserId(), ACL_SELECT) != ACLCHECK_OK &&
		pg_attribute_aclcheck_all(relid, GetUserId(), ACL_SELECT, ACLMASK_ALL) != ACLCHECK_OK)
		aclcheck_error(ACLCHECK_NO_PRIV, get_relkind_objtype(relation->rd_rel->relkind),
					   RelationGetRelationName(relation));
}

/* ---------- row security ---------- */

/* Where a row stands. */
typedef struct Place
{
	const Target *target;
	Oid			table;
	ItemPointerData tid;
} Place;

static void
write_select_at(StatementText *out, const void *context)
{
	const Place *place = context;
	char	   *alias = idem_target_alias(place->target);
	int			table = idem_statement_param(out, OIDOID);
	int			tid = idem_statement_param(out, TIDOID);

	appendStringInfo(&out->sql,
					 "SELECT %s FROM %s AS %s WHERE %s.tableoid OPERATOR(pg_catalog.=) $%d AND %s.ctid OPERATOR(pg_catalog.=) $%d",
					 alias, idem_target_qualified_name(place->target), alias, alias, table, alias, tid);
}

/*
 * Row security is what the executor makes of a statement: so the row is asked for
 * once more, by its place.
 */
static bool
select_at(Place *place, Snapshot snapshot, Datum *found)
{
	Statement	statement = {
		.kind = IDEM_TARGET_SELECT_AT,
		.relation = RelationGetRelid(place->target->relation),
		.write = write_select_at,
		.context = place
	};
	Datum		values[] = {ObjectIdGetDatum(place->table), PointerGetDatum(&place->tid)};
	MemoryContext context = CurrentMemoryContext;
	bool		visible = idem_plan_cache_execute(&statement, values, NULL, snapshot, true) > 0;
	bool		isnull;

	MemoryContextSwitchTo(context);
	if (visible)
		*found = datumCopy(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull), false, -1);
	SPI_freetuptable(SPI_tuptable);
	return visible;
}

/* ---------- looking ---------- */

/*
 * Looks for the row that has these values, by an MVCC snapshot.  `row` is a row
 * that has them, and names the partition.  If it is found, *found is the whole row,
 * in the current memory context, and a crash can no longer take it back.
 *
 * Needs the caller's SELECT on all columns, on the table itself where it has row
 * security; takes no transaction id, and works in a read-only transaction and on a
 * standby.
 */
TargetFind
idem_target_find(const Target *target, const TargetKeyValues *values, TupleTableSlot *row,
				 Snapshot snapshot, Datum *found)
{
	Place		place = {.target = target};
	bool		present;
	TupleTableSlot *slot;
	Leaf		leaf;

	check_may_select(target);
	open_leaf(target, values->key, row, &leaf);
	slot = table_slot_create(leaf.relation, NULL);
	present = idem_unique_index_find(leaf.relation, leaf.index, &values->index_key, snapshot, slot);
	if (present)
	{
		bool		isnull;

		idem_transactions_flush_commit(DatumGetTransactionId(slot_getsysattr(slot, MinTransactionIdAttributeNumber, &isnull)));
		place.table = RelationGetRelid(leaf.relation);
		place.tid = slot->tts_tid;
		*found = row_of_target(target, &leaf, slot);
	}
	ExecDropSingleTupleTableSlot(slot);
	close_leaf(&leaf);

	if (!present)
		return IDEM_ROW_ABSENT;
	if (check_enable_rls(RelationGetRelid(target->relation), InvalidOid, true) == RLS_ENABLED &&
		!select_at(&place, snapshot, found))
		return IDEM_ROW_HIDDEN;
	return IDEM_ROW_FOUND;
}

/*
 * Asks what there is with these values, committed or not; see
 * idem_unique_index_probe().
 */
IndexProbe
idem_target_probe(const Target *target, const TargetKeyValues *values, TupleTableSlot *row, IndexWriter *writer)
{
	Leaf		leaf;
	IndexProbe	probe;

	open_leaf(target, values->key, row, &leaf);
	probe = idem_unique_index_probe(leaf.relation, leaf.index, &values->index_key, writer);
	close_leaf(&leaf);
	return probe;
}

/*
 * Is there a row with these values, by an MVCC snapshot?  For whoever asks as the
 * index would, on nobody's behalf.
 */
bool
idem_target_exists(const Target *target, const TargetKeyValues *values, TupleTableSlot *row, Snapshot snapshot)
{
	Snapshot	registered = RegisterSnapshot(snapshot);
	TupleTableSlot *slot;
	Leaf		leaf;
	bool		exists;

	open_leaf(target, values->key, row, &leaf);
	slot = table_slot_create(leaf.relation, NULL);
	exists = idem_unique_index_find(leaf.relation, leaf.index, &values->index_key, registered, slot);
	ExecDropSingleTupleTableSlot(slot);
	close_leaf(&leaf);
	UnregisterSnapshot(registered);
	return exists;
}

/*
 * Is there a row of any unique key of this row's, so that this row cannot be
 * inserted before the transaction ends?  See idem_unique_index_pin().  The target is
 * no partitioned table; deferrable keys do not keep a row from being inserted.
 */
bool
idem_target_pin_conflict(const Target *target, TupleTableSlot *row)
{
	for (int i = 0; i < target->table->nkeys; i++)
	{
		const TargetKey *key = target->table->keys[i];
		TargetKeyValues values;
		Relation	index;
		bool		pinned;

		if (key->refusal != NULL)
			continue;
		idem_target_compute_key(target, key, row, NULL, &values);
		if (values.outside || values.null_column >= 0)
			continue;
		index = index_open(key->index, AccessShareLock);
		pinned = idem_unique_index_pin(target->relation, index, &values.index_key);
		index_close(index, AccessShareLock);
		if (pinned)
			return true;
	}
	return false;
}
