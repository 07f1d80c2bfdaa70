/*
 * init.c - what happens when the library is loaded: settings and callbacks
 */
#include "postgres.h"

#include "compat.h"
#include "guard_transitions.h"
#include "ignore_duplicates.h"
#include "operation_log.h"
#include "plan_cache.h"
#include "target.h"

#include "catalog/namespace.h"
#include "catalog/pg_namespace.h"
#include "miscadmin.h"
#include "utils/syscache.h"

#include <limits.h>

IDEM_MODULE_MAGIC;

extern PGDLLEXPORT void _PG_init(void);

/* a time to live of no seconds would mean that nothing is remembered */
static bool
check_default_ttl(int *seconds, void **extra, GucSource source)
{
	if (*seconds != 0)
		return true;
	GUC_check_errdetail("A time to live is at least one second; -1 means for ever.");
	return false;
}

void
_PG_init(void)
{
	/* Decide how long a retry may come after the first try: later, it runs again. */
	DefineCustomIntVariable("idempotency.default_ttl",
							"How long an operation id is remembered unless its call says otherwise.",
							"From the operation's completion. -1 means for ever.",
							&idem_operation_log_default_ttl,
							-1, -1, INT_MAX,
							PGC_USERSET, GUC_UNIT_S,
							check_default_ttl, NULL, NULL);
	idem_reserve_settings("idempotency");

	idem_plan_cache_init();
	idem_operation_log_init();
	idem_target_init();
	idem_ignore_duplicates_init();
	idem_guard_transitions_init();
}

IDEM_SQL_FUNCTION(idempotency_check_schema_owner);

/*
 * Raises 42501 unless the schema that the extension is being created in belongs
 * to whoever creates it.  The extension's script calls this first.
 */
Datum
idempotency_check_schema_owner(PG_FUNCTION_ARGS)
{
	Oid			schema = get_namespace_oid("idempotency", false);
	HeapTuple	tuple = SearchSysCache1(NAMESPACEOID, ObjectIdGetDatum(schema));
	Oid			owner;

	if (!HeapTupleIsValid(tuple))	/* it was there a moment ago, in this transaction */
		elog(ERROR, "cache lookup failed for schema %u", schema);
	owner = ((Form_pg_namespace) GETSTRUCT(tuple))->nspowner;
	ReleaseSysCache(tuple);

	if (owner != GetUserId())
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("schema \"idempotency\" belongs to role \"%s\"", GetUserNameFromId(owner, false)),
				 errdetail("Whoever owns the schema could replace the extension's functions."),
				 errhint("Rename or drop that schema; CREATE EXTENSION makes its own.")));
	PG_RETURN_VOID();
}
