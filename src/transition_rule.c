/*
 * transition_rule.c - which state may follow which, as a call says it
 */
#include "postgres.h"

#include "compat.h"
#include "transition.h"

#include "catalog/pg_type.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/rel.h"

static int
compare_names(const void *a, const void *b)
{
	return strcmp(*(char *const *) a, *(char *const *) b);
}

/*
 * Reads the states of a rule.  They are a set: neither their order nor a repetition
 * means anything.  Raises 22004 for a NULL among them, 22023 for none.
 */
void
idem_transition_rule_read_states(TransitionRule *rule, ArrayType *from, const text *to)
{
	Datum	   *values;
	bool	   *nulls;
	int			nvalues;

	deconstruct_array(from, TEXTOID, -1, false, TYPALIGN_INT, &values, &nulls, &nvalues);
	if (nvalues == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("argument \"%s\" must not be empty", "from_states"),
				 errhint("Pass the states that the row may come from, for example '{WAIT_PAY}'.")));
	rule->from = palloc(sizeof(char *) * nvalues);
	for (int i = 0; i < nvalues; i++)
	{
		if (nulls[i])
			ereport(ERROR,
					(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
					 errmsg("argument \"%s\" must not contain NULL", "from_states"),
					 errhint("A row without a state comes from nowhere: set its state by an UPDATE.")));
		rule->from[i] = TextDatumGetCString(values[i]);
	}
	qsort(rule->from, nvalues, sizeof(char *), compare_names);
	for (int i = 0; i < nvalues; i++)
	{
		if (i == 0 || strcmp(rule->from[i], rule->from[rule->nfrom - 1]) != 0)
			rule->from[rule->nfrom++] = rule->from[i];
	}
	rule->to = text_to_cstring(to);
}

/* For the hint of an error. */
static char *
list_events(const StateDiagram *diagram)
{
	StringInfoData events;

	initStringInfo(&events);
	for (int i = 0; i < diagram->narrows; i++)
	{
		const DiagramArrow *arrow = &diagram->arrows[i];
		bool		told = arrow->event == NULL || !idem_state_diagram_has_event(diagram, arrow->event);

		for (int j = 0; j < i && !told; j++)
			told = diagram->arrows[j].event != NULL && strcmp(diagram->arrows[j].event, arrow->event) == 0;
		if (!told)
			appendStringInfo(&events, "%s\"%s\"", events.len > 0 ? ", " : "", arrow->event);
	}
	return events.len > 0 ? psprintf("Events of the diagram: %s.", events.data) :
		"Give arrows of the diagram an event: A --> B : event.";
}

/*
 * Makes sure that the rule is about states and events that there are, and finds the
 * diagram of an event.  Raises 22P02 for what is no label of an enum type, 22023 for
 * an unknown event, 42704 for an event of a column that has no diagram.
 */
void
idem_transition_rule_check(TransitionRule *rule, const Target *target, const TargetColumn *column)
{
	if (rule->event == NULL)
	{
		for (int i = 0; i < rule->nfrom; i++)
			idem_target_check_state(column, rule->from[i]);
		idem_target_check_state(column, rule->to);
		return;
	}
	rule->diagram = idem_target_machine_of_column(target, column->name)->diagram;
	if (!idem_state_diagram_has_event(rule->diagram, rule->event))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("the state diagram of column \"%s\" has no event \"%s\"", column->name, rule->event),
				 errhint("%s", list_events(rule->diagram))));
}

static Verdict
judge_event(const TransitionRule *rule, const char *state, const char **to)
{
	const StateDiagram *diagram = rule->diagram;
	int			from = state == NULL ? IDEM_NO_STATE : idem_state_diagram_find(diagram, state);
	int			next;

	if (from == IDEM_NO_STATE)
		return IDEM_MAY_NOT_MOVE;
	switch (idem_state_diagram_step(diagram, from, rule->event, &next))
	{
		case IDEM_STEP_NONE:
			break;
		case IDEM_STEP_ONE:
			*to = diagram->states[next].name;
			return IDEM_MAY_MOVE;
		case IDEM_STEP_SEVERAL:
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("event \"%s\" leads from state \"%s\" to more than one state", rule->event, state),
					 errhint("Give the arrows different events, or call transition() and name the state.")));
	}
	return idem_state_diagram_is_target(diagram, rule->event, from) ? IDEM_IS_THERE : IDEM_MAY_NOT_MOVE;
}

/*
 * What does the rule say of a row in this state, which may be NULL?  Where it may
 * move, *to is the state that it goes to.
 */
Verdict
idem_transition_rule_judge(const TransitionRule *rule, const char *state, const char **to)
{
	if (rule->event != NULL)
		return judge_event(rule, state, to);
	if (state == NULL)
		return IDEM_MAY_NOT_MOVE;
	if (bsearch(&state, rule->from, rule->nfrom, sizeof(char *), compare_names) != NULL)
	{
		*to = rule->to;
		return IDEM_MAY_MOVE;
	}
	return strcmp(state, rule->to) == 0 ? IDEM_IS_THERE : IDEM_MAY_NOT_MOVE;
}

/* The states that an event leads from. */
static Bitmapset *
sources_of_event(const TransitionRule *rule)
{
	Bitmapset  *sources = NULL;
	int			to;

	for (int i = 0; i < rule->diagram->nstates; i++)
	{
		if (idem_state_diagram_step(rule->diagram, i, rule->event, &to) != IDEM_STEP_NONE)
			sources = bms_add_member(sources, i);
	}
	return sources;
}

/*
 * Returns the state that the row must be in, if that can be only one, else NULL.
 */
const char *
idem_transition_rule_only_source(const TransitionRule *rule)
{
	int			source;

	if (rule->event == NULL)
		return rule->nfrom == 1 ? rule->from[0] : NULL;
	return bms_get_singleton_member(sources_of_event(rule), &source) ? rule->diagram->states[source].name : NULL;
}

/*
 * Returns the states that the row may come from, for people.
 */
char *
idem_transition_rule_sources(const TransitionRule *rule)
{
	StringInfoData names;

	if (rule->event != NULL)
		return idem_state_diagram_list(rule->diagram, sources_of_event(rule));
	initStringInfo(&names);
	for (int i = 0; i < rule->nfrom; i++)
		appendStringInfo(&names, "%s\"%s\"", i > 0 ? ", " : "", rule->from[i]);
	return names.data;
}

/*
 * The states that the row may come from, as a field of a request.
 */
void
idem_transition_rule_states_to_json(const TransitionRule *rule, JsonbValue *json)
{
	json->type = jbvArray;
	json->val.array.nElems = rule->nfrom;
	json->val.array.rawScalar = false;
	json->val.array.elems = palloc(sizeof(JsonbValue) * rule->nfrom);
	for (int i = 0; i < rule->nfrom; i++)
	{
		JsonbValue *element = &json->val.array.elems[i];

		element->type = jbvString;
		element->val.string.val = rule->from[i];
		element->val.string.len = strlen(rule->from[i]);
	}
}

/*
 * Returns what reading changes needs to know, kept over the calls of one query.
 */
TargetReader *
idem_transition_reader(FmgrInfo *function)
{
	if (function->fn_extra == NULL)
	{
		TargetReader *reader = MemoryContextAllocZero(function->fn_mcxt, sizeof(TargetReader));

		reader->context = AllocSetContextCreate(function->fn_mcxt, "idempotency changes", ALLOCSET_SMALL_SIZES);
		function->fn_extra = reader;
	}
	return function->fn_extra;
}
