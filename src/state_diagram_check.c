/*
 * state_diagram_check.c - state diagrams: judged, asked, and written down again
 */
#include "postgres.h"

#include "arguments.h"
#include "compat.h"
#include "result_set.h"
#include "state_diagram.h"

#include "catalog/pg_type.h"
#include "utils/array.h"
#include "utils/builtins.h"

/* ---------- judging ---------- */

static Bitmapset *
reachable_states(const StateDiagram *diagram)
{
	Bitmapset  *reached = bms_copy(diagram->initial);
	Bitmapset  *fresh = bms_copy(diagram->initial);

	while (!bms_is_empty(fresh))
	{
		Bitmapset  *next = NULL;
		int			i = -1;

		while ((i = bms_next_member(fresh, i)) >= 0)
			next = bms_add_members(next, diagram->states[i].next);
		fresh = bms_difference(next, reached);
		reached = bms_add_members(reached, fresh);
	}
	return reached;
}

static void
check_events(const StateDiagram *diagram, List **problems)
{
	for (int i = 0; i < diagram->narrows; i++)
	{
		const DiagramArrow *arrow = &diagram->arrows[i];

		for (int j = 0; j < i; j++)
		{
			const DiagramArrow *other = &diagram->arrows[j];

			if (arrow->from == IDEM_NO_STATE || arrow->event == NULL || other->from != arrow->from ||
				other->event == NULL || strcmp(other->event, arrow->event) != 0)
				continue;
			idem_state_diagram_add_problem(problems, arrow->line, true,
										   psprintf("event \"%s\" leads from state \"%s\" to another state in line %d, so it cannot be fired there",
													arrow->event, diagram->states[arrow->from].name, other->line));
		}
	}
}

/*
 * Judges a diagram that was read without an error.  No state to begin in is an
 * error; states that no row can come to, or that a row cannot leave and that are
 * not final, are warnings, and so are events that lead to two states.
 */
void
idem_state_diagram_check(const StateDiagram *diagram, List **problems)
{
	Bitmapset  *reached = reachable_states(diagram);

	if (bms_is_empty(diagram->initial))
		idem_state_diagram_add_problem(problems, 1, false, "no row could begin: there is no arrow [*] --> STATE");
	for (int i = 0; i < diagram->nstates; i++)
	{
		const DiagramState *state = &diagram->states[i];

		if (!bms_is_member(i, reached) && !bms_is_empty(diagram->initial))
			idem_state_diagram_add_problem(problems, state->line, true, psprintf("no row can come to state \"%s\"", state->name));
		if (bms_is_empty(state->next) && !state->final)
			idem_state_diagram_add_problem(problems, state->line, true,
										   psprintf("no row can leave state \"%s\"; if that is meant, add: %s --> [*]", state->name, state->id));
	}
	check_events(diagram, problems);
}

/*
 * Appends an error for each state that is not one of the labels a column can have.
 */
void
idem_state_diagram_check_labels(const StateDiagram *diagram, DiagramLabel is_label, void *argument, List **problems)
{
	for (int i = 0; i < diagram->nstates; i++)
	{
		const DiagramState *state = &diagram->states[i];

		if (is_label(state->name, argument))
			continue;
		idem_state_diagram_add_problem(problems, state->line, false,
									   state->id != state->name && is_label(state->id, argument) ?
									   psprintf("\"%s\" is no label, but its id \"%s\" is: state \"name\" as id names the state by its name; for a text to show, write %s : text",
												state->name, state->id, state->id) :
									   psprintf("state \"%s\" is not one of the labels", state->name));
	}
}

/* ---------- asking ---------- */

/*
 * Returns the state of that name, or IDEM_NO_STATE.
 */
int
idem_state_diagram_find(const StateDiagram *diagram, const char *name)
{
	for (int i = 0; i < diagram->nstates; i++)
	{
		if (strcmp(diagram->states[i].name, name) == 0)
			return i;
	}
	return IDEM_NO_STATE;
}

static bool
is_of_event(const DiagramArrow *arrow, const char *event)
{
	return arrow->from != IDEM_NO_STATE && arrow->to != IDEM_NO_STATE &&
		arrow->event != NULL && strcmp(arrow->event, event) == 0;
}

/*
 * Does an arrow between two states have the event?
 */
bool
idem_state_diagram_has_event(const StateDiagram *diagram, const char *event)
{
	for (int i = 0; i < diagram->narrows; i++)
	{
		if (is_of_event(&diagram->arrows[i], event))
			return true;
	}
	return false;
}

/*
 * Where does the event lead from a state?  In *to the state, if there is one.
 */
DiagramStep
idem_state_diagram_step(const StateDiagram *diagram, int from, const char *event, int *to)
{
	DiagramStep step = IDEM_STEP_NONE;

	for (int i = 0; i < diagram->narrows; i++)
	{
		if (diagram->arrows[i].from != from || !is_of_event(&diagram->arrows[i], event))
			continue;
		step = step == IDEM_STEP_NONE ? IDEM_STEP_ONE : IDEM_STEP_SEVERAL;
		*to = diagram->arrows[i].to;
	}
	return step;
}

/*
 * Does the event lead to this state, from any?
 */
bool
idem_state_diagram_is_target(const StateDiagram *diagram, const char *event, int to)
{
	for (int i = 0; i < diagram->narrows; i++)
	{
		if (diagram->arrows[i].to == to && is_of_event(&diagram->arrows[i], event))
			return true;
	}
	return false;
}

/*
 * Returns the names of states, for people: '"PAID", "CANCELLED"'.
 */
char *
idem_state_diagram_list(const StateDiagram *diagram, const Bitmapset *states)
{
	StringInfoData names;
	int			i = -1;

	initStringInfo(&names);
	while ((i = bms_next_member(states, i)) >= 0)
		appendStringInfo(&names, "%s\"%s\"", names.len > 0 ? ", " : "", diagram->states[i].name);
	return names.data;
}

/* ---------- writing ---------- */

static const char *
node(const StateDiagram *diagram, int state)
{
	return state == IDEM_NO_STATE ? "[*]" : diagram->states[state].id;
}

/*
 * Writes the diagram as Mermaid reads it, and as it can be read here again.  With
 * counts, one for each state, a state is described by how many rows are in it.
 * `remark` becomes a comment; NULL for none.
 */
char *
idem_state_diagram_write(const StateDiagram *diagram, const int64 *counts, const char *remark)
{
	StringInfoData out;

	initStringInfo(&out);
	appendStringInfoString(&out, "stateDiagram-v2\n");
	for (int i = 0; i < diagram->nstates; i++)
	{
		const DiagramState *state = &diagram->states[i];

		if (state->id != state->name)
			appendStringInfo(&out, "    state \"%s\" as %s\n", state->name, state->id);
		else
			appendStringInfo(&out, "    %s\n", state->id);
		if (counts == NULL)
			continue;
		/* a description stands in the place of an id, unless it is the second one */
		if (state->id == state->name)
			appendStringInfo(&out, "    %s : %s\n", state->id, state->name);
		appendStringInfo(&out, "    %s : " INT64_FORMAT " row%s\n", state->id, counts[i], counts[i] == 1 ? "" : "s");
	}
	for (int i = 0; i < diagram->narrows; i++)
	{
		const DiagramArrow *arrow = &diagram->arrows[i];

		appendStringInfo(&out, "    %s --> %s%s%s\n", node(diagram, arrow->from), node(diagram, arrow->to),
						 arrow->event ? " : " : "", arrow->event ? arrow->event : "");
	}
	if (remark != NULL)
		appendStringInfo(&out, "    %%%% %s\n", remark);
	return out.data;
}

/* ---------- check_state_diagram() ---------- */

typedef struct Labels
{
	int			nlabels;
	char	  **labels;
	bool	   *used;
} Labels;

static bool
is_one_of(const char *name, void *argument)
{
	const Labels *labels = argument;

	for (int i = 0; i < labels->nlabels; i++)
	{
		if (strcmp(labels->labels[i], name) == 0)
			return true;
	}
	return false;
}

static Labels
read_labels(ArrayType *array)
{
	Labels		labels = {0};
	Datum	   *values;
	bool	   *nulls;

	deconstruct_array(array, TEXTOID, -1, false, TYPALIGN_INT, &values, &nulls, &labels.nlabels);
	labels.labels = palloc(sizeof(char *) * Max(labels.nlabels, 1));
	for (int i = 0; i < labels.nlabels; i++)
	{
		if (nulls[i])
			ereport(ERROR,
					(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
					 errmsg("labels must not contain NULL"),
					 errhint("Pass the labels of the column's type, for example enum_range(NULL::my_enum)::text[].")));
		labels.labels[i] = TextDatumGetCString(values[i]);
	}
	return labels;
}

static void
check_unused_labels(const StateDiagram *diagram, const Labels *labels, List **problems)
{
	for (int i = 0; i < labels->nlabels; i++)
	{
		if (idem_state_diagram_find(diagram, labels->labels[i]) == IDEM_NO_STATE)
			idem_state_diagram_add_problem(problems, 1, true, psprintf("label \"%s\" is no state of the diagram", labels->labels[i]));
	}
}

static List *
check(const char *text, ArrayType *array)
{
	List	   *problems = NIL;
	StateDiagram *diagram = idem_state_diagram_read(text, &problems);
	Labels		labels;

	/* what the rest of the text means is unknown while a line is not understood */
	if (idem_state_diagram_first_error(problems) != NULL)
		return problems;
	idem_state_diagram_check(diagram, &problems);
	if (array != NULL)
	{
		labels = read_labels(array);
		idem_state_diagram_check_labels(diagram, is_one_of, &labels, &problems);
		check_unused_labels(diagram, &labels, &problems);
	}
	return problems;
}

/* By line; of one line in the order they were found. */
static int
compare_problems(const ListCell *a, const ListCell *b)
{
	return ((DiagramProblem *) lfirst(a))->line - ((DiagramProblem *) lfirst(b))->line;
}

IDEM_SQL_FUNCTION(idempotency_check_state_diagram);

/*
 * check_state_diagram(diagram, labels): see docs/reference.md
 */
Datum
idempotency_check_state_diagram(PG_FUNCTION_ARGS)
{
	ResultSet	set = idem_result_set_begin(fcinfo, NULL);
	List	   *problems;
	ListCell   *cell;

	idem_arguments_require(fcinfo, 0, "diagram");
	problems = check(text_to_cstring(PG_GETARG_TEXT_PP(0)), PG_ARGISNULL(1) ? NULL : PG_GETARG_ARRAYTYPE_P(1));
	list_sort(problems, compare_problems);
	foreach(cell, problems)
	{
		const DiagramProblem *problem = lfirst(cell);
		Datum		values[] = {
			Int32GetDatum(problem->line),
			CStringGetTextDatum(problem->warning ? "warning" : "error"),
			CStringGetTextDatum(problem->message)
		};
		bool		nulls[lengthof(values)] = {false};

		idem_result_set_add(&set, values, nulls);
	}
	return (Datum) 0;
}
