/*
 * transition.h - which state may follow which, as a call says it
 */
#ifndef IDEM_TRANSITION_H
#define IDEM_TRANSITION_H

#include "postgres.h"

#include "utils/array.h"
#include "utils/jsonb.h"

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

extern void idem_transition_rule_read_states(TransitionRule *rule, ArrayType *from, const text *to);
extern void idem_transition_rule_check(TransitionRule *rule, const Target *target, const TargetColumn *column);
extern Verdict idem_transition_rule_judge(const TransitionRule *rule, const char *state, const char **to);
extern const char *idem_transition_rule_only_source(const TransitionRule *rule);
extern char *idem_transition_rule_sources(const TransitionRule *rule);
extern void idem_transition_rule_states_to_json(const TransitionRule *rule, JsonbValue *json);

extern TargetReader *idem_transition_reader(FmgrInfo *function);

#endif							/* IDEM_TRANSITION_H */
