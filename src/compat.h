/*
 * compat.h - what differs between PostgreSQL 14 and 19, and nothing else does
 *
 * The one place that names server versions.  Each entry gives the newest form
 * a name and spells the older ones in its terms.
 */
#ifndef IDEM_COMPAT_H
#define IDEM_COMPAT_H

#include "postgres.h"

#include "access/genam.h"
#include "access/transam.h"
#include "common/cryptohash.h"
#include "datatype/timestamp.h"
#include "fmgr.h"
#include "storage/lmgr.h"
#include "utils/guc.h"
#if PG_VERSION_NUM >= 160000
#include "varatt.h"
#endif

#if PG_VERSION_NUM < 140000 || PG_VERSION_NUM >= 200000
#error "this version of idempotency is written for PostgreSQL 14 to 19"
#endif

/* The library is built with hidden symbols; from 16 on this is the server's own definition. */
#if PG_VERSION_NUM < 160000 && defined(__GNUC__)
#undef PGDLLEXPORT
#define PGDLLEXPORT __attribute__((visibility("default")))
#endif

/* PG_FUNCTION_INFO_V1 that exports the function itself too, which it does not do by itself before 16. */
#define IDEM_SQL_FUNCTION(name) \
	extern PGDLLEXPORT Datum name(PG_FUNCTION_ARGS); \
	PG_FUNCTION_INFO_V1(name)

#if PG_VERSION_NUM >= 180000
#define IDEM_MODULE_MAGIC PG_MODULE_MAGIC_EXT(.name = "idempotency", .version = IDEM_VERSION)
#else
#define IDEM_MODULE_MAGIC PG_MODULE_MAGIC
#endif

#if PG_VERSION_NUM >= 150000
#define idem_reserve_settings(prefix) MarkGUCPrefixReserved(prefix)
#define idem_cryptohash_final(ctx, dest, size) pg_cryptohash_final(ctx, dest, size)
#else
#define idem_reserve_settings(prefix) EmitWarningsOnPlaceholders(prefix)
#define idem_cryptohash_final(ctx, dest, size) pg_cryptohash_final(ctx, dest)
#endif

/* Whether NULLs of a unique index are equal came with 15. */
#if PG_VERSION_NUM >= 150000
#define IDEM_INDEX_NULLS_NOT_DISTINCT(form) ((form)->indnullsnotdistinct)
#else
#define IDEM_INDEX_NULLS_NOT_DISTINCT(form) false
#endif

/* The scale of a numeric(precision, scale) column; negative ones came with 15. */
#if PG_VERSION_NUM >= 150000
#define IDEM_NUMERIC_TYPMOD_SCALE(typmod) (((((typmod) - (int32) VARHDRSZ) & 0x7ff) ^ 1024) - 1024)
#else
#define IDEM_NUMERIC_TYPMOD_SCALE(typmod) (((typmod) - (int32) VARHDRSZ) & 0xffff)
#endif

/* The oldest transaction whose status the server still keeps. */
#if PG_VERSION_NUM >= 170000
#define IDEM_OLDEST_KNOWN_XID (TransamVariables->oldestClogXid)
#else
#define IDEM_OLDEST_KNOWN_XID (ShmemVariableCache->oldestClogXid)
#endif

/* An interval of 'infinity' came with 17. */
#if PG_VERSION_NUM >= 170000
#define IDEM_INTERVAL_IS_INFINITE(interval) INTERVAL_NOT_FINITE(interval)
#else
#define IDEM_INTERVAL_IS_INFINITE(interval) false
#endif

#if PG_VERSION_NUM >= 190000
#define idem_index_beginscan(heap, index, snapshot, nkeys) \
	index_beginscan(heap, index, snapshot, NULL, nkeys, 0, 0)
#elif PG_VERSION_NUM >= 180000
#define idem_index_beginscan(heap, index, snapshot, nkeys) \
	index_beginscan(heap, index, snapshot, NULL, nkeys, 0)
#else
#define idem_index_beginscan(heap, index, snapshot, nkeys) \
	index_beginscan(heap, index, snapshot, nkeys, 0)
#endif

#if PG_VERSION_NUM >= 180000
#define idem_conditional_xact_lock_wait(xid) ConditionalXactLockTableWait(xid, false)
#else
#define idem_conditional_xact_lock_wait(xid) ConditionalXactLockTableWait(xid)
#endif

#endif							/* IDEM_COMPAT_H */
