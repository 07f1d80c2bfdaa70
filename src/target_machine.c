/*
 * target_machine.c - the state machines of a user's table
 *
 * A guard_transitions() trigger gives a column a state machine: its arguments are
 * the column and the diagram.  The diagram is read when it is first asked for, and
 * kept with what is known of the table, so it is read once in each session for each
 * version of the table.  One with an error is never kept.
 */
#include "postgres.h"

#include "compat.h"
#include "target.h"

#include "access/htup_details.h"
#include "catalog/partition.h"
#include "catalog/pg_enum.h"
#include "catalog/pg_trigger.h"
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "parser/parse_func.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/syscache.h"

/* the arguments of the trigger */
enum
{
	ARG_COLUMN,
	ARG_DIAGRAM,
	NARGS
};

/* ---------- reading ---------- */

static bool
is_label_of_enum(const char *name, void *type)
{
	/* a longer name is none, and would not be a name to look for */
	return strlen(name) < NAMEDATALEN &&
		SearchSysCacheExists2(ENUMTYPOIDNAME, ObjectIdGetDatum(*(Oid *) type), CStringGetDatum(name));
}

static void
check_diagram(const Trigger *trigger, const StateMachine *machine, List *problems)
{
	Oid			type = machine->column.base_type;
	const DiagramProblem *error = idem_state_diagram_first_error(problems);

	if (error == NULL)
	{
		idem_state_diagram_check(machine->diagram, &problems);
		if (type_is_enum(type))
			idem_state_diagram_check_labels(machine->diagram, is_label_of_enum, &type, &problems);
		error = idem_state_diagram_first_error(problems);
	}
	if (error != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_SYNTAX_ERROR),
				 errmsg("the state diagram of trigger \"%s\" is not valid", trigger->tgname),
				 errdetail("Line %d: %s.", error->line, error->message),
				 errhint("Look at it with idempotency.check_state_diagram(), and create the trigger anew.")));
}

static StateMachine *
read_machine(const Target *target, const Trigger *trigger)
{
	StateMachine *machine = palloc0(sizeof(StateMachine));
	List	   *problems = NIL;

	if (trigger->tgnargs != NARGS)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("trigger \"%s\" has %d arguments in place of two", trigger->tgname, trigger->tgnargs),
				 errhint("EXECUTE FUNCTION idempotency.guard_transitions('column', 'state diagram').")));
	machine->trigger_oid = trigger->tgoid;
	machine->trigger_name = pstrdup(trigger->tgname);
	machine->text = pstrdup(trigger->tgargs[ARG_DIAGRAM]);
	idem_target_read_state_column(target, trigger->tgargs[ARG_COLUMN], &machine->column);
	machine->column.name = pstrdup(machine->column.name);
	if (target->relation->rd_rel->relispartition)
		machine->root = llast_oid(get_partition_ancestors(RelationGetRelid(target->relation)));
	machine->diagram = idem_state_diagram_read(machine->text, &problems);
	check_diagram(trigger, machine, problems);
	return machine;
}

/*
 * Returns the state machine that a guard_transitions() trigger stands for.  It is
 * there as long as the target is open.
 *
 * Raises 42601 for a diagram with an error, 22023 for other arguments than two,
 * 42703, 42804 and 428C9 for a column that there is not, or that has no states.
 */
const StateMachine *
idem_target_machine(const Target *target, const Trigger *trigger)
{
	TargetTable *table = target->table;
	MemoryContext context;
	MemoryContext before;
	StateMachine *machine;
	ListCell   *cell;

	foreach(cell, table->machines)
	{
		machine = lfirst(cell);
		if (machine->trigger_oid == trigger->tgoid)
			return machine;
	}

	/* what is read of one with an error goes with the error */
	context = AllocSetContextCreate(CurrentMemoryContext, "idempotency state machine", ALLOCSET_SMALL_SIZES);
	before = MemoryContextSwitchTo(context);
	machine = read_machine(target, trigger);
	MemoryContextSetParent(context, table->context);
	MemoryContextSwitchTo(table->context);
	table->machines = lappend(table->machines, machine);
	MemoryContextSwitchTo(before);
	return machine;
}

/* ---------- those of a table ---------- */

/* Does it judge what ordinary sessions write? */
static bool
is_enabled(const Trigger *trigger)
{
	return trigger->tgenabled == TRIGGER_FIRES_ON_ORIGIN || trigger->tgenabled == TRIGGER_FIRES_ALWAYS;
}

static bool
same_machine(const StateMachine *a, const StateMachine *b)
{
	return a->column.number == b->column.number && strcmp(a->text, b->text) == 0;
}

/* Two triggers may stand for one machine: one judges before, one after. */
static List *
add_machine(List *machines, const StateMachine *machine)
{
	ListCell   *cell;

	foreach(cell, machines)
	{
		if (same_machine(lfirst(cell), machine))
			return machines;
	}
	return lappend(machines, (void *) machine);
}

/*
 * Returns the state machines of a table, a list of StateMachine, in the order of
 * their triggers' names.  Triggers that are disabled count for nothing.  Raises what
 * idem_target_machine() does.
 */
List *
idem_target_machines(const Target *target)
{
	const TriggerDesc *triggers = target->relation->trigdesc;
	Oid			function = LookupFuncName(list_make2(makeString("idempotency"), makeString("guard_transitions")),
										  0, NULL, false);
	List	   *machines = NIL;

	for (int i = 0; triggers != NULL && i < triggers->numtriggers; i++)
	{
		const Trigger *trigger = &triggers->triggers[i];

		if (trigger->tgfoid == function && is_enabled(trigger))
			machines = add_machine(machines, idem_target_machine(target, trigger));
	}
	return machines;
}

/*
 * Returns the state machine of a column.  Raises 42704 if it has none, 42710 if it
 * has several.
 */
const StateMachine *
idem_target_machine_of_column(const Target *target, const char *column_name)
{
	AttrNumber	number = idem_target_find_column(target, column_name);
	const StateMachine *found = NULL;
	ListCell   *cell;

	foreach(cell, idem_target_machines(target))
	{
		const StateMachine *machine = lfirst(cell);

		if (machine->column.number != number)
			continue;
		if (found != NULL)
			ereport(ERROR,
					(errcode(ERRCODE_DUPLICATE_OBJECT),
					 errmsg("column \"%s\" of table \"%s\" has two different state diagrams", column_name,
							RelationGetRelationName(target->relation)),
					 errdetail("They are those of triggers \"%s\" and \"%s\".", found->trigger_name, machine->trigger_name),
					 errhint("Drop one of the triggers.")));
		found = machine;
	}
	if (found == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("column \"%s\" of table \"%s\" has no state diagram", column_name,
						RelationGetRelationName(target->relation)),
				 errhint("CREATE TRIGGER ... BEFORE INSERT OR UPDATE ON ... FOR EACH ROW EXECUTE FUNCTION idempotency.guard_transitions('column', 'state diagram').")));
	return found;
}

/* ---------- values ---------- */

/*
 * Returns the name of the state that a value of the column is, in the current
 * memory context.
 */
char *
idem_target_state_name(const TargetColumn *column, Datum value)
{
	HeapTuple	tuple;
	char	   *name;

	if (!type_is_enum(column->base_type))
		return TextDatumGetCString(value);
	tuple = SearchSysCache1(ENUMOID, value);
	if (!HeapTupleIsValid(tuple))	/* labels are never dropped */
		elog(ERROR, "cache lookup failed for enum value %u", DatumGetObjectId(value));
	name = pstrdup(NameStr(((Form_pg_enum) GETSTRUCT(tuple))->enumlabel));
	ReleaseSysCache(tuple);
	return name;
}
