/*
 * state_diagram.h - state diagrams in Mermaid's syntax: read, judged, written
 */
#ifndef IDEM_STATE_DIAGRAM_H
#define IDEM_STATE_DIAGRAM_H

#include "postgres.h"

#include "nodes/bitmapset.h"
#include "nodes/pg_list.h"

/* the end of an arrow that is no state: [*], where rows begin and end */
#define IDEM_NO_STATE (-1)

typedef struct DiagramState
{
	char	   *name;			/* what stands in the column */
	char	   *id;				/* what the diagram calls it */
	int			line;			/* where it is first spoken of */
	bool		final;			/* an arrow leads from it to the end */
	Bitmapset  *next;			/* the states that an arrow leads to */
} DiagramState;

typedef struct DiagramArrow
{
	int			from;			/* a state, or IDEM_NO_STATE */
	int			to;
	char	   *event;			/* or NULL */
	int			line;
} DiagramArrow;

typedef struct StateDiagram
{
	int			nstates;
	DiagramState *states;
	int			narrows;
	DiagramArrow *arrows;		/* in the order of the text */
	Bitmapset  *initial;		/* the states that rows begin in */
} StateDiagram;

/* what is wrong with a diagram */
typedef struct DiagramProblem
{
	int			line;			/* from 1 */
	bool		warning;		/* it can be used all the same */
	char	   *message;
} DiagramProblem;

/* what follows from an event in a state */
typedef enum DiagramStep
{
	IDEM_STEP_NONE,				/* nothing: no arrow of the event begins there */
	IDEM_STEP_ONE,
	IDEM_STEP_SEVERAL			/* two arrows of the event do */
} DiagramStep;

/* is this a name that a state can have? */
typedef bool (*DiagramLabel) (const char *name, void *argument);

extern void idem_state_diagram_add_problem(List **problems, int line, bool warning, char *message);
extern StateDiagram *idem_state_diagram_read(const char *text, List **problems);
extern void idem_state_diagram_check(const StateDiagram *diagram, List **problems);
extern void idem_state_diagram_check_labels(const StateDiagram *diagram, DiagramLabel is_label, void *argument,
											List **problems);
extern const DiagramProblem *idem_state_diagram_first_error(const List *problems);

extern int	idem_state_diagram_find(const StateDiagram *diagram, const char *name);
extern bool idem_state_diagram_has_event(const StateDiagram *diagram, const char *event);
extern DiagramStep idem_state_diagram_step(const StateDiagram *diagram, int from, const char *event, int *to);
extern bool idem_state_diagram_is_target(const StateDiagram *diagram, const char *event, int to);
extern char *idem_state_diagram_list(const StateDiagram *diagram, const Bitmapset *states);

extern char *idem_state_diagram_write(const StateDiagram *diagram, const int64 *counts, const char *remark);

#endif							/* IDEM_STATE_DIAGRAM_H */
