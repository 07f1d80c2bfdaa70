/*
 * result_set.c - the rows of a function that returns a set
 */
#include "postgres.h"

#include "result_set.h"

#include "funcapi.h"
#include "miscadmin.h"

/*
 * Begins the set of a call.  `desc` is the shape of its rows, or NULL for the one
 * that the function declares.  Raises 0A000 where no set can be returned.
 */
ResultSet
idem_result_set_begin(FunctionCallInfo fcinfo, TupleDesc desc)
{
	ReturnSetInfo *info = (ReturnSetInfo *) fcinfo->resultinfo;
	MemoryContext before;
	ResultSet	set;

	if (info == NULL || !IsA(info, ReturnSetInfo) || (info->allowedModes & SFRM_Materialize) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("set-valued function called in context that cannot accept a set"),
				 errhint("Call it in FROM.")));
	before = MemoryContextSwitchTo(info->econtext->ecxt_per_query_memory);
	if (desc != NULL)
		set.desc = CreateTupleDescCopy(desc);
	else if (get_call_result_type(fcinfo, NULL, &set.desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");	/* its declaration says so */
	set.rows = tuplestore_begin_heap((info->allowedModes & SFRM_Materialize_Random) != 0, false, work_mem);
	info->returnMode = SFRM_Materialize;
	info->setResult = set.rows;
	info->setDesc = set.desc;
	MemoryContextSwitchTo(before);
	return set;
}

/*
 * Adds a row, which is copied.
 */
void
idem_result_set_add(ResultSet *set, Datum *values, bool *nulls)
{
	tuplestore_putvalues(set->rows, set->desc, values, nulls);
}
