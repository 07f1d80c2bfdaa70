/*
 * state_machine.c - the state machines that a table's columns are held to
 */
#include "postgres.h"

#include "arguments.h"
#include "compat.h"
#include "result_set.h"
#include "target.h"

#include "executor/spi.h"
#include "utils/builtins.h"

static Datum
state_datum(const StateDiagram *diagram, int state, bool *isnull)
{
	*isnull = state == IDEM_NO_STATE;
	return *isnull ? (Datum) 0 : CStringGetTextDatum(diagram->states[state].name);
}

static void
add_machine(ResultSet *set, const StateMachine *machine)
{
	const StateDiagram *diagram = machine->diagram;
	NameData	column_name;

	namestrcpy(&column_name, machine->column.name);
	for (int i = 0; i < diagram->narrows; i++)
	{
		const DiagramArrow *arrow = &diagram->arrows[i];
		Datum		values[4] = {NameGetDatum(&column_name)};
		bool		nulls[4] = {false};

		values[1] = state_datum(diagram, arrow->from, &nulls[1]);
		values[2] = state_datum(diagram, arrow->to, &nulls[2]);
		nulls[3] = arrow->event == NULL;
		values[3] = nulls[3] ? (Datum) 0 : CStringGetTextDatum(arrow->event);
		idem_result_set_add(set, values, nulls);
	}
}

IDEM_SQL_FUNCTION(idempotency_transitions);

/*
 * transitions(target): see docs/reference.md
 */
Datum
idempotency_transitions(PG_FUNCTION_ARGS)
{
	ResultSet	set = idem_result_set_begin(fcinfo, NULL);
	Target		target;
	ListCell   *cell;

	idem_arguments_require(fcinfo, 0, "target");
	idem_target_open(&target, PG_GETARG_OID(0), AccessShareLock);
	foreach(cell, idem_target_machines(&target))
		add_machine(&set, lfirst(cell));
	idem_target_close(&target, AccessShareLock);
	return (Datum) 0;
}

/* A name that may be anything, for a comment: on one line. */
static char *
on_one_line(const char *name)
{
	char	   *copy = pstrdup(name);

	for (char *c = copy; *c != '\0'; c++)
	{
		if ((unsigned char) *c < ' ')
			*c = ' ';
	}
	return copy;
}

/* Counts the rows in each state; what is in none is told in *remark. */
static int64 *
count_rows(const Target *target, const StateMachine *machine, char **remark)
{
	const StateDiagram *diagram = machine->diagram;
	int64	   *counts = palloc0(sizeof(int64) * Max(diagram->nstates, 1));
	StringInfoData others;
	ListCell   *cell;

	initStringInfo(&others);
	foreach(cell, idem_target_count_states(target, &machine->column))
	{
		const StateCount *count = lfirst(cell);
		int			state = count->state ? idem_state_diagram_find(diagram, count->state) : IDEM_NO_STATE;

		if (state != IDEM_NO_STATE)
			counts[state] = count->count;
		else if (count->state == NULL)
			appendStringInfo(&others, "%s" INT64_FORMAT " of NULL", others.len > 0 ? ", " : "", count->count);
		else
			appendStringInfo(&others, "%s" INT64_FORMAT " of \"%s\"", others.len > 0 ? ", " : "", count->count,
							 on_one_line(count->state));
	}
	*remark = others.len > 0 ? psprintf("rows in no state of the diagram: %s", others.data) : NULL;
	return counts;
}

IDEM_SQL_FUNCTION(idempotency_state_diagram);

/*
 * state_diagram(target, column_name, counts): see docs/reference.md
 */
Datum
idempotency_state_diagram(PG_FUNCTION_ARGS)
{
	MemoryContext context = CurrentMemoryContext;
	const StateMachine *machine;
	int64	   *counts = NULL;
	char	   *remark = NULL;
	text	   *result;
	Target		target;

	idem_arguments_require(fcinfo, 0, "target");
	idem_arguments_require(fcinfo, 1, "column_name");
	idem_arguments_require(fcinfo, 2, "counts");

	SPI_connect();
	idem_target_open(&target, PG_GETARG_OID(0), AccessShareLock);
	machine = idem_target_machine_of_column(&target, NameStr(*PG_GETARG_NAME(1)));
	if (PG_GETARG_BOOL(2))
		counts = count_rows(&target, machine, &remark);
	MemoryContextSwitchTo(context);
	result = cstring_to_text(idem_state_diagram_write(machine->diagram, counts, remark));
	idem_target_close(&target, AccessShareLock);
	SPI_finish();
	PG_RETURN_TEXT_P(result);
}
