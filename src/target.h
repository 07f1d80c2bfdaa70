/*
 * target.h - a row of a user's table, reached by its key
 */
#ifndef IDEM_TARGET_H
#define IDEM_TARGET_H

#include "postgres.h"

#include "access/attnum.h"
#include "fmgr.h"
#include "utils/jsonb.h"
#include "utils/numeric.h"
#include "utils/relcache.h"
#include "utils/snapshot.h"

typedef struct TargetTable TargetTable;
typedef struct TargetKey TargetKey;

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
	IDEM_ROW_BUSY				/* another transaction has it */
} TargetLock;

/*
 * Asked while a guarded update stands on a row that changed since its snapshot
 * was taken, with the row's lock held: may the update go on?
 */
typedef bool (*TargetRecheck) (void *argument);

extern void idem_target_init(void);
extern void idem_target_open(Target *target, Oid relid);
extern void idem_target_lock_table(Target *target);
extern void idem_target_close(Target *target);
extern void idem_target_read_key(const Target *target, Datum key, Oid key_type, TargetRow *row);
extern bool idem_target_read_json_key(const Target *target, const TargetKey *key, Jsonb *json, TargetRow *row);
extern bool idem_target_same_key(const TargetRow *a, const TargetRow *b);
extern void idem_target_read_column(const TargetRow *row, const char *name, TargetColumn *column);
extern char *idem_target_scope(const Target *target, const char *column_name);

extern bool idem_target_add(const TargetRow *row, const TargetColumn *column, Numeric delta,
							Numeric minimum, Numeric maximum, Snapshot snapshot,
							TargetRecheck recheck, void *argument, Numeric *value);
extern TargetLock idem_target_lock(const TargetRow *row, const TargetColumn *column, bool wait, Numeric *value);
extern bool idem_target_insert(const TargetRow *row, const TargetColumn *column, Numeric initial,
							   bool conflict_is_error, Numeric *value);
extern TransactionId idem_target_holder(const TargetRow *row);

#endif							/* IDEM_TARGET_H */
