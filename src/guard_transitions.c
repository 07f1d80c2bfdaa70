/*
 * guard_transitions.c - a trigger that holds a column to its state diagram
 *
 * Whoever writes, a row begins in an initial state, and goes on along the arrows.
 * Before the row is stored the trigger judges what it is given, so it must be the
 * last one; after, it judges what was stored.
 *
 * Two kinds of INSERT are none.  A row that moves to another partition is updated,
 * deleted and inserted; it is judged by the state it had before (see "rows that
 * move").  And a row that an INSERT ... ON CONFLICT proposes, and that another row
 * of its key keeps out, is not stored: what the statement does to that other row is
 * judged in its turn.  To know that it will be kept out, the other row is locked.
 */
#include "postgres.h"

#include "compat.h"
#include "errors.h"
#include "guard_transitions.h"
#include "target.h"

#include "access/htup_details.h"
#include "access/relation.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/pg_trigger.h"
#include "commands/trigger.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/rls.h"
#include "utils/snapmgr.h"

/* one call of the trigger */
typedef struct Judgement
{
	const TriggerData *trigger;
	Target		target;
	const StateMachine *machine;
} Judgement;

/* ---------- rows that move to another partition ---------- */

/*
 * Such a row comes by three times: before its UPDATE, and before its INSERT into the
 * other partition (or after its DELETE and its INSERT), each on the partition that
 * it concerns, with nothing of this trigger's between.  So what was seen of it the
 * first time is kept; the second time it is the one that was deleted in order to be
 * moved, which is written in the old row.
 */
typedef struct MovingRow
{
	NameData	trigger;		/* the trigger's name is the same in all partitions */
	Oid			root;			/* the partitioned table */
	int			depth;			/* of triggers that run below one another */
	Oid			partition;		/* that it leaves */
	ItemPointerData tid;		/* where it was */
	char	   *state;			/* that it was in, or NULL */
} MovingRow;

/* of this transaction */
static List *moving_rows;

static void
end_of_transaction(XactEvent event, void *arg)
{
	if (event == XACT_EVENT_COMMIT || event == XACT_EVENT_ABORT || event == XACT_EVENT_PREPARE)
		moving_rows = NIL;
}

/*
 * Called once, when the library is loaded.
 */
void
idem_guard_transitions_init(void)
{
	RegisterXactCallback(end_of_transaction, NULL);
}

static int
trigger_depth(void)
{
	return DatumGetInt32(DirectFunctionCall1(pg_trigger_depth, (Datum) 0));
}

static MovingRow *
find_moving_row(const Judgement *judgement)
{
	Oid			root = judgement->machine->root;
	int			depth = trigger_depth();
	ListCell   *cell;

	foreach(cell, moving_rows)
	{
		MovingRow  *row = lfirst(cell);

		if (row->root == root && row->depth == depth &&
			strcmp(NameStr(row->trigger), judgement->trigger->tg_trigger->tgname) == 0)
			return row;
	}
	return NULL;
}

static void
forget_moving_row(MovingRow *row)
{
	moving_rows = list_delete_ptr(moving_rows, row);
	if (row->state != NULL)
		pfree(row->state);
	pfree(row);
}

/* Keeps what there is to know of a row that may be about to move. */
static void
remember_row(const Judgement *judgement, const char *state)
{
	MovingRow  *row = find_moving_row(judgement);
	MemoryContext before = MemoryContextSwitchTo(TopTransactionContext);

	if (row != NULL)
		forget_moving_row(row);
	row = palloc0(sizeof(MovingRow));
	namestrcpy(&row->trigger, judgement->trigger->tg_trigger->tgname);
	row->root = judgement->machine->root;
	row->depth = trigger_depth();
	row->partition = RelationGetRelid(judgement->trigger->tg_relation);
	row->tid = judgement->trigger->tg_trigtuple->t_self;
	row->state = state != NULL ? pstrdup(state) : NULL;
	moving_rows = lappend(moving_rows, row);
	MemoryContextSwitchTo(before);
}

/* Was this row deleted by this transaction, in order to be moved? */
static bool
is_moved(TupleTableSlot *slot)
{
	HeapTupleHeader header;
	bool		should_free;

	if (!TTS_IS_BUFFERTUPLE(slot))
		return false;
	header = ExecFetchSlotHeapTuple(slot, false, &should_free)->t_data;
	return HeapTupleHeaderIndicatesMovedPartitions(header) &&
		TransactionIdIsCurrentTransactionId(HeapTupleHeaderGetUpdateXid(header));
}

/* The partition may have been dropped or emptied since, if that was another statement. */
static bool
has_moved(const MovingRow *row)
{
	Relation	partition = try_relation_open(row->partition, AccessShareLock);
	ItemPointerData tid = row->tid;
	TupleTableSlot *slot;
	bool		moved;

	if (partition == NULL)
		return false;
	slot = table_slot_create(partition, NULL);
	moved = ItemPointerGetBlockNumber(&tid) < RelationGetNumberOfBlocks(partition) &&
		table_tuple_fetch_row_version(partition, &tid, SnapshotAny, slot) && is_moved(slot);
	ExecDropSingleTupleTableSlot(slot);
	relation_close(partition, AccessShareLock);
	return moved;
}

/*
 * Does this INSERT put a row down that comes from another partition?  Then its state
 * there is in *state.
 */
static bool
comes_from_partition(const Judgement *judgement, char **state)
{
	MovingRow  *row;

	if (!OidIsValid(judgement->machine->root))
		return false;
	row = find_moving_row(judgement);
	if (row == NULL || !has_moved(row))
		return false;
	*state = row->state != NULL ? pstrdup(row->state) : NULL;
	forget_moving_row(row);
	return true;
}

/* ---------- judging ---------- */

/*
 * May the caller see what is stored in the row?  As for the DETAIL of a foreign
 * key's violation (ri_triggers.c).
 */
static bool
may_see_state(const Judgement *judgement)
{
	Oid			relid = RelationGetRelid(judgement->target.relation);

	if (check_enable_rls(relid, InvalidOid, true) == RLS_ENABLED)
		return false;
	return pg_class_aclcheck(relid, GetUserId(), ACL_SELECT) == ACLCHECK_OK ||
		pg_attribute_aclcheck(relid, judgement->machine->column.number, GetUserId(), ACL_SELECT) == ACLCHECK_OK;
}

static char *
quoted(const char *state)
{
	return state != NULL ? psprintf("\"%s\"", state) : "NULL";
}

#define HINT_ALIAS "The diagram has \"%s\" as the id of state \"%s\": store the name, or write %s : text for a text to show."

/* For a name that the diagram knows only as the id of another. */
static const DiagramState *
state_of_alias(const StateDiagram *diagram, const char *name)
{
	for (int i = 0; name != NULL && i < diagram->nstates; i++)
	{
		if (diagram->states[i].id != diagram->states[i].name && strcmp(diagram->states[i].id, name) == 0)
			return &diagram->states[i];
	}
	return NULL;
}

static void
raise_not_initial(const Judgement *judgement, const char *state)
{
	Relation	relation = judgement->target.relation;
	const StateDiagram *diagram = judgement->machine->diagram;
	const DiagramState *alias = state_of_alias(diagram, state);

	ereport(ERROR,
			(errcode(IDEM_ILLEGAL_TRANSITION),
			 errmsg("a row of table \"%s\" may not begin with %s %s", RelationGetRelationName(relation),
					judgement->machine->column.name, quoted(state)),
			 errdetail("By the state diagram of trigger \"%s\" it begins with: %s.", judgement->machine->trigger_name,
					   idem_state_diagram_list(diagram, diagram->initial)),
			 alias ? errhint(HINT_ALIAS, alias->id, alias->name, alias->id)
			 : errhint("Insert the row in such a state, and change it afterwards."),
			 errtablecol(relation, judgement->machine->column.number)));
}

/* What may follow, for people. */
static char *
describe_next(const StateDiagram *diagram, int from)
{
	const DiagramState *state;

	if (from == IDEM_NO_STATE)
		return "The diagram has no such state to go on from.";
	state = &diagram->states[from];
	if (bms_is_empty(state->next))
		return psprintf("State \"%s\" is %s.", state->name, state->final ? "final" : "a dead end");
	return psprintf("From \"%s\" the diagram leads to: %s.", state->name, idem_state_diagram_list(diagram, state->next));
}

static void
raise_no_arrow(const Judgement *judgement, const char *old_state, const char *new_state)
{
	Relation	relation = judgement->target.relation;
	const StateDiagram *diagram = judgement->machine->diagram;
	const DiagramState *alias = state_of_alias(diagram, new_state);
	bool		shown = may_see_state(judgement);

	ereport(ERROR,
			(errcode(IDEM_ILLEGAL_TRANSITION),
			 shown ? errmsg("a row of table \"%s\" may not go from %s %s to %s", RelationGetRelationName(relation),
							judgement->machine->column.name, quoted(old_state), quoted(new_state))
			 : errmsg("a row of table \"%s\" may not go from its %s to %s", RelationGetRelationName(relation),
					  judgement->machine->column.name, quoted(new_state)),
			 shown ? errdetail("%s", old_state == NULL ? psprintf("A row without a state begins with: %s.",
																  idem_state_diagram_list(diagram, diagram->initial))
							   : describe_next(diagram, idem_state_diagram_find(diagram, old_state))) : 0,
			 alias ? errhint(HINT_ALIAS, alias->id, alias->name, alias->id)
			 : errhint("Look at the row again: its state may have changed since it was read."),
			 errtablecol(relation, judgement->machine->column.number)));
}

/* May a row begin in this state? */
static bool
is_initial(const StateMachine *machine, const char *state)
{
	int			i = state == NULL ? IDEM_NO_STATE : idem_state_diagram_find(machine->diagram, state);

	return i != IDEM_NO_STATE && bms_is_member(i, machine->diagram->initial);
}

/* A row that has no state yet, from before there was a diagram, may begin. */
static bool
leads_to(const StateMachine *machine, const char *old_state, const char *new_state)
{
	const StateDiagram *diagram = machine->diagram;
	int			from;
	int			to;

	if (old_state == NULL)
		return new_state == NULL || is_initial(machine, new_state);
	if (new_state == NULL)
		return false;
	if (strcmp(old_state, new_state) == 0)
		return true;
	from = idem_state_diagram_find(diagram, old_state);
	to = idem_state_diagram_find(diagram, new_state);
	return from != IDEM_NO_STATE && to != IDEM_NO_STATE && bms_is_member(to, diagram->states[from].next);
}

/* The state of a row, or NULL. */
static char *
state_of(const Judgement *judgement, TupleTableSlot *row)
{
	const TargetColumn *column = &judgement->machine->column;
	bool		isnull;
	Datum		value = slot_getattr(row, column->number, &isnull);

	return isnull ? NULL : idem_target_state_name(column, value);
}

static void
judge_change(const Judgement *judgement, const char *old_state, const char *new_state)
{
	if (!leads_to(judgement->machine, old_state, new_state))
		raise_no_arrow(judgement, old_state, new_state);
}

static void
judge_insert(const Judgement *judgement)
{
	const TriggerData *trigger = judgement->trigger;
	char	   *state = state_of(judgement, trigger->tg_trigslot);
	char	   *old_state;

	if (comes_from_partition(judgement, &old_state))
		judge_change(judgement, old_state, state);
	else if (!is_initial(judgement->machine, state) &&
			 !(TRIGGER_FIRED_BEFORE(trigger->tg_event) &&
			   idem_target_pin_conflict(&judgement->target, trigger->tg_trigslot)))
		raise_not_initial(judgement, state);
}

static void
judge_update(const Judgement *judgement)
{
	const TriggerData *trigger = judgement->trigger;
	char	   *old_state = state_of(judgement, trigger->tg_trigslot);

	judge_change(judgement, old_state, state_of(judgement, trigger->tg_newslot));
	if (TRIGGER_FIRED_BEFORE(trigger->tg_event) && OidIsValid(judgement->machine->root))
		remember_row(judgement, old_state);
}

/* Only what a row leaves behind that moves to another partition matters. */
static void
judge_delete(const Judgement *judgement)
{
	const TriggerData *trigger = judgement->trigger;

	if (OidIsValid(judgement->machine->root) &&
		HeapTupleHeaderIndicatesMovedPartitions(trigger->tg_trigtuple->t_data))
		remember_row(judgement, state_of(judgement, trigger->tg_trigslot));
}

/* ---------- the trigger ---------- */

#define CREATE_TRIGGER "CREATE TRIGGER ... BEFORE INSERT OR UPDATE ON ... FOR EACH ROW EXECUTE FUNCTION idempotency.guard_transitions('column', 'state diagram')."

static void
check_called_as_trigger(FunctionCallInfo fcinfo)
{
	const TriggerData *trigger = (TriggerData *) fcinfo->context;

	if (!CALLED_AS_TRIGGER(fcinfo) || !TRIGGER_FIRED_FOR_ROW(trigger->tg_event) ||
		TRIGGER_FIRED_INSTEAD(trigger->tg_event) ||
		(TRIGGER_FIRED_BEFORE(trigger->tg_event) && TRIGGER_FIRED_BY_DELETE(trigger->tg_event)))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("guard_transitions() must be called by a trigger for each row, on INSERT or UPDATE"),
				 errhint(CREATE_TRIGGER)));
	if (TRIGGER_FIRED_AFTER(trigger->tg_event) && trigger->tg_relation->rd_rel->relispartition &&
		!TRIGGER_FOR_DELETE(trigger->tg_trigger->tgtype))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("trigger \"%s\" cannot tell rows that move to another partition from new ones",
						trigger->tg_trigger->tgname),
				 errhint("On a partitioned table create it AFTER INSERT OR UPDATE OR DELETE, or BEFORE INSERT OR UPDATE.")));
}

static void
judge(const Judgement *judgement)
{
	const TriggerData *trigger = judgement->trigger;

	if (TRIGGER_FIRED_BY_INSERT(trigger->tg_event))
		judge_insert(judgement);
	else if (TRIGGER_FIRED_BY_UPDATE(trigger->tg_event))
		judge_update(judgement);
	else
		judge_delete(judgement);
}

IDEM_SQL_FUNCTION(idempotency_guard_transitions);

/*
 * guard_transitions('column', 'state diagram'): see docs/reference.md
 */
Datum
idempotency_guard_transitions(PG_FUNCTION_ARGS)
{
	const TriggerData *trigger = (TriggerData *) fcinfo->context;
	Judgement	judgement = {.trigger = trigger};

	check_called_as_trigger(fcinfo);
	idem_target_use(&judgement.target, trigger->tg_relation);
	judgement.machine = idem_target_machine(&judgement.target, trigger->tg_trigger);
	judge(&judgement);
	idem_target_end_use(&judgement.target);
	return PointerGetDatum(TRIGGER_FIRED_BY_UPDATE(trigger->tg_event) ? trigger->tg_newtuple : trigger->tg_trigtuple);
}
