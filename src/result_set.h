/*
 * result_set.h - the rows of a function that returns a set
 */
#ifndef IDEM_RESULT_SET_H
#define IDEM_RESULT_SET_H

#include "postgres.h"

#include "access/tupdesc.h"
#include "fmgr.h"
#include "utils/tuplestore.h"

/* rows to be returned; they belong to the query */
typedef struct ResultSet
{
	Tuplestorestate *rows;
	TupleDesc	desc;
} ResultSet;

extern ResultSet idem_result_set_begin(FunctionCallInfo fcinfo, TupleDesc desc);
extern void idem_result_set_add(ResultSet *set, Datum *values, bool *nulls);

#endif							/* IDEM_RESULT_SET_H */
