/*
 * transition.h - from one state to another: what a call is asked, does and answers
 */
#ifndef IDEM_TRANSITION_H
#define IDEM_TRANSITION_H

#include "postgres.h"

#include "access/htup.h"
#include "datatype/timestamp.h"
#include "fmgr.h"
#include "utils/array.h"
#include "utils/jsonb.h"

#include "row_operation.h"
#include "target.h"

/* the states that a row may come from and the one it goes to, or an event of the column's state diagram */
typedef struct TransitionRule
{
	int			nfrom;
	char	  **from;			/* ascending, each once */
	char	   *to;
	char	   *event;			/* or NULL */
	const StateDiagram *diagram;	/* of the event */
} TransitionRule;

typedef enum Verdict
{
	IDEM_MAY_MOVE,
	IDEM_IS_THERE,				/* it is in the state that it would go to, and may not come from it */
	IDEM_MAY_NOT_MOVE
} Verdict;

/* the first arguments; which others follow depends on the function */
enum
{
	IDEM_TRANSITION_TARGET,
	IDEM_TRANSITION_KEY,
	IDEM_TRANSITION_RULE
};

/* the most fields that a request has */
#define IDEM_TRANSITION_MAX_FIELDS 5

/* a call for one row */
typedef struct TransitionCall
{
	RowOperation operation;		/* comes first; without an operation id only its target, row and column count */
	TransitionRule rule;
	TargetReader *reader;
	Jsonb	   *changes_json;	/* or NULL */
	TargetNewRow changes;
	bool		has_changes;
	JsonbPair	fields[IDEM_TRANSITION_MAX_FIELDS]; /* of the request */
	int			nfields;

	/* the answer */
	Outcome		outcome;
	char	   *previous_state; /* or NULL */
	char	   *state;			/* or NULL */
	TimestampTz changed_at;
	bool		has_changed_at;
} TransitionCall;

/* transition_rule.c: what may follow what */
extern void idem_transition_rule_read_states(TransitionRule *rule, ArrayType *from, const text *to);
extern void idem_transition_rule_check(TransitionRule *rule, const Target *target, const TargetColumn *column);
extern Verdict idem_transition_rule_judge(const TransitionRule *rule, const char *state, const char **to);
extern const char *idem_transition_rule_only_source(const TransitionRule *rule);
extern char *idem_transition_rule_sources(const TransitionRule *rule);
extern void idem_transition_rule_states_to_json(const TransitionRule *rule, JsonbValue *json);
extern TargetReader *idem_transition_reader(FmgrInfo *function);

/* transition_call.c: one row */
extern int	idem_transition_read_rule(TransitionCall *call, FunctionCallInfo fcinfo, bool event);
extern int	idem_transition_read_options(TransitionCall *call, FunctionCallInfo fcinfo, int n);
extern void idem_transition_answer(TransitionCall *call, Outcome outcome, char *previous_state, char *state);
extern void idem_transition_raise_rejected(const TransitionCall *call, const char *state, bool logged);
extern void idem_transition_raise_row_missing(const TransitionCall *call);
extern void idem_transition_prepare(RowOperation *operation, Snapshot snapshot);
extern bool idem_transition_move(TransitionCall *call, const char *from, const char *to, Snapshot snapshot,
								 TargetRecheck recheck, char **stored);
extern Verdict idem_transition_move_held(TransitionCall *call, char *state, char **stored);
extern char *idem_transition_state_of_value(Datum value);
extern HeapTuple idem_transition_form_answer(const TransitionCall *call, FunctionCallInfo fcinfo);

#endif							/* IDEM_TRANSITION_H */
