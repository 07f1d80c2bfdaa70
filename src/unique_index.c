/*
 * unique_index.c - asking a unique index for the row of a key
 *
 * The index itself is asked, by its own operators and collations: it is what
 * decides which rows are of one key, whatever its columns, expressions, predicate
 * or treatment of NULL.  A row of a partial index is within its predicate.
 *
 * A look by an MVCC snapshot is exact, and in SERIALIZABLE leaves the predicate
 * locks of an ordinary read.  A probe sees what has not been committed, too, but it
 * can miss a committed row that is updated while it looks (the index entry of the
 * new version may come to stand where the scan has been already).  So "absent" is
 * only believed of a look, and "in flight" only tells whom to wait for.
 */
#include "postgres.h"

#include "compat.h"
#include "unique_index.h"

#include "access/genam.h"
#include "access/nbtree.h"
#include "access/sysattr.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "common/hashfn.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/typcache.h"

/* The equality operator of a key column. */
static Oid
equality_operator(Relation index, int i)
{
	Oid			type = index->rd_opcintype[i];
	Oid			operator = get_opfamily_member(index->rd_opfamily[i], type, type, BTEqualStrategyNumber);

	if (!OidIsValid(operator))	/* a btree operator class has one */
		elog(ERROR, "missing equality operator of index \"%s\"", RelationGetRelationName(index));
	return operator;
}

static IndexScanDesc
begin_scan(Relation relation, Relation index, const IndexKey *key, Snapshot snapshot, ScanKeyData *keys)
{
	IndexScanDesc scan;

	for (int i = 0; i < key->ncolumns; i++)
	{
		if (key->nulls[i])
			ScanKeyEntryInitialize(&keys[i], SK_ISNULL | SK_SEARCHNULL, i + 1, InvalidStrategy, InvalidOid,
								   InvalidOid, InvalidOid, (Datum) 0);
		else
			ScanKeyEntryInitialize(&keys[i], 0, i + 1, BTEqualStrategyNumber, InvalidOid,
								   index->rd_indcollation[i], get_opcode(equality_operator(index, i)),
								   key->values[i]);
	}
	scan = idem_index_beginscan(relation, index, snapshot, key->ncolumns);
	index_rescan(scan, keys, key->ncolumns, NULL, 0);
	return scan;
}

/*
 * Looks for the row of a key by an MVCC snapshot.  Returns whether there is one;
 * then it stands in the slot, which was made for the table.
 */
bool
idem_unique_index_find(Relation relation, Relation index, const IndexKey *key, Snapshot snapshot,
					   TupleTableSlot *slot)
{
	ScanKeyData keys[INDEX_MAX_KEYS];
	IndexScanDesc scan = begin_scan(relation, index, key, snapshot, keys);
	bool		found = index_getnext_slot(scan, ForwardScanDirection, slot);

	/* the scan's end lets go of the page */
	if (found)
		ExecMaterializeSlot(slot);
	index_endscan(scan);
	return found;
}

/*
 * Asks what there is of a key, committed or not.  Where there is a row, *writer says
 * where; and where it is in flight, whom to wait for.
 */
IndexProbe
idem_unique_index_probe(Relation relation, Relation index, const IndexKey *key, IndexWriter *writer)
{
	TupleTableSlot *slot = table_slot_create(relation, NULL);
	IndexProbe	result = IDEM_INDEX_ABSENT;
	ScanKeyData keys[INDEX_MAX_KEYS];
	SnapshotData dirty = {0};
	IndexScanDesc scan;

	InitDirtySnapshot(dirty);
	scan = begin_scan(relation, index, key, &dirty, keys);
	while (result != IDEM_INDEX_IN_FLIGHT && index_getnext_slot(scan, ForwardScanDirection, slot))
	{
		bool		isnull;
		Datum		xmin = slot_getsysattr(slot, MinTransactionIdAttributeNumber, &isnull);

		if (TransactionIdIsValid(dirty.xmin))
			result = IDEM_INDEX_IN_FLIGHT;
		else if (TransactionIdIsCurrentTransactionId(DatumGetTransactionId(xmin)))
			result = IDEM_INDEX_OWN;
		else
			result = IDEM_INDEX_PRESENT;
		writer->xid = dirty.xmin;
		writer->token = dirty.speculativeToken;
		writer->tid = slot->tts_tid;
	}
	index_endscan(scan);
	ExecDropSingleTupleTableSlot(slot);
	return result;
}

/*
 * Waits until a row that was in flight is committed or gone.
 */
void
idem_unique_index_wait_for_writer(const IndexWriter *writer)
{
	if (writer->token != 0)
		SpeculativeInsertionWait(writer->xid, writer->token);
	else
		XactLockTableWait(writer->xid, NULL, NULL, XLTW_None);
}

/* Locks the row at this place as an UPDATE would. */
static TM_Result
lock_row(Relation relation, ItemPointer tid)
{
	TupleTableSlot *slot = table_slot_create(relation, NULL);
	TM_FailureData failure;
	TM_Result	result = table_tuple_lock(relation, tid, GetLatestSnapshot(), slot, GetCurrentCommandId(false),
										  LockTupleNoKeyExclusive, LockWaitBlock, 0, &failure);

	ExecDropSingleTupleTableSlot(slot);
	return result;
}

/* Where is the row that is committed now?  Returns false if there is none. */
static bool
find_newest(Relation relation, Relation index, const IndexKey *key, ItemPointer tid)
{
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	TupleTableSlot *slot = table_slot_create(relation, NULL);
	bool		found = idem_unique_index_find(relation, index, key, snapshot, slot);

	*tid = slot->tts_tid;
	ExecDropSingleTupleTableSlot(slot);
	UnregisterSnapshot(snapshot);
	return found;
}

/*
 * Is there a row of the key, so that none can be inserted before this transaction
 * ends?  Waits for whoever is inserting one, and locks the row that is there, so
 * that nobody deletes it or changes its key.  On nobody's behalf: no privilege is
 * asked for, and no row is shown.
 */
bool
idem_unique_index_pin(Relation relation, Relation index, const IndexKey *key)
{
	for (;;)
	{
		IndexWriter writer;
		IndexProbe	probe = idem_unique_index_probe(relation, index, key, &writer);

		CHECK_FOR_INTERRUPTS();
		if (probe == IDEM_INDEX_OWN)
			return true;
		if (probe == IDEM_INDEX_IN_FLIGHT)
		{
			idem_unique_index_wait_for_writer(&writer);
			continue;
		}
		/* the probe may have missed one */
		if (probe == IDEM_INDEX_ABSENT && !find_newest(relation, index, key, &writer.tid))
			return false;
		switch (lock_row(relation, &writer.tid))
		{
			case TM_Ok:
				return true;
			case TM_SelfModified:	/* this very statement has deleted it */
				return false;
			default:			/* it has changed: look again */
				break;
		}
	}
}

/*
 * Orders keys as the index does, but for DESC and NULLS FIRST: one order for
 * whoever takes locks.
 */
int
idem_unique_index_compare(Relation index, const IndexKey *a, const IndexKey *b)
{
	for (int i = 0; i < a->ncolumns; i++)
	{
		int			order;

		if (a->nulls[i] || b->nulls[i])
			order = (int) a->nulls[i] - (int) b->nulls[i];
		else
			order = DatumGetInt32(FunctionCall2Coll(index_getprocinfo(index, i + 1, BTORDER_PROC),
													index->rd_indcollation[i], a->values[i], b->values[i]));
		if (order != 0)
			return order;
	}
	return 0;
}

/* An array, a range or a row is hashable if what it is made of is. */
static bool
is_hashable(Relation index, int i)
{
	Oid			type = TupleDescAttr(RelationGetDescr(index), i)->atttypid;

	if (!IsPolymorphicType(index->rd_opcintype[i]) && index->rd_opcintype[i] != RECORDOID)
		return true;
	return OidIsValid(lookup_type_cache(type, TYPECACHE_HASH_PROC)->hash_proc);
}

/*
 * A hash that is the same for all forms of one key.  A column whose equality has no
 * hash function adds nothing to it.
 */
uint32
idem_unique_index_hash(Relation index, const IndexKey *key)
{
	uint32		hash = 0;

	for (int i = 0; i < key->ncolumns; i++)
	{
		RegProcedure function;
		uint32		column = 0;

		if (!key->nulls[i] && is_hashable(index, i) &&
			get_op_hash_functions(equality_operator(index, i), &function, NULL))
			column = DatumGetUInt32(OidFunctionCall1Coll(function, index->rd_indcollation[i], key->values[i]));
		hash = hash_combine(hash, column);
	}
	return hash;
}
