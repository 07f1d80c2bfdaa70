/*
 * state_diagram.c - state diagrams in Mermaid's syntax: read
 *
 * The syntax is that of Mermaid's stateDiagram-v2, as far as it says which state
 * may follow which.  What is only for the eye is passed over (descriptions, notes,
 * styles, direction); what would need more than one state at a time is refused
 * (composite and concurrent states, forks, joins, choices).  Nothing is read that
 * Mermaid's own parser would read as something else.
 *
 * Every statement is one line.  A line that is wrong is reported and left out, and
 * reading goes on, so that all faults are told at once.
 */
#include "postgres.h"

#include "state_diagram.h"

#include "mb/pg_wchar.h"

typedef struct Reader
{
	StateDiagram *diagram;
	List	  **problems;
	int			line;			/* its number, from 1 */
	char	   *start;			/* the line, which ends with a null byte */
	const char *at;				/* what is read next */
	const char *until;			/* what ends the lines that are passed over, or NULL */
	bool		begun;			/* a statement has been read */
} Reader;

/* ---------- problems ---------- */

/*
 * Appends a problem; the message is not copied.
 */
void
idem_state_diagram_add_problem(List **problems, int line, bool warning, char *message)
{
	DiagramProblem *problem = palloc(sizeof(DiagramProblem));

	problem->line = line;
	problem->warning = warning;
	problem->message = message;
	*problems = lappend(*problems, problem);
}

/* Reports a fault of this line, at this place; columns are characters and count from 1. */
static void
fault(Reader *reader, const char *at, const char *message)
{
	int			column = pg_mbstrlen_with_len(reader->start, at - reader->start) + 1;

	idem_state_diagram_add_problem(reader->problems, reader->line, false, psprintf("column %d: %s", column, message));
}

/*
 * Returns the first problem, in the order of the lines, that keeps a diagram from
 * being used, or NULL.
 */
const DiagramProblem *
idem_state_diagram_first_error(const List *problems)
{
	const DiagramProblem *first = NULL;
	ListCell   *cell;

	foreach(cell, problems)
	{
		const DiagramProblem *problem = lfirst(cell);

		if (!problem->warning && (first == NULL || problem->line < first->line))
			first = problem;
	}
	return first;
}

/* ---------- characters and words ---------- */

static bool
is_blank(char c)
{
	return c == ' ' || c == '\t';
}

static bool
is_word_character(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/* What an id consists of; Mermaid takes some more, which mean something elsewhere in the syntax. */
static bool
is_id_character(char c)
{
	return c != '\0' && strchr(" \t:-{}\"#%;<>[]", c) == NULL;
}

static void
skip_blanks(Reader *reader)
{
	while (is_blank(*reader->at))
		reader->at++;
}

static bool
at_end(const Reader *reader)
{
	return *reader->at == '\0' || strncmp(reader->at, "%%", 2) == 0;
}

/* Does the text begin with this word, in any case, and does the word end there? */
static bool
begins_with_word(const char *text, const char *word)
{
	int			length = strlen(word);

	return pg_strncasecmp(text, word, length) == 0 && !is_word_character(text[length]);
}

/* Reads the word if it stands here, followed by a blank or the end of the line. */
static bool
take_word(Reader *reader, const char *word)
{
	int			length = strlen(word);

	if (!begins_with_word(reader->at, word) || (!is_blank(reader->at[length]) && reader->at[length] != '\0'))
		return false;
	reader->at += length;
	skip_blanks(reader);
	return true;
}

static bool
take(Reader *reader, const char *token)
{
	int			length = strlen(token);

	if (strncmp(reader->at, token, length) != 0)
		return false;
	reader->at += length;
	skip_blanks(reader);
	return true;
}

/* Words that Mermaid reads as something else wherever an id stands. */
static bool
is_reserved(const char *id)
{
	static const char *const words[] = {
		"accDescr", "accTitle", "class", "classDef", "click", "default", "href", "note", "scale", "state",
		"stateDiagram", "style"
	};

	for (int i = 0; i < (int) lengthof(words); i++)
	{
		if (begins_with_word(id, words[i]))
			return true;
	}
	return false;
}

/* ---------- states and arrows ---------- */

static int
find_id(const StateDiagram *diagram, const char *id)
{
	for (int i = 0; i < diagram->nstates; i++)
	{
		if (strcmp(diagram->states[i].id, id) == 0)
			return i;
	}
	return IDEM_NO_STATE;
}

/* The state that the diagram calls so; speaking of it makes it. */
static int
state_of_id(Reader *reader, const char *id)
{
	StateDiagram *diagram = reader->diagram;
	int			i = find_id(diagram, id);
	DiagramState *state;

	if (i != IDEM_NO_STATE)
		return i;
	/* the room doubles at each power of two */
	if ((diagram->nstates & (diagram->nstates - 1)) == 0)
		diagram->states = diagram->nstates == 0 ? palloc(sizeof(DiagramState)) :
			repalloc(diagram->states, sizeof(DiagramState) * diagram->nstates * 2);
	state = &diagram->states[diagram->nstates];
	memset(state, 0, sizeof(DiagramState));
	state->id = state->name = pstrdup(id);
	state->line = reader->line;
	return diagram->nstates++;
}

static bool
same_event(const char *a, const char *b)
{
	return a == NULL || b == NULL ? a == b : strcmp(a, b) == 0;
}

static void
add_arrow(Reader *reader, int from, int to, char *event)
{
	StateDiagram *diagram = reader->diagram;
	DiagramArrow *arrow;

	for (int i = 0; i < diagram->narrows; i++)
	{
		arrow = &diagram->arrows[i];
		if (arrow->from == from && arrow->to == to && same_event(arrow->event, event))
		{
			idem_state_diagram_add_problem(reader->problems, reader->line, true,
										   psprintf("the same arrow stands in line %d", arrow->line));
			return;
		}
	}
	if ((diagram->narrows & (diagram->narrows - 1)) == 0)
		diagram->arrows = diagram->narrows == 0 ? palloc(sizeof(DiagramArrow)) :
			repalloc(diagram->arrows, sizeof(DiagramArrow) * diagram->narrows * 2);
	arrow = &diagram->arrows[diagram->narrows++];
	arrow->from = from;
	arrow->to = to;
	arrow->event = event;
	arrow->line = reader->line;

	if (from == IDEM_NO_STATE)
		diagram->initial = bms_add_member(diagram->initial, to);
	else if (to == IDEM_NO_STATE)
		diagram->states[from].final = true;
	else
		diagram->states[from].next = bms_add_member(diagram->states[from].next, to);
}

/* ---------- the end of a statement ---------- */

static bool
expect_end(Reader *reader, const char *expected)
{
	skip_blanks(reader);
	if (at_end(reader))
		return true;
	fault(reader, reader->at, psprintf("expected %s", expected));
	return false;
}

/* Returns whether Mermaid would take the text as one, too. */
static bool
check_text(Reader *reader, const char *at, const char *text)
{
	int			length = strlen(text);
	const char *odd;

	if (length == 0)
		fault(reader, at, "expected a text behind the colon");
	else if ((odd = strchr(text, ';')) != NULL)
		fault(reader, at + (odd - text), "a semicolon cannot stand here");
	else if ((odd = strstr(text, "::")) != NULL)
		fault(reader, at + (odd - text), "two colons in a row cannot stand here");
	else if (text[0] == ':' || text[length - 1] == ':')
		fault(reader, at, "a text cannot begin or end with a colon");
	else if ((odd = strstr(text, "%%")) != NULL)
		fault(reader, at + (odd - text), "a comment would be a part of the text; give it a line of its own");
	else
		return true;
	return false;
}

/*
 * Reads the text behind a colon: an event, or a description.  Returns NULL when the
 * fault is told.
 */
static char *
read_text(Reader *reader)
{
	const char *at = reader->at;
	char	   *text = pstrdup(at);
	int			length = strlen(text);

	while (length > 0 && is_blank(text[length - 1]))
		length--;
	text[		length] = '\0';

	reader->at += strlen(at);
	return check_text(reader, at, text) ? text : NULL;
}

/* ---------- statements ---------- */

/* "A:::style" is A. */
static bool
skip_style(Reader *reader)
{
	if (strncmp(reader->at, ":::", 3) != 0)
		return true;
	reader->at += 3;
	if (!is_word_character(*reader->at))
	{
		fault(reader, reader->at, "expected the name of a style");
		return false;
	}
	while (is_word_character(*reader->at))
		reader->at++;
	return true;
}

static void
fault_in_id(Reader *reader, const char *start)
{
	const char *c = reader->at;

	if (c[0] == '"')
		fault(reader, c, "a name in quotes needs an id: state \"name\" as id");
	else if (c[0] == '[')
		fault(reader, c, "expected the id of a state, or [*]; history and other marks in brackets are not supported");
	else if (c[0] == '<')
		fault(reader, c, "<<choice>>, <<fork>> and <<join>> are not supported: draw an arrow from each state to each that may follow");
	else if (c[0] == '-' && c > start)
		fault(reader, c, "an id cannot have \"-\"; for such a name write: state \"name\" as id");
	else
		fault(reader, c, "expected the id of a state, or [*]");
}

/* Returns the id that stands here, or NULL when the fault is told. */
static char *
read_id(Reader *reader)
{
	const char *start = reader->at;
	char	   *id;

	while (is_id_character(*reader->at))
		reader->at++;
	if (reader->at == start ||
		(*reader->at == '-' && strncmp(reader->at, "-->", 3) != 0) ||
		(!at_end(reader) && strchr("\"#%;<>[]", *reader->at) != NULL))
	{
		fault_in_id(reader, start);
		return NULL;
	}
	id = pnstrdup(start, reader->at - start);
	if (is_reserved(id))
	{
		fault(reader, start, psprintf("\"%s\" is a word of the syntax; for a state of that name write: state \"%s\" as id", id, id));
		return NULL;
	}
	return id;
}

/* Reads one end of an arrow.  Returns false when the fault is told. */
static bool
read_node(Reader *reader, int *state)
{
	char	   *id;

	*state = IDEM_NO_STATE;
	if (take(reader, "[*]"))
		return true;
	id = read_id(reader);
	if (id == NULL)
		return false;
	*state = state_of_id(reader, id);
	if (!skip_style(reader))
		return false;
	skip_blanks(reader);
	return true;
}

/* A --> B, A --> B : event; A : description; A by itself */
static void
read_arrow(Reader *reader)
{
	const char *start = reader->at;
	char	   *event = NULL;
	int			from;
	int			to;

	if (!read_node(reader, &from))
		return;
	if (!take(reader, "-->"))
	{
		if (from == IDEM_NO_STATE)
			fault(reader, reader->at, "expected \"-->\"");
		else if (reader->at[0] == '{')
			fault(reader, reader->at, "composite states are not supported: draw the arrows of the inner states");
		else if (take(reader, ":"))
			(void) read_text(reader);
		else
			(void) expect_end(reader, "\"-->\", or \":\" and a description");
		return;
	}
	if (!read_node(reader, &to))
		return;
	if (take(reader, ":") && (event = read_text(reader)) == NULL)
		return;
	if (!expect_end(reader, "\":\" and an event, or the end of the line"))
		return;
	if (from == IDEM_NO_STATE && to == IDEM_NO_STATE)
		fault(reader, start, "an arrow must have a state at one of its ends");
	else
		add_arrow(reader, from, to, event);
}

/* Reads "name" as, in front of an id.  Returns NULL when the fault is told. */
static char *
read_name(Reader *reader)
{
	const char *start = reader->at;
	const char *end = strchr(++reader->at, '"');
	char	   *name;

	if (end == NULL)
	{
		fault(reader, start, "the name is not closed by a quote");
		return NULL;
	}
	name = pnstrdup(reader->at, end - reader->at);
	if (name[strspn(name, " \t")] == '\0')
	{
		fault(reader, start, "the name is blank");
		return NULL;
	}
	reader->at = end + 1;
	skip_blanks(reader);
	if (!take_word(reader, "as"))
	{
		fault(reader, reader->at, "expected \"as\" and an id");
		return NULL;
	}
	return name;
}

/* state "name" as id; state id */
static void
read_state(Reader *reader)
{
	char	   *name = NULL;
	const char *start = reader->at;
	char	   *id;
	int			i;
	DiagramState *state;

	if (*reader->at == '"' && (name = read_name(reader)) == NULL)
		return;
	id = read_id(reader);
	if (id == NULL || !skip_style(reader))
		return;
	skip_blanks(reader);
	if (*reader->at == '{' || strncmp(reader->at, "<<", 2) == 0 || strncmp(reader->at, "[[", 2) == 0)
	{
		fault(reader, reader->at,
			  *reader->at == '{' ? "composite states are not supported: draw the arrows of the inner states" :
			  "choices, forks and joins are not supported: draw an arrow from each state to each that may follow");
		return;
	}
	if (!expect_end(reader, "the end of the line"))
		return;
	i = state_of_id(reader, id);	/* which may move the states */
	state = &reader->diagram->states[i];
	if (name == NULL)
		return;
	if (state->name != state->id && strcmp(state->name, name) != 0)
		fault(reader, start, psprintf("\"%s\" is the id of state \"%s\" already", id, state->name));
	else
		state->name = name;
}

/* A note of one line, or of all lines to "end note"; or one that floats: "text" as id. */
static void
read_note(Reader *reader)
{
	if (*reader->at == '"')
	{
		if (read_name(reader) != NULL && read_id(reader) != NULL)
			(void) expect_end(reader, "the end of the line");
		return;
	}
	if (!take_word(reader, "left") && !take_word(reader, "right"))
	{
		fault(reader, reader->at, "expected \"left of\" or \"right of\" and the id of a state");
		return;
	}
	if (!take_word(reader, "of"))
	{
		fault(reader, reader->at, "expected \"of\" and the id of a state");
		return;
	}
	if (read_id(reader) == NULL)
		return;
	skip_blanks(reader);
	if (*reader->at == '\0')
		reader->until = "end note";
	else if (take(reader, ":"))
		(void) read_text(reader);
	else
		fault(reader, reader->at, "expected \":\" and the text of the note, or the end of the line");
}

/* Passes over names with commas between them, and the blanks behind. */
static bool
skip_names(Reader *reader)
{
	const char *start = reader->at;

	while (is_word_character(*reader->at) || *reader->at == ',')
		reader->at++;
	if (reader->at == start || !is_blank(*reader->at))
		return false;
	skip_blanks(reader);
	return true;
}

/*
 * Reads what a style is given to, and the style.  Mermaid would look for them in the
 * next line; and an arrow among them would be lost.
 */
static void
read_style(Reader *reader, const char *word, const char *start)
{
	if (strstr(reader->at, "-->") != NULL)
		fault(reader, start, psprintf("\"%s\" is a word of the syntax; for a state of that name write: state \"%s\" as id",
									  word, word));
	else if (!skip_names(reader) || *reader->at == '\0')
		fault(reader, reader->at, psprintf("expected a name and a style behind \"%s\"", word));
}

/* scale 350 width */
static void
read_scale(Reader *reader)
{
	const char *start = reader->at;

	while (*reader->at >= '0' && *reader->at <= '9')
		reader->at++;
	if (reader->at == start || !is_blank(*reader->at))
	{
		fault(reader, start, "expected a number and \"width\"");
		return;
	}
	skip_blanks(reader);
	if (!take_word(reader, "width"))
		fault(reader, reader->at, "expected \"width\"");
	else
		(void) expect_end(reader, "the end of the line");
}

/* accTitle: text; accDescr: text; accDescr { and lines of text to } */
static bool
read_accessibility(Reader *reader)
{
	if (begins_with_word(reader->at, "accTitle"))
		reader->at += strlen("accTitle");
	else if (begins_with_word(reader->at, "accDescr"))
	{
		reader->at += strlen("accDescr");
		skip_blanks(reader);
		if (*reader->at == '{')
		{
			if (strchr(reader->at, '}') == NULL)
				reader->until = "}";
			return true;
		}
	}
	else
		return false;
	skip_blanks(reader);
	if (reader->at[0] != ':' || reader->at[1 + strspn(reader->at + 1, " \t")] == '\0')
		fault(reader, reader->at, "expected \":\" and a text");
	return true;
}

/* Is this something for the eye alone? */
static bool
read_ornament(Reader *reader)
{
	static const char *const styles[] = {"classDef", "class", "style"};
	const char *start = reader->at;

	for (int i = 0; i < (int) lengthof(styles); i++)
	{
		if (take_word(reader, styles[i]))
		{
			read_style(reader, styles[i], start);
			return true;
		}
	}
	if (take_word(reader, "scale"))
	{
		read_scale(reader);
		return true;
	}
	return read_accessibility(reader) ||
		pg_strncasecmp(start, "hide empty description", strlen("hide empty description")) == 0;
}

/* Mermaid looks for a direction in the whole line. */
static bool
has_direction(const char *line, const char **at)
{
	static const char *const directions[] = {"TB", "BT", "RL", "LR"};

	for (const char *c = line; *c != '\0'; c++)
	{
		const char *next = c + strlen("direction");

		if (pg_strncasecmp(c, "direction", strlen("direction")) != 0 || !is_blank(*next))
			continue;
		next += strspn(next, " \t");
		for (int i = 0; i < (int) lengthof(directions); i++)
		{
			*at = c;
			if (pg_strncasecmp(next, directions[i], 2) == 0)
				return true;
		}
	}
	return false;
}

static bool
read_direction(Reader *reader)
{
	const char *at;

	if (!has_direction(reader->at, &at))
		return false;
	if (at != reader->at)
		fault(reader, at, "Mermaid would take the whole line for a direction");
	return true;
}

static void
read_statement(Reader *reader)
{
	bool		first = !reader->begun;

	reader->begun = true;
	if (take_word(reader, "stateDiagram-v2") || take_word(reader, "stateDiagram"))
	{
		if (!first)
			fault(reader, reader->start, "the header stands once, in front of everything else");
		else
			(void) expect_end(reader, "the end of the line");
	}
	else if (first && strcmp(reader->at, "---") == 0)
	{
		reader->until = "---";
		reader->begun = false;
	}
	else if (strncmp(reader->at, "--", 2) == 0 && reader->at[2] != '>')
		fault(reader, reader->at, "concurrent states are not supported: a row is in one state at a time");
	else if (read_direction(reader) || read_ornament(reader))
		return;
	else if (take_word(reader, "note"))
		read_note(reader);
	else if (take_word(reader, "state"))
		read_state(reader);
	else
		read_arrow(reader);
}

/* ---------- the whole ---------- */

/* A comment: "%% ...", and for Mermaid "# ..." too. */
static bool
is_comment(const char *line)
{
	return line[0] == '#' || strncmp(line, "%%", 2) == 0;
}

static void
read_line(Reader *reader)
{
	reader->at = reader->start;
	skip_blanks(reader);
	if (reader->until != NULL)
	{
		if (pg_strncasecmp(reader->at, reader->until, strlen(reader->until)) == 0)
			reader->until = NULL;
	}
	else if (*reader->at != '\0' && !is_comment(reader->at))
		read_statement(reader);
}

/* Two ids of one name would be two states that a row cannot tell apart. */
static void
check_names(Reader *reader)
{
	const StateDiagram *diagram = reader->diagram;

	for (int i = 0; i < diagram->nstates; i++)
	{
		for (int j = 0; j < i; j++)
		{
			if (strcmp(diagram->states[i].name, diagram->states[j].name) == 0)
				idem_state_diagram_add_problem(reader->problems, diagram->states[i].line, false,
											   psprintf("state \"%s\" has two ids: %s and %s", diagram->states[i].name,
														diagram->states[j].id, diagram->states[i].id));
		}
	}
}

/*
 * Reads a diagram.  Appends what is wrong with its text to *problems; only one
 * without an error means what it says.  All of it belongs to the current memory
 * context.
 */
StateDiagram *
idem_state_diagram_read(const char *text, List **problems)
{
	Reader		reader = {.diagram = palloc0(sizeof(StateDiagram)),.problems = problems};
	char	   *rest = pstrdup(text);

	while (rest != NULL)
	{
		char	   *end = strchr(rest, '\n');

		reader.start = rest;
		reader.line++;
		rest = end != NULL ? end + 1 : NULL;
		if (end != NULL)
			*end = '\0';
		if ((end = strchr(reader.start, '\r')) != NULL && end[1] == '\0')
			*end = '\0';
		read_line(&reader);
	}
	if (reader.until != NULL)
		idem_state_diagram_add_problem(problems, reader.line, false, psprintf("\"%s\" is missing at the end", reader.until));
	check_names(&reader);
	return reader.diagram;
}
