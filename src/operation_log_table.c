/*
 * operation_log_table.c - the table of a log: its shape, and who is writing to it
 *
 * Any table with the columns of idempotency.operation_log, by name and type, and
 * a unique index on (scope, operation_id) can be a log.  That it is one is
 * remembered until the relation changes.
 */
#include "postgres.h"

#include "compat.h"
#include "operation_log.h"
#include "unique_index.h"

#include "access/relation.h"
#include "catalog/pg_am.h"
#include "catalog/pg_collation.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_type.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/hsearch.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

const LogColumnType idem_log_columns[LOG_NCOLUMNS] = {
	[LOG_SCOPE] = {"scope", TEXTOID},
	[LOG_OPERATION_ID] = {"operation_id", TEXTOID},
	[LOG_STATE] = {"state", TEXTOID},
	[LOG_CREATED_AT] = {"created_at", TIMESTAMPTZOID},
	[LOG_COMPLETED_AT] = {"completed_at", TIMESTAMPTZOID},
	[LOG_EXPIRES_AT] = {"expires_at", TIMESTAMPTZOID},
	[LOG_REQUEST_DIGEST] = {"request_digest", BYTEAOID},
	[LOG_TARGET] = {"target", REGCLASSOID},
	[LOG_TARGET_KEY] = {"target_key", JSONBOID},
	[LOG_COLUMN_NAME] = {"column_name", TEXTOID},
	[LOG_DELTA] = {"delta", NUMERICOID},
	[LOG_VALUE] = {"value", NUMERICOID},
	[LOG_FROM_STATE] = {"from_state", TEXTOID},
	[LOG_TO_STATE] = {"to_state", TEXTOID},
	[LOG_RESPONSE] = {"response", JSONBOID},
	[LOG_RESPONSE_EXPIRES_AT] = {"response_expires_at", TIMESTAMPTZOID},
	[LOG_ERROR] = {"error", JSONBOID},
	[LOG_FENCE] = {"fence", INT8OID},
	[LOG_ATTEMPT] = {"attempt", INT4OID},
	[LOG_LEASE_UNTIL] = {"lease_until", TIMESTAMPTZOID},
	[LOG_CHECKPOINT] = {"checkpoint", TEXTOID},
	[LOG_CHECKPOINT_DATA] = {"checkpoint_data", JSONBOID},
	[LOG_ACTOR] = {"actor", TEXTOID},
};

/* A table that was found to have the shape of a log. */
typedef struct KnownLog
{
	Oid			relation;
	bool		valid;			/* cleared when the relation changes */
	uint64		changes;		/* how often that was */
	Oid			index;			/* unique on (scope, operation_id) */
} KnownLog;

static HTAB *known_logs;

/* Relation changes may be told as "any relation", with InvalidOid. */
static void
forget_known_log(Datum arg, Oid relation)
{
	HASH_SEQ_STATUS scan;
	KnownLog   *log;

	hash_seq_init(&scan, known_logs);
	while ((log = hash_seq_search(&scan)) != NULL)
	{
		if (relation == InvalidOid || log->relation == relation)
		{
			log->valid = false;
			log->changes++;
		}
	}
}

/*
 * Called once, when the library is loaded.
 */
void
idem_operation_log_init(void)
{
	HASHCTL		control = {.keysize = sizeof(Oid),.entrysize = sizeof(KnownLog)};

	known_logs = hash_create("idempotency logs", 8, &control, HASH_ELEM | HASH_BLOBS);
	CacheRegisterRelcacheCallback(forget_known_log, (Datum) 0);
}

static void
refuse_log(Relation relation, const char *detail)
{
	ereport(ERROR,
			(errcode(ERRCODE_WRONG_OBJECT_TYPE),
			 errmsg("\"%s\" is not an operation log", RelationGetRelationName(relation)),
			 errdetail("%s", detail),
			 errhint("Make a log with the columns and the primary key of idempotency.operation_log.")));
}

/* Ids compare by bytes, and a value comes back as it was recorded. */
static bool
is_column_of_log(Form_pg_attribute attribute, LogColumn column)
{
	if (attribute->attisdropped || strcmp(NameStr(attribute->attname), idem_log_columns[column].name) != 0)
		return false;
	if (attribute->atttypid != idem_log_columns[column].type || attribute->atttypmod != -1)
		return false;
	if (column > LOG_STATE)
		return true;
	return attribute->attnotnull && attribute->attcollation == C_COLLATION_OID;
}

static void
check_log_columns(Relation relation)
{
	TupleDesc	desc = RelationGetDescr(relation);

	for (int column = 0; column < LOG_NCOLUMNS; column++)
	{
		bool		found = false;

		for (int i = 0; i < desc->natts && !found; i++)
			found = is_column_of_log(TupleDescAttr(desc, i), column);
		if (!found)
			refuse_log(relation, psprintf("It has no column \"%s\" of type %s%s.", idem_log_columns[column].name,
										  format_type_be(idem_log_columns[column].type),
										  column <= LOG_STATE ? " COLLATE \"C\" NOT NULL" : ""));
	}
}

static bool
is_index_of_log(Relation relation, Relation index)
{
	Form_pg_index form = index->rd_index;
	TupleDesc	desc = RelationGetDescr(relation);

	if (!form->indisunique || !form->indimmediate || !form->indisvalid || !form->indisready ||
		index->rd_rel->relam != BTREE_AM_OID || form->indnkeyatts != 2 ||
		RelationGetIndexPredicate(index) != NIL || RelationGetIndexExpressions(index) != NIL)
		return false;

	for (int i = 0; i < 2; i++)
	{
		Form_pg_attribute attribute = TupleDescAttr(desc, form->indkey.values[i] - 1);

		if (strcmp(NameStr(attribute->attname), idem_log_columns[i].name) != 0 ||
			index->rd_indcollation[i] != C_COLLATION_OID)
			return false;
	}
	return true;
}

static Oid
find_log_index(Relation relation)
{
	Oid			found = InvalidOid;
	List	   *indexes = RelationGetIndexList(relation);
	ListCell   *cell;

	foreach(cell, indexes)
	{
		Relation	index = index_open(lfirst_oid(cell), AccessShareLock);

		if (is_index_of_log(relation, index))
			found = RelationGetRelid(index);
		else if ((index->rd_index->indisunique || index->rd_index->indisexclusion) && index->rd_index->indisvalid)
			refuse_log(relation, psprintf("Its index \"%s\" would keep other operations out.",
										  RelationGetRelationName(index)));
		index_close(index, AccessShareLock);
	}
	list_free(indexes);
	return found;
}

static Oid
check_log_shape(Relation relation)
{
	Oid			index;

	if (relation->rd_rel->relkind != RELKIND_RELATION)
		refuse_log(relation, "It is not an ordinary table.");
	if (relation->rd_rel->relpersistence != RELPERSISTENCE_PERMANENT)
		refuse_log(relation, "It is a temporary or unlogged table, which a crash empties.");
	if (relation->rd_rules != NULL)
		refuse_log(relation, "It has rules.");
	if (relation->rd_rel->relhassubclass && find_inheritance_children(RelationGetRelid(relation), NoLock) != NIL)
		refuse_log(relation, "Other tables inherit from it, and its key does not hold across them.");
	check_log_columns(relation);
	index = find_log_index(relation);
	if (!OidIsValid(index))
		refuse_log(relation, "It has no unique key on scope and operation_id.");
	return index;
}

static KnownLog *
get_log(Relation relation)
{
	Oid			relid = RelationGetRelid(relation);
	KnownLog   *log = hash_search(known_logs, &relid, HASH_FIND, NULL);
	Oid			index;
	bool		known;

	if (log != NULL && log->valid)
		return log;

	index = check_log_shape(relation);
	log = hash_search(known_logs, &relid, HASH_ENTER, &known);
	if (!known)
		log->changes = 0;
	log->index = index;
	log->valid = true;
	return log;
}

/*
 * Opens the log that the operation goes to, and locks it.  Raises 42809 if the
 * relation cannot serve as a log, 42P01 if there is none.
 */
void
idem_operation_log_open(Operation *operation, Oid relid, LOCKMODE lockmode)
{
	operation->log = relid;
	operation->log_relation = try_relation_open(relid, lockmode);
	if (operation->log_relation == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("operation log with OID %u does not exist", relid),
				 errhint("Name an existing log, or leave the argument \"log\" out.")));
	operation->log_changes = get_log(operation->log_relation)->changes;
}

/*
 * Locks an open log in ROW EXCLUSIVE mode, as an INSERT does, until the transaction
 * ends, if that needs no waiting.  Returns false if it does, or if the log has
 * changed since it was opened, by rename_scope() perhaps: then what was looked up
 * may be no longer so.
 */
bool
idem_operation_log_try_lock(const Operation *operation)
{
	if (!ConditionalLockRelationOid(operation->log, RowExclusiveLock))
		return false;
	return get_log(operation->log_relation)->changes == operation->log_changes;
}

/*
 * The end of idem_operation_log_open(), giving back a lock of this mode, or none
 * for NoLock.  After an error there is no need.
 */
void
idem_operation_log_close(Operation *operation, LOCKMODE lockmode)
{
	relation_close(operation->log_relation, lockmode);
}

/*
 * Returns the transaction that has logged this operation and not ended, or
 * InvalidTransactionId.  A hint: it tells whom to wait for, and is never a
 * reason to answer anything.
 */
TransactionId
idem_operation_log_in_flight(const Operation *operation)
{
	Relation	relation = operation->log_relation;
	Relation	index = index_open(get_log(relation)->index, AccessShareLock);
	IndexKey	id = {2, {PointerGetDatum(operation->scope), PointerGetDatum(operation->operation_id)}};
	IndexWriter writer;
	bool		in_flight = idem_unique_index_probe(relation, index, &id, &writer) == IDEM_INDEX_IN_FLIGHT;

	index_close(index, AccessShareLock);
	return in_flight ? writer.xid : InvalidTransactionId;
}
