/*
 * arguments.h - the arguments that many functions share, read and checked
 */
#ifndef IDEM_ARGUMENTS_H
#define IDEM_ARGUMENTS_H

#include "postgres.h"

#include "datatype/timestamp.h"
#include "fmgr.h"

/* what to do when a rule says no */
typedef enum OnReject
{
	IDEM_REJECT_RAISE,			/* an error */
	IDEM_REJECT_RETURN,			/* an answer; the id stays free */
	IDEM_REJECT_RECORD			/* an answer that sticks */
} OnReject;

/* `wait` in microseconds; this one has no limit */
#define IDEM_WAIT_UNLIMITED INT64CONST(-1)

/* The argument, or NULL where SQL's NULL was given. */
#define IDEM_TEXT_OR_NULL(n) (PG_ARGISNULL(n) ? NULL : PG_GETARG_TEXT_PP(n))
#define IDEM_INTERVAL_OR_NULL(n) (PG_ARGISNULL(n) ? NULL : PG_GETARG_INTERVAL_P(n))

extern void idem_arguments_require(FunctionCallInfo fcinfo, int n, const char *name);
extern void idem_arguments_check_operation_id(const text *operation_id);
extern void idem_arguments_check_scope(const text *scope);
extern void idem_arguments_check_ttl(const Interval *ttl);
extern int64 idem_arguments_wait(const Interval *wait);
extern OnReject idem_arguments_on_reject(const text *on_reject);

#endif							/* IDEM_ARGUMENTS_H */
