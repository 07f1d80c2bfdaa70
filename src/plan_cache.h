/*
 * plan_cache.h - the one place that prepares statements and keeps their plans
 */
#ifndef IDEM_PLAN_CACHE_H
#define IDEM_PLAN_CACHE_H

#include "postgres.h"

#include "executor/spi.h"
#include "lib/stringinfo.h"
#include "nodes/bitmapset.h"
#include "utils/snapshot.h"

/* every statement that is kept; with the relation, index and column it is about it names a plan */
typedef enum StatementKind
{
	IDEM_LOG_FIND,
	IDEM_LOG_INSERT,
	IDEM_LOG_DELETE_EXPIRED,
	IDEM_LOG_PROBE,
	IDEM_LOG_FORGET,
	IDEM_LOG_LOCK,
	IDEM_LOG_DELETE_COLLIDING,
	IDEM_LOG_FIND_COLLIDING,
	IDEM_LOG_RENAME_SCOPE,
	IDEM_TARGET_ADD,
	IDEM_TARGET_LOCK,
	IDEM_TARGET_TRY_LOCK,
	IDEM_TARGET_EXISTS,
	IDEM_TARGET_LOCATE,
	IDEM_TARGET_INSERT_MISSING,
	IDEM_TARGET_INSERT,
	IDEM_TARGET_SELECT_AT,
	IDEM_TARGET_INSERT_NEW,
	IDEM_TARGET_TRY_INSERT_NEW,
	IDEM_TARGET_LOCK_NOWAIT,
	IDEM_TARGET_READ_STATE,
	IDEM_TARGET_MOVE,
	IDEM_TARGET_COUNT_STATES,
	IDEM_TARGET_READ_STATES,
	IDEM_TARGET_LOCK_STATES,
	IDEM_TARGET_MOVE_ALL,
	IDEM_TARGET_LOCATE_ALL
} StatementKind;

#define IDEM_MAX_PARAMS (INDEX_MAX_KEYS + 8)

/* the text of a statement, made again whenever what it names has changed */
typedef struct StatementText
{
	StringInfoData sql;
	int			nparams;
	Oid			param_types[IDEM_MAX_PARAMS];
} StatementText;

typedef struct Statement
{
	StatementKind kind;
	Oid			relation;		/* the caller holds a lock on it */
	Oid			index;			/* or InvalidOid */
	int			column;			/* attribute number, or 0 */
	const Bitmapset *columns;	/* attribute numbers, or NULL */
	Oid			as_owner;		/* the relation's owner, to run as that, or InvalidOid */
	void		(*write) (StatementText *out, const void *context);
	const void *context;
} Statement;

extern int	idem_statement_param(StatementText *out, Oid type);
extern uint64 idem_plan_cache_execute(const Statement *statement, Datum *values, const char *nulls,
									  Snapshot snapshot, bool read_only);
extern void idem_plan_cache_init(void);

#endif							/* IDEM_PLAN_CACHE_H */
