/*
 * row_operation.h - one call of an operation on one row: the log's protocol, step by step
 */
#ifndef IDEM_ROW_OPERATION_H
#define IDEM_ROW_OPERATION_H

#include "postgres.h"

#include "fmgr.h"
#include "storage/lockdefs.h"
#include "utils/jsonb.h"

#include "arguments.h"
#include "operation_log.h"
#include "target.h"

typedef struct RowOperation RowOperation;

/* what a concept does at each step */
typedef struct RowOperationSteps
{
	const char *function_name;	/* for errors */
	Size		size;			/* of the concept's own call, which begins with a RowOperation */

	/* reads its arguments; calls idem_row_operation_open() and idem_row_operation_set_request() */
	void		(*read_arguments) (RowOperation *operation, FunctionCallInfo fcinfo, LOCKMODE lockmode);

	/* answers with what the log has, which is of the same request */
	void		(*answer_logged) (RowOperation *operation, const LogRow *row);

	/* answers that a twin is in flight */
	void		(*answer_in_progress) (RowOperation *operation);

	/* looks up what it takes to write: the operation is not logged */
	void		(*prepare) (RowOperation *operation, Snapshot snapshot);

	/* the short way, by the snapshot that the log was looked at by: returns whether it took effect */
	bool		(*apply_guarded) (RowOperation *operation, Snapshot snapshot);

	/* the long way, where the row is held and its column is `value` */
	void		(*apply_holding) (RowOperation *operation, Datum value);

	/* the long way, where there is no row, for the n-th time: returns whether it is answered */
	bool		(*apply_without_row) (RowOperation *operation, int round);
} RowOperationSteps;

struct RowOperation
{
	const RowOperationSteps *steps;
	Operation	logged;			/* as the log knows it */
	Target		target;
	TargetRow	row;
	TargetColumn column;
	const char *column_name;
	JsonbValue	request;		/* an object; one of its fields is the key */
	int64		wait;			/* for a twin, in microseconds, or IDEM_WAIT_UNLIMITED */
	bool		nowait;			/* for others who have the row */
	OnReject	on_reject;

	/* the guarded update found that a twin had been there */
	bool		raced;
	LogRow		raced_row;
};

extern RowOperation *idem_row_operation_call(const RowOperationSteps *steps, FunctionCallInfo fcinfo);

/* for the steps */
extern void idem_row_operation_open(RowOperation *operation, Oid target, Datum key, Oid key_type,
									text *scope, Oid log, LOCKMODE lockmode);
extern void idem_row_operation_set_request(RowOperation *operation, JsonbPair *fields, int nfields);
extern bool idem_row_operation_still_absent(void *operation);
extern void idem_row_operation_init_log_row(const RowOperation *operation, const char *state, LogRow *row);
extern bool idem_row_operation_try_record(RowOperation *operation, LogRow *row);

#endif							/* IDEM_ROW_OPERATION_H */
