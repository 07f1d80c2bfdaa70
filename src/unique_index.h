/*
 * unique_index.h - asking a unique index for the row of a key
 */
#ifndef IDEM_UNIQUE_INDEX_H
#define IDEM_UNIQUE_INDEX_H

#include "postgres.h"

#include "executor/tuptable.h"
#include "utils/relcache.h"
#include "utils/snapshot.h"

/* the values of an index's key columns, of the index's own types */
typedef struct IndexKey
{
	int			ncolumns;
	Datum		values[INDEX_MAX_KEYS];
	bool		nulls[INDEX_MAX_KEYS];
} IndexKey;

typedef enum IndexProbe
{
	IDEM_INDEX_ABSENT,
	IDEM_INDEX_PRESENT,			/* committed */
	IDEM_INDEX_OWN,				/* inserted by our transaction */
	IDEM_INDEX_IN_FLIGHT		/* inserted by a transaction that has not ended */
} IndexProbe;

/* who is inserting a row, or has inserted it */
typedef struct IndexWriter
{
	TransactionId xid;
	uint32		token;			/* of an insertion that may still be taken back, or 0 */
	ItemPointerData tid;		/* where the row is */
} IndexWriter;

extern bool idem_unique_index_find(Relation relation, Relation index, const IndexKey *key,
								   Snapshot snapshot, TupleTableSlot *slot);
extern IndexProbe idem_unique_index_probe(Relation relation, Relation index, const IndexKey *key,
										  IndexWriter *writer);
extern void idem_unique_index_wait_for_writer(const IndexWriter *writer);
extern bool idem_unique_index_pin(Relation relation, Relation index, const IndexKey *key);
extern int	idem_unique_index_compare(Relation index, const IndexKey *a, const IndexKey *b);
extern uint32 idem_unique_index_hash(Relation index, const IndexKey *key);

#endif							/* IDEM_UNIQUE_INDEX_H */
