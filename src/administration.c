/*
 * administration.c - who may use a log
 */
#include "postgres.h"

#include "arguments.h"
#include "compat.h"
#include "operation_log.h"

#include "catalog/namespace.h"
#include "catalog/pg_namespace.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

static Oid
schema_owner(Oid schema)
{
	HeapTuple	tuple = SearchSysCache1(NAMESPACEOID, ObjectIdGetDatum(schema));
	Oid			owner;

	if (!HeapTupleIsValid(tuple))	/* the extension has it */
		elog(ERROR, "cache lookup failed for schema %u", schema);
	owner = ((Form_pg_namespace) GETSTRUCT(tuple))->nspowner;
	ReleaseSysCache(tuple);
	return owner;
}

/* GRANT itself only warns where there is nothing to give. */
static void
check_grantor(Oid log)
{
	AclMode		needed = ACL_GRANT_OPTION_FOR(ACL_SELECT | ACL_INSERT);

	if (pg_class_aclmask(log, GetUserId(), needed, ACLMASK_ALL) != needed)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied to grant the use of log \"%s\"", get_rel_name(log)),
				 errhint("Have its owner call grant_use().")));
}

static bool
may_use_schema(Oid schema, Oid role)
{
	return DatumGetBool(DirectFunctionCall3(has_schema_privilege_id_id, ObjectIdGetDatum(role),
											ObjectIdGetDatum(schema), CStringGetTextDatum("USAGE")));
}

static void
grant(const char *privileges, const char *object, const char *role)
{
	char	   *command = psprintf("GRANT %s ON %s TO %s", privileges, object, role);

	if (SPI_execute(command, false, 0) != SPI_OK_UTILITY)	/* it is one, and errors do not return */
		elog(ERROR, "could not execute \"%s\"", command);
}

IDEM_SQL_FUNCTION(idempotency_grant_use);

/*
 * grant_use(log, role): what a role needs to use the functions with a log
 *
 * The functions belong to whoever made the extension; the owner of another log
 * can only give what is theirs, the log, to roles that have the functions.
 * Raises 42501 for a role that has not.
 */
Datum
idempotency_grant_use(PG_FUNCTION_ARGS)
{
	Operation	operation = {0};
	Oid			log;
	Oid			role;
	Oid			schema = get_namespace_oid("idempotency", false);
	const char *role_name;

	idem_arguments_require(fcinfo, 0, "log");
	idem_arguments_require(fcinfo, 1, "role");
	log = PG_GETARG_OID(0);
	role = PG_GETARG_OID(1);
	idem_operation_log_open(&operation, log, AccessShareLock);
	check_grantor(log);
	role_name = quote_identifier(GetUserNameFromId(role, false));

	SPI_connect();
	if (has_privs_of_role(GetUserId(), schema_owner(schema)))
	{
		grant("USAGE", "SCHEMA idempotency", role_name);
		grant("EXECUTE", "ALL ROUTINES IN SCHEMA idempotency", role_name);
		grant("SELECT", "TABLE idempotency.transition_history", role_name);
	}
	else if (!may_use_schema(schema, role))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("role %s may not use the functions of schema \"idempotency\"", role_name),
				 errhint("Have the extension's owner call grant_use() for the role once, with any log.")));
	grant("SELECT, INSERT",
		  psprintf("TABLE %s", quote_qualified_identifier(get_namespace_name(get_rel_namespace(log)),
														  get_rel_name(log))),
		  role_name);
	SPI_finish();
	idem_operation_log_close(&operation, NoLock);
	PG_RETURN_VOID();
}
