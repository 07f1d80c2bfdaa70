/*
 * target.h - a row of a user's table, reached by its key
 */
#ifndef IDEM_TARGET_H
#define IDEM_TARGET_H

#include "postgres.h"

#include "access/attnum.h"
#include "fmgr.h"
#include "nodes/pg_list.h"
#include "storage/lockdefs.h"
#include "utils/jsonb.h"
#include "utils/numeric.h"
#include "utils/relcache.h"
#include "utils/snapshot.h"

/* a column of a unique key */
typedef struct TargetKeyColumn
{
	AttrNumber	number;
	char	   *name;
	Oid			type;
	Oid			base_type;
	Oid			input_function; /* the base type's, and these two */
	Oid			input_parameter;
	Oid			output_function;
	Oid			equality;		/* the index's own operator */
	Oid			collation;		/* the index's own, or InvalidOid */
} TargetKeyColumn;

/* a unique key */
typedef struct TargetKey
{
	Oid			index;
	char	   *name;
	bool		primary;
	const char *refusal;		/* why it cannot name a row, or NULL */
	int			ncolumns;
	TargetKeyColumn columns[INDEX_MAX_KEYS];
} TargetKey;

/* what is known of a table */
typedef struct TargetTable
{
	Oid			relation;
	List	   *partitions;		/* OIDs of all tables below it */
	bool		durable;		/* its rows outlive a crash, those of partitions too */
	bool		valid;			/* cleared when one of these changes */
	MemoryContext context;		/* everything below lives here, this too */
	int			nkeys;
	TargetKey **keys;
	TargetKey  *primary;		/* or NULL */
} TargetTable;

/* a table, opened by idem_target_open() */
typedef struct Target
{
	Relation	relation;
	TargetTable *table;			/* what is known of it */
} Target;

/* a row, named by the values of a unique key */
typedef struct TargetRow
{
	const Target *target;
	const TargetKey *key;
	Datum		values[INDEX_MAX_KEYS];
	JsonbValue	json;			/* the key as a JSON object */
} TargetRow;

/* a column to count in */
typedef struct TargetColumn
{
	AttrNumber	number;
	const char *name;
	Oid			base_type;		/* int2, int4, int8 or numeric */
	int32		typmod;			/* of the base type */
} TargetColumn;

typedef enum TargetLock
{
	IDEM_ROW_LOCKED,
	IDEM_ROW_MISSING,
	IDEM_ROW_BUSY				/* it is there, and could not be locked */
} TargetLock;

/*
 * Asked while a guarded update stands on a row that changed since its snapshot
 * was taken, with the row's lock held: may the update go on?
 */
typedef bool (*TargetRecheck) (void *argument);

/* target.c: tables and columns */
extern void idem_target_init(void);
extern void idem_target_open(Target *target, Oid relid, LOCKMODE lockmode);
extern bool idem_target_try_lock(const Target *target);
extern void idem_target_close(Target *target, LOCKMODE lockmode);
extern void idem_target_check_writable(const Target *target);
extern char *idem_target_scope(const Target *target, const char *column_name);
extern void idem_target_read_column(const TargetRow *row, const char *name, TargetColumn *column);

/* target_key.c: which row a key names */
extern void idem_target_read_key(const Target *target, Datum key, Oid key_type, TargetRow *row);
extern bool idem_target_read_logged_key(const TargetRow *row, Jsonb *logged, TargetRow *logged_row);
extern bool idem_target_same_key(const TargetRow *a, const TargetRow *b);

/* target_row.c: what is done to the row */
extern bool idem_target_add(const TargetRow *row, const TargetColumn *column, Numeric delta,
							Numeric minimum, Numeric maximum, Snapshot snapshot,
							TargetRecheck recheck, void *argument, Numeric *value);
extern TargetLock idem_target_lock(const TargetRow *row, const TargetColumn *column, bool wait, Numeric *value);
extern bool idem_target_insert(const TargetRow *row, const TargetColumn *column, Numeric initial,
							   bool conflict_is_error, Numeric *value);
extern bool idem_target_exists_for_owner(const TargetRow *row);
extern TransactionId idem_target_holder(const TargetRow *row);

#endif							/* IDEM_TARGET_H */
