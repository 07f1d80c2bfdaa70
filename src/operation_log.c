/*
 * operation_log.c - the log of operations: its rows, found and recorded
 *
 * This file alone reads and writes the rows of a log.
 * Concepts hold to the protocol (docs/internals.md has the argument):
 *
 *	1. find, by a snapshot taken before anything else: duplicates leave here
 *	2. take hold of the target's row; a twin, which needs the same row, is
 *	   now either over or has not begun
 *	3. find again, by a newer snapshot, unless the row is known not to have
 *	   changed since the first
 *	4. take effect, then record: one row, written once and complete
 *
 * So no lock is ever taken on an operation id.  What is left for the unique
 * index to catch is the same id on another row, an impostor, and rows written
 * behind these functions' back; record() turns that into an error that tells the
 * caller which of the two it was.
 *
 * An expired row counts as absent for every reader.  record() removes it, as the
 * log's owner, and inserts the new one as the caller, so that the caller needs
 * no more than SELECT and INSERT and every row is made under the log's row
 * security.  A snapshot of REPEATABLE READ may see an expired row and its
 * successor at once: find() walks past the former.
 */
#include "postgres.h"

#include "compat.h"
#include "errors.h"
#include "operation_log.h"
#include "plan_cache.h"
#include "request_digest.h"
#include "transactions.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "commands/trigger.h"
#include "utils/builtins.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

/* what stands in a new row's way may go while it is looked at: to purge, or to forget() */
#define MAX_RECORD_ROUNDS 10

/* seconds; -1: for ever */
int			idem_operation_log_default_ttl = -1;

/* the operations that run in this session, innermost first */
static Operation *running_operations;

/* ---------- running operations ---------- */

static bool
same_text(const text *a, const text *b)
{
	return VARSIZE_ANY_EXHDR(a) == VARSIZE_ANY_EXHDR(b) &&
		memcmp(VARDATA_ANY(a), VARDATA_ANY(b), VARSIZE_ANY_EXHDR(a)) == 0;
}

/*
 * Marks the operation as running in this session.  Raises 55006 if it is
 * already: a trigger on the target that calls back with the same id would find
 * nothing logged yet and never end.
 */
void
idem_operation_log_begin(Operation *operation)
{
	for (const Operation *running = running_operations; running != NULL; running = running->outer)
	{
		if (running->log == operation->log &&
			same_text(running->operation_id, operation->operation_id) &&
			same_text(running->scope, operation->scope))
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_IN_USE),
					 errmsg("operation \"%s\" is already running in this session",
							text_to_cstring(operation->operation_id)),
					 errhint("A trigger on the target must not call with the operation id that fires it.")));
	}
	operation->outer = running_operations;
	running_operations = operation;
}

/*
 * The end of idem_operation_log_begin(), also after an error.
 */
void
idem_operation_log_end(Operation *operation)
{
	running_operations = operation->outer;
}

/* ---------- statements ---------- */

static char *
qualified_name(const Operation *operation)
{
	Relation	relation = operation->log_relation;

	return quote_qualified_identifier(get_namespace_name(RelationGetNamespace(relation)),
									  RelationGetRelationName(relation));
}

/* Appends "scope = $1 AND operation_id = $2". */
static void
write_id_condition(StatementText *out)
{
	int			scope = idem_statement_param(out, TEXTOID);
	int			operation_id = idem_statement_param(out, TEXTOID);

	appendStringInfo(&out->sql,
					 "l.scope OPERATOR(pg_catalog.=) $%d AND l.operation_id OPERATOR(pg_catalog.=) $%d",
					 scope, operation_id);
}

static void
write_find(StatementText *out, const void *context)
{
	const Operation *operation = context;

	appendStringInfoString(&out->sql, "SELECT ");
	for (int i = 0; i < LOG_NCOLUMNS; i++)
		appendStringInfo(&out->sql, "l.%s, ", quote_identifier(idem_log_columns[i].name));
	appendStringInfo(&out->sql, "l.xmin FROM %s AS l WHERE ", qualified_name(operation));
	write_id_condition(out);
}

/*
 * Without a conflict target: one would raise a spurious unique violation while
 * the index is rebuilt concurrently.
 */
static void
write_insert(StatementText *out, const void *context)
{
	const Operation *operation = context;

	appendStringInfo(&out->sql, "INSERT INTO %s (", qualified_name(operation));
	for (int i = 0; i < LOG_NCOLUMNS; i++)
		appendStringInfo(&out->sql, "%s%s", i > 0 ? ", " : "", quote_identifier(idem_log_columns[i].name));
	appendStringInfoString(&out->sql, ") VALUES (");
	for (int i = 0; i < LOG_NCOLUMNS; i++)
		appendStringInfo(&out->sql, "%s$%d", i > 0 ? ", " : "",
						 idem_statement_param(out, idem_log_columns[i].type));
	appendStringInfoString(&out->sql, ") ON CONFLICT DO NOTHING");
}

static void
write_delete_expired(StatementText *out, const void *context)
{
	const Operation *operation = context;

	appendStringInfo(&out->sql, "DELETE FROM %s AS l WHERE ", qualified_name(operation));
	write_id_condition(out);
	appendStringInfo(&out->sql, " AND l.expires_at OPERATOR(pg_catalog.<=) $%d",
					 idem_statement_param(out, TIMESTAMPTZOID));
}

static void
write_probe(StatementText *out, const void *context)
{
	const Operation *operation = context;

	appendStringInfo(&out->sql, "SELECT FROM %s AS l WHERE ", qualified_name(operation));
	write_id_condition(out);
	appendStringInfoString(&out->sql,
						   " AND (l.expires_at IS NULL OR l.expires_at OPERATOR(pg_catalog.>) pg_catalog.clock_timestamp())");
}

static uint64
execute(const Operation *operation, StatementKind kind, void (*write) (StatementText *, const void *),
		Datum *values, const char *nulls, Snapshot snapshot, bool read_only)
{
	Statement	statement = {.kind = kind,.relation = operation->log,.write = write,.context = operation};

	return idem_plan_cache_execute(&statement, values, nulls, snapshot, read_only);
}

/* For what these functions do to the log on the caller's behalf. */
static uint64
execute_as_owner(const Operation *operation, StatementKind kind, void (*write) (StatementText *, const void *),
				 Datum *values, Snapshot snapshot)
{
	Statement	statement = {
		.kind = kind,
		.relation = operation->log,
		.as_owner = operation->log_relation->rd_rel->relowner,
		.write = write,
		.context = operation
	};

	return idem_plan_cache_execute(&statement, values, NULL, snapshot, false);
}

/* ---------- find ---------- */

static bool
has_expired(const LogRow *row)
{
	return !row->nulls[LOG_EXPIRES_AT] &&
		DatumGetTimestampTz(row->values[LOG_EXPIRES_AT]) <= GetCurrentTimestamp();
}

/*
 * Looks for the operation by a snapshot.  Returns whether it is logged and has
 * not expired; then the row's values belong to the current memory context.
 * Needs the caller's SELECT on the log, takes no transaction id, and works in a
 * read-only transaction and on a standby.
 */
bool
idem_operation_log_find(const Operation *operation, Snapshot snapshot, LogRow *row)
{
	Datum		values[] = {PointerGetDatum(operation->scope), PointerGetDatum(operation->operation_id)};
	MemoryContext caller_context = CurrentMemoryContext;
	SPITupleTable *found;
	uint64		nfound;
	bool		live = false;

	nfound = execute(operation, IDEM_LOG_FIND, write_find, values, NULL, snapshot, true);
	found = SPI_tuptable;
	MemoryContextSwitchTo(caller_context);

	for (uint64 i = 0; i < nfound && !live; i++)
	{
		Datum		columns[LOG_NCOLUMNS + 1];
		bool		nulls[LOG_NCOLUMNS + 1];

		heap_deform_tuple(heap_copytuple(found->vals[i]), found->tupdesc, columns, nulls);
		memcpy(row->values, columns, sizeof(row->values));
		memcpy(row->nulls, nulls, sizeof(row->nulls));
		live = !has_expired(row);
		if (live)
			idem_transactions_flush_commit(DatumGetTransactionId(columns[LOG_NCOLUMNS]));
	}
	SPI_freetuptable(found);
	return live;
}

static void
raise_concurrent_operation(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
			 errmsg("could not serialize access due to a concurrent operation of the same id"),
			 errhint("The transaction might succeed if retried.")));
}

/*
 * Looks again, by what is committed now.  Where the transaction reads by one
 * snapshot and that one did not show the operation, it cannot go on: 40001.
 */
bool
idem_operation_log_find_newer(const Operation *operation, LogRow *row)
{
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	bool		found = idem_operation_log_find(operation, snapshot, row);

	UnregisterSnapshot(snapshot);
	if (found && IsolationUsesXactSnapshot())
		raise_concurrent_operation();
	return found;
}

static bool
is_request_of(const Operation *operation, const LogRow *row)
{
	bytea	   *stored;
	const JsonbValue *equal;

	/* an operation of another concept may have no target */
	if (row->nulls[LOG_REQUEST_DIGEST] || row->nulls[LOG_TARGET])
		return false;
	if (DatumGetObjectId(row->values[LOG_TARGET]) != operation->target)
		return false;

	stored = DatumGetByteaPP(row->values[LOG_REQUEST_DIGEST]);
	if (idem_request_digest_equal(stored, operation->request_digest))
		return true;
	equal = operation->equal_request(operation, row);
	return equal != NULL && idem_request_digest_equal(stored, idem_request_digest(equal));
}

/* Names what differs, for people: "delta, key". */
static char *
describe_differences(const Operation *operation, const LogRow *row)
{
	StringInfoData names;
	List	   *fields = NIL;
	ListCell   *cell;

	if (row->nulls[LOG_TARGET] || DatumGetObjectId(row->values[LOG_TARGET]) != operation->target)
		fields = list_make1("target");
	if (!row->nulls[LOG_REQUEST_DIGEST])
	{
		/* the key of another table is not for this one's types to read */
		const JsonbValue *equal = fields == NIL ? operation->equal_request(operation, row) : NULL;

		fields = list_concat(fields, idem_request_digest_differences(DatumGetByteaPP(row->values[LOG_REQUEST_DIGEST]),
																	 equal ? equal : operation->request));
	}
	initStringInfo(&names);
	foreach(cell, fields)
		appendStringInfo(&names, "%s%s", names.len > 0 ? ", " : "", (char *) lfirst(cell));
	return names.data;
}

/*
 * Raises ID001 unless the logged operation was asked to do what this one is.
 * One that was settled as never to happen has no request to compare.
 */
void
idem_operation_log_check_request(const Operation *operation, const LogRow *row)
{
	char	   *differences;

	if (idem_operation_log_outcome(row) == IDEM_FORBIDDEN || is_request_of(operation, row))
		return;

	differences = describe_differences(operation, row);
	ereport(ERROR,
			(errcode(IDEM_OPERATION_MISMATCH),
			 errmsg("operation id \"%s\" belongs to a different request", text_to_cstring(operation->operation_id)),
			 row->nulls[LOG_CREATED_AT] ? 0 :
			 errdetail("It was first used at %s. What differs: %s.",
					   timestamptz_to_str(DatumGetTimestampTz(row->values[LOG_CREATED_AT])),
					   differences[0] != '\0' ? differences : "the request as a whole"),
			 errhint("Use a new operation id for a new request, and the old one only to retry the old request as it was.")));
}

typedef struct StateOutcome
{
	const char *state;
	Outcome		outcome;
} StateOutcome;

/*
 * Returns what a call is told of an operation that is logged already.
 */
Outcome
idem_operation_log_outcome(const LogRow *row)
{
	static const StateOutcome outcomes[] = {
		{IDEM_STATE_DONE, IDEM_DUPLICATE},
		{IDEM_STATE_REJECTED, IDEM_REJECTED},
		{"claimed", IDEM_IN_PROGRESS},
		{"failed", IDEM_FAILED},
		{"forbidden", IDEM_FORBIDDEN},
	};
	char	   *word = TextDatumGetCString(row->values[LOG_STATE]);

	for (int i = 0; i < (int) lengthof(outcomes); i++)
	{
		if (strcmp(word, outcomes[i].state) == 0)
			return outcomes[i].outcome;
	}
	ereport(ERROR,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("operation \"%s\" has an unknown state in its log: \"%s\"",
					TextDatumGetCString(row->values[LOG_OPERATION_ID]), word),
			 errhint("The log was written to by something other than these functions.")));
	return IDEM_DUPLICATE;		/* not reached; for compilers that do not know */
}

const char *
idem_outcome_name(Outcome outcome)
{
	static const char *const names[] = {
		[IDEM_APPLIED] = "applied",
		[IDEM_DUPLICATE] = "duplicate",
		[IDEM_IN_PROGRESS] = "in_progress",
		[IDEM_REJECTED] = "rejected",
		[IDEM_FAILED] = "failed",
		[IDEM_FORBIDDEN] = "forbidden",
	};

	return names[outcome];
}

/* ---------- record ---------- */

void
idem_log_row_set(LogRow *row, LogColumn column, Datum value)
{
	row->values[column] = value;
	row->nulls[column] = false;
}

/*
 * Starts the row of an operation that is complete at `now`, a reading of the
 * clock from after the target's row was held.
 */
void
idem_log_row_init(LogRow *row, const char *state_name, TimestampTz now)
{
	memset(row->values, 0, sizeof(row->values));
	memset(row->nulls, true, sizeof(row->nulls));
	idem_log_row_set(row, LOG_STATE, CStringGetTextDatum(state_name));
	idem_log_row_set(row, LOG_CREATED_AT, TimestampTzGetDatum(now));
	idem_log_row_set(row, LOG_COMPLETED_AT, TimestampTzGetDatum(now));
}

static void
set_expiry(const Operation *operation, LogRow *row)
{
	TimestampTz completed = DatumGetTimestampTz(row->values[LOG_COMPLETED_AT]);
	TimestampTz expires;

	if (operation->ttl != NULL)
		expires = DatumGetTimestampTz(DirectFunctionCall2(timestamptz_pl_interval, TimestampTzGetDatum(completed),
														  IntervalPGetDatum(operation->ttl)));
	else if (idem_operation_log_default_ttl >= 0)
		expires = completed + idem_operation_log_default_ttl * USECS_PER_SEC;
	else
		return;

	/* '-2 months 60 days 1 hour' is positive by itself, and may yet lead back */
	if (expires <= completed)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("ttl must lead to a later time"),
				 errhint("Pass an interval without negative parts.")));
	idem_log_row_set(row, LOG_EXPIRES_AT, TimestampTzGetDatum(expires));
}

static bool
insert_row(const Operation *operation, LogRow *row)
{
	char		nulls[LOG_NCOLUMNS];

	for (int i = 0; i < LOG_NCOLUMNS; i++)
		nulls[i] = row->nulls[i] ? 'n' : ' ';
	return execute(operation, IDEM_LOG_INSERT, write_insert, row->values, nulls, InvalidSnapshot, false) == 1;
}

/* May find nothing: purge, or a twin on its way to an error, was first. */
static void
delete_expired_row(const Operation *operation)
{
	Datum		values[] = {
		PointerGetDatum(operation->scope),
		PointerGetDatum(operation->operation_id),
		TimestampTzGetDatum(GetCurrentTimestamp())
	};

	(void) execute_as_owner(operation, IDEM_LOG_DELETE_EXPIRED, write_delete_expired, values, InvalidSnapshot);
}

static bool
is_live_for_owner(const Operation *operation)
{
	Datum		values[] = {PointerGetDatum(operation->scope), PointerGetDatum(operation->operation_id)};

	return execute_as_owner(operation, IDEM_LOG_PROBE, write_probe, values, InvalidSnapshot) > 0;
}

/*
 * Says why the log would not take the row.  Each way out is an error, which
 * undoes the effect.
 */
void
idem_operation_log_raise_not_recorded(const Operation *operation)
{
	TriggerDesc *triggers = operation->log_relation->trigdesc;
	LogRow		other;

	if (idem_operation_log_find_newer(operation, &other))
		idem_operation_log_check_request(operation, &other);
	else if (is_live_for_owner(operation))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("operation id \"%s\" is taken by an operation that row security hides",
						text_to_cstring(operation->operation_id)),
				 errhint("Use a scope of the role's own.")));
	else if (triggers != NULL && triggers->trig_insert_before_row)
		ereport(ERROR,
				(errcode(IDEM_ROW_SUPPRESSED),
				 errmsg("operation \"%s\" was not logged", text_to_cstring(operation->operation_id)),
				 errdetail("A BEFORE INSERT trigger on the log \"%s\" kept its row from being stored.",
						   RelationGetRelationName(operation->log_relation)),
				 errhint("Change the trigger so that it returns the row.")));
	/* else it was there when the row was to be stored, and is gone now */
	raise_concurrent_operation();
}

/*
 * Writes the operation's row.  Fills in the scope, the id, the request and the
 * expiry.  Needs the caller's INSERT on the log.  Returns false if the log would
 * not take it: if another is logged under this id, which is waited for.
 */
bool
idem_operation_log_try_record(const Operation *operation, LogRow *row)
{
	idem_log_row_set(row, LOG_SCOPE, PointerGetDatum(operation->scope));
	idem_log_row_set(row, LOG_OPERATION_ID, PointerGetDatum(operation->operation_id));
	idem_log_row_set(row, LOG_TARGET, ObjectIdGetDatum(operation->target));
	idem_log_row_set(row, LOG_REQUEST_DIGEST, PointerGetDatum(operation->request_digest));
	set_expiry(operation, row);

	for (int round = 0; round < MAX_RECORD_ROUNDS; round++)
	{
		if (insert_row(operation, row))
			return true;
		/* nearly always what is in the way has expired */
		delete_expired_row(operation);
	}
	return false;
}

/*
 * Writes the operation's row, after its effect.  As idem_operation_log_try_record(),
 * but raises ID001 if another request was logged under this id meanwhile, 42501 if
 * row security hides what stands there, ID009 if a trigger suppressed the row,
 * and 40001 where trying again may help.
 */
void
idem_operation_log_record(const Operation *operation, LogRow *row)
{
	if (!idem_operation_log_try_record(operation, row))
		idem_operation_log_raise_not_recorded(operation);
}

/* ---------- administration ---------- */

static void
write_forget(StatementText *out, const void *context)
{
	const Operation *operation = context;

	appendStringInfo(&out->sql, "DELETE FROM %s AS l WHERE ", qualified_name(operation));
	write_id_condition(out);
	appendStringInfoString(&out->sql,
						   " RETURNING l.expires_at IS NULL OR l.expires_at OPERATOR(pg_catalog.>) pg_catalog.clock_timestamp()");
}

/*
 * Deletes the operation as the caller, who needs DELETE on the log.  Returns
 * whether it was there; one that has expired was not.
 */
bool
idem_operation_log_forget(const Operation *operation)
{
	Datum		values[] = {PointerGetDatum(operation->scope), PointerGetDatum(operation->operation_id)};
	uint64		nrows = execute(operation, IDEM_LOG_FORGET, write_forget, values, NULL, InvalidSnapshot, false);
	bool		was_live = false;
	bool		isnull;

	for (uint64 i = 0; i < nrows; i++)
		was_live |= DatumGetBool(SPI_getbinval(SPI_tuptable->vals[i], SPI_tuptable->tupdesc, 1, &isnull));
	return was_live;
}

static void
write_lock_log(StatementText *out, const void *context)
{
	const Operation *operation = context;

	appendStringInfo(&out->sql, "LOCK TABLE %s IN SHARE ROW EXCLUSIVE MODE", qualified_name(operation));
}

/* Appends the condition that a row of one of the scopes $1 and $2 has an id that stands in the other too. */
static void
write_collision(StatementText *out, const Operation *operation)
{
	int			one = idem_statement_param(out, TEXTOID);
	int			other = idem_statement_param(out, TEXTOID);

	appendStringInfo(&out->sql,
					 "l.scope OPERATOR(pg_catalog.=) ANY (ARRAY[$%d, $%d]) AND EXISTS (SELECT FROM %s AS o"
					 " WHERE o.scope OPERATOR(pg_catalog.=) CASE WHEN l.scope OPERATOR(pg_catalog.=) $%d THEN $%d ELSE $%d END"
					 " AND o.operation_id OPERATOR(pg_catalog.=) l.operation_id)",
					 one, other, qualified_name(operation), one, other, one);
}

static void
write_delete_colliding_expired(StatementText *out, const void *context)
{
	const Operation *operation = context;

	appendStringInfo(&out->sql, "DELETE FROM %s AS l WHERE ", qualified_name(operation));
	write_collision(out, operation);
	appendStringInfoString(&out->sql, " AND l.expires_at OPERATOR(pg_catalog.<=) pg_catalog.clock_timestamp()");
}

static void
write_find_colliding(StatementText *out, const void *context)
{
	const Operation *operation = context;

	appendStringInfo(&out->sql, "SELECT FROM %s AS l WHERE l.scope OPERATOR(pg_catalog.=) $1 AND ",
					 qualified_name(operation));
	write_collision(out, operation);
}

static void
write_rename_scope(StatementText *out, const void *context)
{
	const Operation *operation = context;
	int			from = idem_statement_param(out, TEXTOID);
	int			to = idem_statement_param(out, TEXTOID);

	appendStringInfo(&out->sql, "UPDATE %s AS l SET scope = $%d WHERE l.scope OPERATOR(pg_catalog.=) $%d",
					 qualified_name(operation), to, from);
}

/*
 * Moves all operations of the scope to another, as the caller, who needs UPDATE
 * on the log.  Returns how many.  The log is locked in SHARE ROW EXCLUSIVE mode
 * first: operations in flight are waited for and moved too, and none is recorded
 * meanwhile.  Under that lock the latest snapshot is exact at every isolation
 * level.  Raises ID001 if an id is used in both scopes.
 */
uint64
idem_operation_log_rename_scope(const Operation *operation, text *new_scope)
{
	Datum		values[] = {PointerGetDatum(operation->scope), PointerGetDatum(new_scope)};
	Snapshot	snapshot;
	uint64		nrows;

	(void) execute(operation, IDEM_LOG_LOCK, write_lock_log, NULL, NULL, InvalidSnapshot, false);

	snapshot = RegisterSnapshot(GetLatestSnapshot());
	(void) execute_as_owner(operation, IDEM_LOG_DELETE_COLLIDING, write_delete_colliding_expired, values, snapshot);
	UnregisterSnapshot(snapshot);

	snapshot = RegisterSnapshot(GetLatestSnapshot());
	nrows = execute_as_owner(operation, IDEM_LOG_FIND_COLLIDING, write_find_colliding, values, snapshot);
	if (nrows > 0)
		ereport(ERROR,
				(errcode(IDEM_OPERATION_MISMATCH),
				 errmsg("scopes \"%s\" and \"%s\" have operation ids in common",
						text_to_cstring(operation->scope), text_to_cstring(new_scope)),
				 errdetail_plural("%llu operation id is used in both.", "%llu operation ids are used in both.",
								  (unsigned long) nrows, (unsigned long long) nrows),
				 errhint("Choose a scope that is not in use; or, if these took effect under both names, correct one effect of each and forget() it there.")));
	nrows = execute(operation, IDEM_LOG_RENAME_SCOPE, write_rename_scope, values, NULL, snapshot, false);
	UnregisterSnapshot(snapshot);

	/* who has looked already and comes to write starts again, see idem_operation_log_try_lock() */
	CacheInvalidateRelcacheByRelid(operation->log);
	return nrows;
}

/* ---------- rows as results ---------- */

/*
 * Returns the row's columns from `first` on as a tuple of that shape.
 */
HeapTuple
idem_log_row_form(const LogRow *row, int first, TupleDesc desc)
{
	Assert(desc->natts == LOG_NCOLUMNS - first);
	return heap_form_tuple(desc, (Datum *) &row->values[first], (bool *) &row->nulls[first]);
}
