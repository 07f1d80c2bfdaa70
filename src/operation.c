/*
 * operation.c - what is known of an operation, and its name in the log
 */
#include "postgres.h"

#include "arguments.h"
#include "compat.h"
#include "operation_log.h"

#include "catalog/pg_collation.h"
#include "executor/spi.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/snapmgr.h"

static void
open_log(FunctionCallInfo fcinfo, int log_argument, Operation *operation)
{
	idem_arguments_require(fcinfo, log_argument, "log");
	idem_operation_log_open(operation, PG_GETARG_OID(log_argument), AccessShareLock);
}

/* Reads the arguments (scope, operation_id, log). */
static void
read_arguments(FunctionCallInfo fcinfo, Operation *operation)
{
	operation->scope = IDEM_TEXT_OR_NULL(0);
	idem_arguments_check_scope(operation->scope);
	operation->operation_id = IDEM_TEXT_OR_NULL(1);
	idem_arguments_check_operation_id(operation->operation_id);
	open_log(fcinfo, 2, operation);
}

IDEM_SQL_FUNCTION(idempotency_lookup);

/*
 * lookup(scope, operation_id, log): the logged operation, or NULL
 */
Datum
idempotency_lookup(PG_FUNCTION_ARGS)
{
	MemoryContext caller_context = CurrentMemoryContext;
	Operation	operation = {0};
	Snapshot	snapshot;
	LogRow		row;
	HeapTuple	result = NULL;

	read_arguments(fcinfo, &operation);

	SPI_connect();
	snapshot = RegisterSnapshot(GetTransactionSnapshot());
	if (idem_operation_log_find(&operation, snapshot, &row))
	{
		TupleDesc	desc;

		MemoryContextSwitchTo(caller_context);
		if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
			elog(ERROR, "return type must be a row type");	/* its declaration says so */
		result = idem_log_row_form(&row, LOG_STATE, BlessTupleDesc(desc));
	}
	UnregisterSnapshot(snapshot);
	SPI_finish();
	idem_operation_log_close(&operation, NoLock);

	if (result == NULL)
		PG_RETURN_NULL();
	PG_RETURN_DATUM(HeapTupleGetDatum(result));
}

IDEM_SQL_FUNCTION(idempotency_forget);

/*
 * forget(scope, operation_id, log): whether there was something to forget
 */
Datum
idempotency_forget(PG_FUNCTION_ARGS)
{
	Operation	operation = {0};
	bool		forgotten;

	read_arguments(fcinfo, &operation);
	PreventCommandIfReadOnly("forget()");

	SPI_connect();
	forgotten = idem_operation_log_forget(&operation);
	SPI_finish();
	idem_operation_log_close(&operation, NoLock);
	PG_RETURN_BOOL(forgotten);
}

IDEM_SQL_FUNCTION(idempotency_rename_scope);

/*
 * rename_scope(old_scope, new_scope, log): how many operations were moved
 */
Datum
idempotency_rename_scope(PG_FUNCTION_ARGS)
{
	Operation	operation = {0};
	text	   *new_scope = IDEM_TEXT_OR_NULL(1);
	uint64		renamed;

	operation.scope = IDEM_TEXT_OR_NULL(0);
	idem_arguments_check_scope(operation.scope);
	idem_arguments_check_scope(new_scope);
	open_log(fcinfo, 2, &operation);
	PreventCommandIfReadOnly("rename_scope()");
	if (DatumGetBool(DirectFunctionCall2Coll(texteq, C_COLLATION_OID,
											 PointerGetDatum(operation.scope), PointerGetDatum(new_scope))))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("the old and the new scope are the same"),
				 errhint("Pass two different scopes.")));

	SPI_connect();
	renamed = idem_operation_log_rename_scope(&operation, new_scope);
	SPI_finish();
	idem_operation_log_close(&operation, NoLock);
	PG_RETURN_INT64((int64) renamed);
}
