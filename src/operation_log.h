/*
 * operation_log.h - the log of operations: find, record, wait
 */
#ifndef IDEM_OPERATION_LOG_H
#define IDEM_OPERATION_LOG_H

#include "postgres.h"

#include "access/htup.h"
#include "datatype/timestamp.h"
#include "storage/lockdefs.h"
#include "utils/jsonb.h"
#include "utils/relcache.h"
#include "utils/snapshot.h"

/* the columns of a log, in the order of its definition */
typedef enum LogColumn
{
	LOG_SCOPE,
	LOG_OPERATION_ID,
	LOG_STATE,
	LOG_CREATED_AT,
	LOG_COMPLETED_AT,
	LOG_EXPIRES_AT,
	LOG_REQUEST_DIGEST,
	LOG_TARGET,
	LOG_TARGET_KEY,
	LOG_COLUMN_NAME,
	LOG_DELTA,
	LOG_VALUE,
	LOG_FROM_STATE,
	LOG_TO_STATE,
	LOG_RESPONSE,
	LOG_RESPONSE_EXPIRES_AT,
	LOG_ERROR,
	LOG_FENCE,
	LOG_ATTEMPT,
	LOG_LEASE_UNTIL,
	LOG_CHECKPOINT,
	LOG_CHECKPOINT_DATA,
	LOG_ACTOR,
	LOG_NCOLUMNS
} LogColumn;

typedef struct LogColumnType
{
	const char *name;
	Oid			type;
} LogColumnType;

/* what became of a call; idem_outcome_name() spells it */
typedef enum Outcome
{
	IDEM_APPLIED,
	IDEM_DUPLICATE,
	IDEM_IN_PROGRESS,
	IDEM_REJECTED,
	IDEM_FAILED,
	IDEM_FORBIDDEN
} Outcome;

/* the states of a logged operation */
#define IDEM_STATE_DONE "done"
#define IDEM_STATE_REJECTED "rejected"

typedef struct LogRow
{
	Datum		values[LOG_NCOLUMNS];
	bool		nulls[LOG_NCOLUMNS];
} LogRow;

/*
 * An operation, as its caller asked for it.  It is running from
 * idem_operation_log_begin() to idem_operation_log_end().
 */
typedef struct Operation
{
	Oid			log;
	Relation	log_relation;	/* open while the operation runs: nobody drops or alters it below us */
	uint64		log_changes;	/* how often it had changed when it was opened */
	text	   *scope;
	text	   *operation_id;
	const Interval *ttl;		/* or NULL */

	/* the request, against which a logged one is held */
	Oid			target;
	const JsonbValue *request;
	bytea	   *request_digest;

	/*
	 * Gives another request that SQL would call equal to this one, made from what the row recorded, or NULL.
	 * For values that are equal and yet have more than one form, such as citext.
	 */
	const JsonbValue *(*equal_request) (const struct Operation *operation, const LogRow *row);
	void	   *caller;			/* for equal_request */

	struct Operation *outer;
} Operation;

/* operation_log_table.c: the table */
extern const LogColumnType idem_log_columns[LOG_NCOLUMNS];

extern void idem_operation_log_init(void);
extern void idem_operation_log_open(Operation *operation, Oid relid, LOCKMODE lockmode);
extern bool idem_operation_log_try_lock(const Operation *operation);
extern void idem_operation_log_close(Operation *operation, LOCKMODE lockmode);
extern TransactionId idem_operation_log_in_flight(const Operation *operation);

/* operation_log.c: its rows */
extern int	idem_operation_log_default_ttl;

extern void idem_operation_log_begin(Operation *operation);
extern void idem_operation_log_end(Operation *operation);

extern bool idem_operation_log_find(const Operation *operation, Snapshot snapshot, LogRow *row);
extern bool idem_operation_log_find_newer(const Operation *operation, LogRow *row);
extern void idem_operation_log_check_request(const Operation *operation, const LogRow *row);
extern Outcome idem_operation_log_outcome(const LogRow *row);
extern const char *idem_outcome_name(Outcome outcome);

extern void idem_log_row_init(LogRow *row, const char *state, TimestampTz now);
extern void idem_log_row_set(LogRow *row, LogColumn column, Datum value);
extern bool idem_operation_log_try_record(const Operation *operation, LogRow *row);
extern void idem_operation_log_record(const Operation *operation, LogRow *row);
extern void idem_operation_log_raise_not_recorded(const Operation *operation);
extern HeapTuple idem_log_row_form(const LogRow *row, int first, TupleDesc desc);

extern bool idem_operation_log_forget(const Operation *operation);
extern uint64 idem_operation_log_rename_scope(const Operation *operation, text *new_scope);

#endif							/* IDEM_OPERATION_LOG_H */
