/*
 * target.h - a row of a user's table, reached by its key
 */
#ifndef IDEM_TARGET_H
#define IDEM_TARGET_H

#include "postgres.h"

#include "access/attnum.h"
#include "executor/tuptable.h"
#include "fmgr.h"
#include "nodes/bitmapset.h"
#include "nodes/execnodes.h"
#include "nodes/pg_list.h"
#include "storage/lockdefs.h"
#include "utils/jsonb.h"
#include "utils/numeric.h"
#include "utils/relcache.h"
#include "utils/reltrigger.h"
#include "utils/snapshot.h"

#include "plan_cache.h"
#include "state_diagram.h"
#include "unique_index.h"

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
	bool		inherited;		/* a part of a partitioned table's */
	const char *refusal;		/* why it guards nothing, or NULL */
	const char *unnamable;		/* why values of its columns do not name a row, or NULL */
	bool		computed;		/* its values are not just those of columns, or only some rows have them */
	bool		nulls_distinct;
	Bitmapset  *sources;		/* the columns that its values are computed from */
	Bitmapset  *predicate_sources;	/* and those of its predicate */
	Bitmapset  *generated;		/* generated columns that it needs */
	List	   *predicate;
	List	   *expressions;
	int			ncolumns;		/* 0 with expressions */
	TargetKeyColumn columns[INDEX_MAX_KEYS];
} TargetKey;

/* what is known of a table */
typedef struct TargetTable
{
	Oid			relation;
	List	   *parts;			/* OIDs of its indexes and of all tables below it */
	bool		durable;		/* its rows outlive a crash, those of partitions too */
	bool		deferrable;		/* it has a deferrable key or exclusion constraint */
	bool		valid;			/* cleared when one of these changes */
	uint64		version;		/* no two have the same */
	MemoryContext context;		/* everything below lives here, this too */
	int			nkeys;
	TargetKey **keys;
	TargetKey  *primary;		/* or NULL */
	List	   *machines;		/* of StateMachine, those that were asked for */
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

/* a column to count in, or one that has the row's state */
typedef struct TargetColumn
{
	AttrNumber	number;
	const char *name;
	Oid			base_type;		/* int2, int4, int8 or numeric; text, varchar or an enum */
	int32		typmod;			/* of the base type */
	const char *read_as;		/* the type that statements read it as: numeric, or text */
} TargetColumn;

/* the states that a column may go through; see target_machine.c */
typedef struct StateMachine
{
	Oid			trigger_oid;
	char	   *trigger_name;
	char	   *text;			/* the diagram, as the trigger has it */
	Oid			root;			/* the partitioned table that this one is a part of, or InvalidOid */
	TargetColumn column;
	const StateDiagram *diagram;
} StateMachine;

typedef enum TargetLock
{
	IDEM_ROW_LOCKED,
	IDEM_ROW_MISSING,
	IDEM_ROW_BUSY				/* it is there, and could not be locked */
} TargetLock;

typedef enum TargetLockWait
{
	IDEM_LOCK_WAIT,				/* in the row's queue */
	IDEM_LOCK_TRY,				/* not at all */
	IDEM_LOCK_NOWAIT			/* not at all, and that is an error */
} TargetLockWait;

/*
 * Asked while a guarded update stands on a row that changed since its snapshot
 * was taken, with the row's lock held: may the update go on?
 */
typedef bool (*TargetRecheck) (void *argument);

/*
 * A row that is to be inserted.  Columns that are not given take their defaults.
 */
typedef struct TargetNewRow
{
	Datum		values;			/* of the table's row type; NULL where not given */
	Bitmapset  *given;			/* attribute numbers */
} TargetNewRow;

/* a row's way from one state to another */
typedef struct TargetMove
{
	const TargetColumn *column;
	const char *from;			/* NULL: the row is held, and its state judged */
	Datum		to;				/* see idem_target_state_value() */
	const TargetNewRow *changes;	/* to other columns, or NULL */
} TargetMove;

/* how many rows are in a state */
typedef struct StateCount
{
	char	   *state;			/* NULL is one, too */
	int64		count;
} StateCount;

/* the state of one of many rows */
typedef struct RowState
{
	bool		found;
	char	   *state;			/* or NULL */
} RowState;

/* rows, named by the values of a unique key, in its order */
typedef struct TargetRows
{
	const Target *target;
	const TargetKey *key;
	int			nrows;
	Datum		arrays[INDEX_MAX_KEYS]; /* one of each column of the key */
} TargetRows;

/* the values of a unique key that a row has, or would have */
typedef struct TargetKeyValues
{
	const TargetKey *key;
	bool		outside;		/* of a partial key's predicate; then there are no values */
	int			null_column;	/* the first that is NULL where NULLs are equal to nothing, or -1 */
	IndexKey	index_key;
} TargetKeyValues;

/* what reading new rows needs to know, kept over the calls of one query */
typedef struct TargetReader
{
	uint64		version;		/* of the table; 0: nothing is known yet */
	MemoryContext context;
	FmgrInfo	populate;
	Datum		no_values;		/* a row of NULLs */
} TargetReader;

typedef enum TargetFind
{
	IDEM_ROW_ABSENT,
	IDEM_ROW_FOUND,
	IDEM_ROW_HIDDEN				/* by row security */
} TargetFind;

typedef enum TargetInsert
{
	IDEM_ROW_INSERTED,
	IDEM_ROW_NOT_INSERTED,		/* a unique key was in the way, or a trigger suppressed it */
	IDEM_ROW_CONFLICT,			/* the unique key in question was in the way */
	IDEM_ROW_OTHER_CONFLICT		/* an error told of another unique key */
} TargetInsert;

/* target.c: tables and columns */
extern void idem_target_init(void);
extern void idem_target_open(Target *target, Oid relid, LOCKMODE lockmode);
extern bool idem_target_try_lock(const Target *target);
extern void idem_target_use(Target *target, Relation relation);
extern void idem_target_end_use(Target *target);
extern void idem_target_close(Target *target, LOCKMODE lockmode);
extern void idem_target_check_writable(const Target *target);
extern void idem_target_check_insertable(const Target *target);
extern void idem_target_free_executor(EState * estate);
extern char *idem_target_qualified_name(const Target *target);
extern char *idem_target_alias(const Target *target);
extern AttrNumber idem_target_find_column(const Target *target, const char *name);
extern char *idem_target_scope(const Target *target, const char *column_name);
extern void idem_target_read_column(const TargetRow *row, const char *name, TargetColumn *column);
extern void idem_target_read_state_column(const Target *target, const char *name, TargetColumn *column);
extern void idem_target_check_not_in_key(const TargetRow *row, AttrNumber number);

/* target_key.c: which row a key names */
extern void idem_target_read_key(const Target *target, Datum key, Oid key_type, TargetRow *row);
extern bool idem_target_read_logged_key(const TargetRow *row, Jsonb *logged, TargetRow *logged_row);
extern bool idem_target_same_key(const TargetRow *a, const TargetRow *b);

/* target_unique.c: the unique keys, and the row of a key's values */
extern const TargetKey *idem_target_choose_key(const Target *target, const List *names, const Bitmapset *given);
extern char *idem_target_describe_key(const TargetKey *key);
extern bool idem_target_is_part_of_key(const Target *target, const TargetKey *key, const char *schema_name,
									   const char *table_name, const char *index_name);
extern void idem_target_compute_key(const Target *target, const TargetKey *key, TupleTableSlot *row,
									const Bitmapset *given, TargetKeyValues *values);
extern bool idem_target_same_values(const TargetKeyValues *a, const TargetKeyValues *b);
extern void idem_target_sort_values(TargetKeyValues **values, int nvalues);
extern uint32 idem_target_hash_values(const TargetKeyValues *values);
extern TargetFind idem_target_find(const Target *target, const TargetKeyValues *values, TupleTableSlot *row,
								   Snapshot snapshot, Datum *found);
extern IndexProbe idem_target_probe(const Target *target, const TargetKeyValues *values, TupleTableSlot *row,
									IndexWriter *writer);
extern bool idem_target_exists(const Target *target, const TargetKeyValues *values, TupleTableSlot *row,
							   Snapshot snapshot);
extern bool idem_target_pin_conflict(const Target *target, TupleTableSlot *row);

/* target_new_row.c: rows to be inserted */
extern void idem_target_read_new_row(const Target *target, Jsonb *json, const char *what, TargetReader *reader, TargetNewRow *row);
extern List *idem_target_differing_columns(const Target *target, const TargetNewRow *row, Datum stored, const List *names);
extern bool idem_target_has_row_triggers(const Target *target);
extern void idem_target_ask_triggers(const Target *target, const TargetNewRow *row, TupleTableSlot *slot);
extern TargetInsert idem_target_insert_new(const Target *target, const TargetNewRow *row, const TargetKey *key,
										   bool conflict_is_error, Datum *stored, ErrorData **other_conflict);

/* target_machine.c: the states of its columns */
extern const StateMachine *idem_target_machine(const Target *target, const Trigger *trigger);
extern List *idem_target_machines(const Target *target);
extern const StateMachine *idem_target_machine_of_column(const Target *target, const char *column_name);
extern char *idem_target_state_name(const TargetColumn *column, Datum value);

/* target_row.c: what is done to the row */
extern bool idem_target_add(const TargetRow *row, const TargetColumn *column, Numeric delta,
							Numeric minimum, Numeric maximum, Snapshot snapshot,
							TargetRecheck recheck, void *argument, Numeric *value);
extern TargetLock idem_target_lock(const TargetRow *row, const TargetColumn *column, TargetLockWait wait, Datum *value);
extern bool idem_target_insert(const TargetRow *row, const TargetColumn *column, Numeric initial,
							   bool conflict_is_error, Numeric *value);
extern bool idem_target_exists_for_owner(const TargetRow *row);
extern void idem_target_flush(const TargetRow *row, Snapshot snapshot);
extern TransactionId idem_target_holder(const TargetRow *row);
extern void idem_target_write_equality(StatementText *out, const TargetKeyColumn *column, const char *value);
extern void idem_target_write_key_condition(StatementText *out, const TargetRow *row);
extern char *idem_target_column_expression(const TargetColumn *column);
extern uint64 idem_target_execute_guarded(const Statement *statement, Datum *values, const char *nulls,
										  Snapshot snapshot, TargetRecheck recheck, void *argument);

/* target_state.c: the row's state */
extern void idem_target_check_state(const TargetColumn *column, const char *name);
extern Datum idem_target_state_value(const TargetColumn *column, const char *name);
extern bool idem_target_read_state(const TargetRow *row, const TargetColumn *column, Snapshot snapshot, char **state);
extern void idem_target_read_changes(const TargetRow *row, const TargetColumn *column, Jsonb *json,
									 TargetReader *reader, TargetNewRow *changes);
extern bool idem_target_move(const TargetRow *row, const TargetMove *move, Snapshot snapshot,
							 TargetRecheck recheck, void *argument, char **state);
extern List *idem_target_count_states(const Target *target, const TargetColumn *column);
extern void idem_target_write_assignments(StatementText *out, const Target *target, const TargetMove *move);

/* target_rows.c: the states of many rows */
extern void idem_target_gather(const Target *target, TargetKeyValues **values, int nrows, TargetRows *rows);
extern RowState *idem_target_read_states(const TargetRows *rows, const TargetColumn *column, Snapshot snapshot);
extern RowState *idem_target_lock_states(const TargetRows *rows, const TargetColumn *column);
extern RowState *idem_target_move_all(const TargetRows *rows, const TargetMove *move);
extern void idem_target_flush_all(const TargetRows *rows, Snapshot snapshot);

#endif							/* IDEM_TARGET_H */
